"""Rounds that wait for all agents that take part; for a quorum of them, after a deadline."""

import time
from collections.abc import Mapping
from math import nan

import numpy as np

from fedrl.counting import count
from fedrl.errors import FedrlError
from fedrl.files import Array
from fedrl.network.agent_client import named
from fedrl.network.exchange import SILENT, Exchange
from fedrl.network.messages import Answer
from fedrl.network.server import POLL, Server
from fedrl.network.server_side import Planned


def rounds_left(server: Server) -> None:
    """Carry out what is left of a training."""
    for planned in server.side.rounds[server.done :]:
        _round(server, planned)


def _round(server: Server, planned: Planned) -> None:
    """Ask the agents of a round, and wait for them."""
    start, record, state = server.clock(), server.record, server.progress.server
    record.status(planned, server.transport.present())
    held_out = server.side.held_out(state, planned.trained) if planned.evaluate else {}
    workers = set(server.side.takes_part(planned.number)) if planned.E else set()
    # Who does not take part is asked only for an evaluation.
    wanted = set(range(server.side.agents)) if planned.evaluate else workers
    done = _answered(server, planned, workers or wanted, _asked(server, planned, workers, wanted))
    if planned.evaluate:
        record.evaluation(planned, done.answers, held_out)
        server.objectives += list(_told(done.answers, server.side.agents))
    waited = server.clock()
    if planned.E:
        answers = {i: done.answers[i] for i in workers & set(done.answers)}
        server.step(planned, answers, dict.fromkeys(answers, (state.sent, planned.number)))
        server.save(planned)
    server.done = planned.number
    record.round(
        planned,
        done.answers,
        done.lost,
        sent=done.sent,
        received=done.received,
        seconds=(waited - start, server.clock() - waited),
    )


def _asked(server: Server, planned: Planned, workers: set[int], wanted: set[int]) -> Exchange:
    """Send instructions to all who are there, once enough of them are."""
    needed = _quorum(server, len(workers or wanted))
    here = server.gather(planned, workers or wanted, needed)
    exchange, model = server.exchange(), named(server.progress.server.sent)
    instructions = {
        agent: server.instruction(
            agent, planned, model, works=agent in workers, evaluate=planned.evaluate
        )
        for agent in wanted & set(here)
    }
    for agent in sorted(wanted - set(here)):
        exchange.lost[agent] = "it was not there"
        server.log(f"round {planned.number}: agent {agent} is not there")
    exchange.ask(instructions, here)
    return exchange


def _answered(server: Server, planned: Planned, wanted: set[int], exchange: Exchange) -> Exchange:
    """Collect what the agents say, until the deadline."""
    needed, start = _quorum(server, len(wanted)), server.clock()
    latest = start
    while exchange.open:
        if exchange.collect():
            latest = server.clock()
        here = exchange.ask_again()
        if server.clock() > start + server.deployment.deadline:
            _give_up(server, exchange, "it did not answer before the deadline")
        elif len(wanted & set(exchange.answers)) >= needed:
            # Silent ones have had twice the time that the others took.
            twice = server.clock() > 2 * latest - start
            if not exchange.open & set(here):
                _give_up(server, exchange, "it has gone")
            elif twice and all(server.silent[agent] >= SILENT for agent in exchange.open):
                _give_up(
                    server,
                    exchange,
                    f"it missed {SILENT} rounds before, and the others have answered",
                )
        if exchange.open:
            time.sleep(POLL)
    valid = wanted & set(exchange.answers)
    if len(valid) < needed:
        reasons = "; ".join(f"agent {i}: {why}" for i, why in sorted(exchange.lost.items()))
        raise FedrlError(
            f"round {planned.number} has {count(len(valid), 'valid answers')} and needs "
            f"{needed} ({reasons or 'nobody was there'}). Nothing was changed: start the "
            "server again to try this round again"
        )
    return exchange


def _give_up(server: Server, exchange: Exchange, why: str) -> None:
    """Go on without those who have not answered."""
    server.silent.update(exchange.open)
    exchange.lose(exchange.open, why)


def _quorum(server: Server, asked: int) -> int:
    return min(server.deployment.quorum or asked // 2 + 1, asked)


def _told(answers: Mapping[int, Answer], agents: int) -> Array:
    """(1, n) what each agent says of the model, NaN if nothing; (0, n) if none of them does."""
    told = np.full((1, agents), nan)
    for agent, answer in answers.items():
        told[0, agent] = answer.metrics.get("objective", nan)
    spoken: Array = told[~np.isnan(told).all(1)]
    return spoken
