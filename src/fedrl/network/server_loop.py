"""The server's loop: send the model, wait for offers, step, save; again."""

import jax

from fedrl.counting import count
from fedrl.errors import FedrlError
from fedrl.network.agent_client import named
from fedrl.network.exchange import SILENT
from fedrl.network.messages import Instruction
from fedrl.network.server import Server
from fedrl.network.server_side import Planned
from fedrl.strategies.corrections import Broadcast


def train(server: Server) -> None:
    """All rounds that are left, and the final model."""
    if server.side.experiment.timing.arrivals:
        _Asynchronous(server).run()
    # The last round of an asynchronous training, which only evaluates, waits for everybody.
    for planned in server.side.rounds[server.done :]:
        _synchronous(server, planned)
    server.record.finish(server.side.models(server.progress.server))


def _synchronous(server: Server, planned: Planned) -> None:
    """A round that waits for all agents that take part; for a quorum of them, after a deadline."""
    start, record, state = server.clock(), server.record, server.progress.server
    record.status(planned, server.transport.present())
    held_out = server.side.held_out(state, planned.trained) if planned.evaluate else {}
    everybody = set(range(server.side.agents))
    workers = set(server.side.takes_part(planned.number)) if planned.E else everybody
    needed = min(server.deployment.quorum or len(workers) // 2 + 1, len(workers))
    # Who does not take part is asked only for an evaluation.
    _ask(server, planned, workers, everybody if planned.evaluate else workers, needed)
    _collect(server, planned, workers, needed)
    answers = dict(server.exchange.answers)
    if planned.evaluate:
        record.evaluation(planned, answers, held_out)
        server.hear(answers)
    waited = server.clock()
    if planned.E:
        offers = {i: answers[i] for i in workers & set(answers)}
        server.step(planned, offers, dict.fromkeys(offers, (state.sent, planned.number)))
    server.close(planned, answers, start, waited)


def _ask(
    server: Server, planned: Planned, workers: set[int], wanted: set[int], needed: int
) -> None:
    """Send instructions to all who are there, once enough of them are."""
    here, exchange = server.gather(planned, workers, needed), server.exchange
    for agent in sorted(wanted - set(here)):
        exchange.lost[agent] = "it was not there"
        server.log(f"round {planned.number}: agent {agent} is not there")
    model = named(server.progress.server.sent)
    exchange.ask(
        {
            agent: server.instruction(
                agent, planned, model, works=agent in workers, evaluate=planned.evaluate
            )
            for agent in wanted & set(here)
        }
    )


def _collect(server: Server, planned: Planned, workers: set[int], needed: int) -> None:
    """Take what the agents say, until the deadline."""
    exchange, start = server.exchange, server.clock()
    latest = start
    while exchange.open:
        if exchange.collect():
            latest = server.clock()
        here = exchange.ask_again()
        if server.clock() > start + server.deployment.deadline:
            exchange.give_up("it did not answer before the deadline")
        elif len(workers & set(exchange.answers)) >= needed:
            # Silent ones have had twice the time that the others took.
            twice = server.clock() > 2 * latest - start
            if not exchange.open & set(here):
                exchange.give_up("it has gone")
            elif twice and all(exchange.silent[agent] >= SILENT for agent in exchange.open):
                exchange.give_up(f"it missed {SILENT} rounds before, and the others have answered")
        if exchange.open:
            server.wait(planned, here)
    valid = workers & set(exchange.answers)
    if len(valid) < needed:
        raise FedrlError(
            f"round {planned.number} has {count(len(valid), 'valid answers')} and needs "
            f"{needed} ({exchange.reasons() or 'nobody was there'}). Nothing was changed: start "
            "the server again to try this round again"
        )


class _Asynchronous:
    """Rounds that wait for nobody: the server steps whenever enough agents have arrived.

    Each agent works on an instruction of its own, from the model that was the newest one when it
    was asked. A checkpoint has all instructions: after a kill the same ones are sent again, and
    agents that have carried them out say again what came of it.
    """

    def __init__(self, server: Server) -> None:
        self._server, self._exchange = server, server.exchange
        self._needed = server.side.experiment.timing.arrivals

    def run(self) -> None:
        """All rounds that are left but the last, which only evaluates."""
        server = self._server
        left = server.side.rounds[server.done : -1]
        if left:
            server.gather(left[0], set(range(server.side.agents)), self._needed)
        for planned in left:
            self._round(planned)

    def _round(self, planned: Planned) -> None:
        server, exchange, side = self._server, self._exchange, self._server.side
        start, state = server.clock(), server.progress.server
        if planned.evaluate:
            held_out = side.held_out(state, planned.trained)
            server.record.evaluation(planned, {}, held_out, more=True)
        self._wait(planned)
        waited = server.clock()
        came = list(exchange.answers)[: self._needed]
        answers = {agent: exchange.answers[agent] for agent in came}
        server.step(planned, answers, {agent: self._begun(agent) for agent in came})
        busy = exchange.open | set(exchange.answers) - set(came)
        server.assign(set(range(side.agents)) - busy, planned.number + 1, came)
        server.close(planned, answers, start, waited)

    def _wait(self, planned: Planned) -> None:
        """Until enough agents have arrived."""
        server, exchange = self._server, self._exchange
        enough, patience = server.clock(), server.deployment.patience
        while len(exchange.answers) < self._needed:
            here = exchange.ask_again(server.deployment.deadline)
            if idle := sorted(set(here) - set(exchange.instructions)):
                exchange.ask({agent: self._instruction(agent) for agent in idle})
            for agent in exchange.collect():
                self._keep_evaluation(agent)
            if len(exchange.answers) >= self._needed:
                return
            if len(exchange.answers) + len(exchange.open & set(here)) >= self._needed:
                enough = server.clock()
            elif server.clock() > enough + patience:
                raise FedrlError(
                    f"round {planned.number} needs {count(self._needed, 'arrivals')}, and for "
                    f"{patience:g} s only {sorted(here)} were there "
                    f"({exchange.reasons() or 'nothing was wrong with them'}). Start the server "
                    "again to try this round again"
                )
            server.wait(planned, here)

    def _instruction(self, agent: int) -> Instruction:
        server, (received, begun) = self._server, self._begun(agent)
        # Nobody begins with what only evaluates.
        planned = server.side.rounds[min(begun, len(server.side.rounds) - 1) - 1]
        evaluate = bool(server.progress.underway.evaluate[agent])
        return server.instruction(agent, planned, named(received), works=True, evaluate=evaluate)

    def _begun(self, agent: int) -> tuple[Broadcast, int]:
        """What an agent has received, and in which round."""
        underway = self._server.progress.underway
        received = jax.tree.map(lambda leaf: leaf[agent], underway.received)
        return received, int(underway.round[agent])

    def _keep_evaluation(self, agent: int) -> None:
        """An agent measures the first model it gets once an evaluation is due."""
        server, answer = self._server, self._exchange.answers[agent]
        if self._exchange.instructions[agent].evaluate:
            number = int(server.progress.underway.evaluated[agent])
            server.record.evaluation(server.side.rounds[number - 1], {agent: answer}, {}, more=True)
