"""A server in the middle of a training: send the model, wait for offers, step, save; again."""

import time
from collections.abc import Callable, Mapping
from math import nan
from typing import Any, NamedTuple

import jax
import numpy as np

from fedrl.counting import count
from fedrl.errors import FedrlError
from fedrl.files import Array, Arrays
from fedrl.network.agent_client import like, model_only, named
from fedrl.network.deployment import Deployment
from fedrl.network.exchange import SILENT, Exchange, Transport
from fedrl.network.messages import Answer, Instruction
from fedrl.network.record import Record
from fedrl.network.server_side import Planned, ServerSide
from fedrl.network.validation import why_not_answer
from fedrl.runs import checkpoint
from fedrl.strategies.corrections import Broadcast
from fedrl.strategies.strategy import ServerState
from fedrl.trees import refilled

POLL = 0.1


class Progress(NamedTuple):
    """What a server knows of its training from round to round; a checkpoint has all of it."""

    server: ServerState
    counted: Array
    """The last round that used each agent's offer; 0: none yet."""
    underway: Any = ()
    """What each agent works on, where the server does not wait for all agents of a round."""


class Server:
    """Rounds that wait for all agents that take part; for a quorum of them, after a deadline.

    Made again on the same folder, it goes on where an earlier process got.
    """

    def __init__(
        self,
        side: ServerSide,
        transport: Transport,
        record: Record,
        deployment: Deployment,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.side, self.transport, self.record = side, transport, record
        self.deployment, self.log, self.clock = deployment, log, clock
        self.exchange = Exchange(transport, self._wrong, log, clock)
        self.done, self.objectives = 0, list[Array]()
        self.progress = Progress(side.begin(), np.zeros(side.agents, np.int64))
        self._first = named(self.progress.server.sent)
        self._gathered = False
        self.begin()
        self._restore()

    def begin(self) -> None:
        """Before the first round."""

    def train(self) -> None:
        """All rounds that are left, and the final model."""
        for planned in self.side.rounds[self.done :]:
            self.round(planned)
        self.record.finish(self.side.models(self.progress.server))

    def round(self, planned: Planned) -> None:
        """One round."""
        start, record, state = self.clock(), self.record, self.progress.server
        record.status(planned, self.transport.present())
        held_out = self.side.held_out(state, planned.trained) if planned.evaluate else {}
        everybody = set(range(self.side.agents))
        workers = set(self.side.takes_part(planned.number)) if planned.E else everybody
        needed = min(self.deployment.quorum or len(workers) // 2 + 1, len(workers))
        # Who does not take part is asked only for an evaluation.
        self._ask(planned, workers, everybody if planned.evaluate else workers, needed)
        self._collect(planned, workers, needed)
        answers = dict(self.exchange.answers)
        if planned.evaluate:
            record.evaluation(planned, answers, held_out)
            self._hear(answers)
        waited = self.clock()
        if planned.E:
            offers = {i: answers[i] for i in workers & set(answers)}
            self.step(planned, offers, dict.fromkeys(offers, (state.sent, planned.number)))
        self.close(planned, answers, start, waited)

    def _ask(self, planned: Planned, workers: set[int], wanted: set[int], needed: int) -> None:
        """Send instructions to all who are there, once enough of them are."""
        here, model = self.gather(planned, workers, needed), named(self.progress.server.sent)
        for agent in sorted(wanted - set(here)):
            self.exchange.lost[agent] = "it was not there"
            self.log(f"round {planned.number}: agent {agent} is not there")
        self.exchange.ask(
            {
                agent: self.instruction(
                    agent, planned, model, works=agent in workers, evaluate=planned.evaluate
                )
                for agent in wanted & set(here)
            }
        )

    def _collect(self, planned: Planned, workers: set[int], needed: int) -> None:
        """Take what the agents say, until the deadline."""
        exchange, start = self.exchange, self.clock()
        latest = start
        while exchange.open:
            if exchange.collect():
                latest = self.clock()
            here = exchange.ask_again()
            if self.clock() > start + self.deployment.deadline:
                exchange.give_up("it did not answer before the deadline")
            elif len(workers & set(exchange.answers)) >= needed:
                # Silent ones have had twice the time that the others took.
                twice = self.clock() > 2 * latest - start
                silent = all(exchange.silent[agent] >= SILENT for agent in exchange.open)
                if not exchange.open & set(here):
                    exchange.give_up("it has gone")
                elif twice and silent:
                    why = f"it missed {SILENT} rounds before, and the others have answered"
                    exchange.give_up(why)
            if exchange.open:
                self.wait(planned, here)
        valid = workers & set(exchange.answers)
        if len(valid) < needed:
            raise FedrlError(
                f"round {planned.number} has {count(len(valid), 'valid answers')} and needs "
                f"{needed} ({exchange.reasons() or 'nobody was there'}). Nothing was changed: "
                "start the server again to try this round again"
            )

    def instruction(
        self, agent: int, planned: Planned, model: Arrays, *, works: bool, evaluate: bool
    ) -> Instruction:
        """What an agent is to do with a model."""
        return Instruction(
            training=self.record.training,
            experiment=self.side.experiment.digest,
            round=planned.number,
            E=planned.E if works else 0,
            trained=planned.trained,
            evaluate=evaluate,
            scale=self.side.scale(self.objectives),
            counted=int(self.progress.counted[agent]),
            model=model if planned.number > 1 or self.side.sends_first else {},
        )

    def step(
        self,
        planned: Planned,
        answers: Mapping[int, Answer],
        begun: Mapping[int, tuple[Broadcast, int]],
    ) -> None:
        """Make the next model, or keep the one there is if the aggregator needs more answers.

        `begun` says what each agent had received, and in which round.
        """
        side, asked = self.side, len(self.side.takes_part(planned.number))
        least = side.experiment.aggregator.least(asked)
        if len(answers) < least:
            why = (
                f"{len(answers)} of {asked} answers are valid, the aggregator needs {least}: the "
                "model stays as it was"
            )
            self.log(f"round {planned.number}: {why}")
            self.record.kept(planned, why)
            return
        offers = {agent: like(side.offered, answer.shared) for agent, answer in answers.items()}
        server = side.step(self.progress.server, offers, begun, planned.number, asked)
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(server)):
            raise FedrlError(
                f"round {planned.number} has made a model with values that are not finite: the "
                "training has diverged. Lower the step sizes, and begin a new one"
            )
        counted = self.progress.counted.copy()
        for agent in answers:
            _, counted[agent] = begun[agent]
        self.progress = self.progress._replace(server=server, counted=counted)

    def _hear(self, answers: Mapping[int, Answer]) -> None:
        """Keep what agents say that the model is worth, if any of them does."""
        told = np.full(self.side.agents, nan)
        for agent, answer in answers.items():
            told[agent] = answer.metrics.get("objective", nan)
        if not np.isnan(told).all():
            self.objectives.append(told)

    def save(self, planned: Planned) -> None:
        """Write a checkpoint after a round."""
        told = np.reshape(self.objectives, (-1, self.side.agents))
        leaves = [told, *(np.asarray(leaf) for leaf in jax.tree.leaves(self.progress))]
        folder, digest = self.record.directory.checkpoints, self.side.experiment.digest
        checkpoint.save(folder, digest, planned.number, planned.trained + planned.E, leaves)

    def close(
        self, planned: Planned, answers: Mapping[int, Answer], start: float, waited: float
    ) -> None:
        """Keep what came of a round, which has begun at `start` and waited until `waited`."""
        if planned.E:
            self.save(planned)
        exchange, self.done = self.exchange, planned.number
        aggregation = self.clock() - waited
        self.record.round(planned, answers, exchange, waited - start, aggregation)
        exchange.forget([*answers, *exchange.lost])
        exchange.sent = exchange.received = 0

    def gather(self, planned: Planned, wanted: set[int], needed: int) -> Mapping[int, object]:
        """Wait for enough of the agents that are wanted; who is there."""
        # Agents that were started together with the server are to have their chance.
        until = self.clock() + (0.0 if self._gathered else self.deployment.gathering)
        while wanted - set(here := self.transport.present()) and self.clock() < until:
            self.wait(planned, here)
        self._gathered = True
        until = self.clock() + self.deployment.patience
        while len(wanted & set(here := self.transport.present())) < needed:
            if self.clock() > until:
                raise FedrlError(
                    f"round {planned.number} needs {needed} of the agents {sorted(wanted)}, and "
                    f"after {self.deployment.patience:g} s only {sorted(here)} are there"
                )
            self.wait(planned, here)
        return here

    def wait(self, planned: Planned, here: Mapping[int, object]) -> None:
        """A moment, in which whoever looks sees who is there."""
        self.record.status(planned, here)
        time.sleep(POLL)

    def _wrong(self, instruction: Instruction, answer: Answer) -> str | None:
        """What is wrong with an answer, or None."""
        side = self.side
        before = model_only(instruction.model or self._first)
        bound = self.deployment.norm_bound or side.furthest(
            side.rounds[instruction.round - 1], before
        )
        return why_not_answer(
            answer, instruction, side.shapes, before, bound, side.furthest_added()
        ) or side.why_not(answer.metrics)

    def _restore(self) -> None:
        """Go on from the newest good checkpoint."""
        for file in reversed(checkpoint.checkpoints(self.record.directory.checkpoints)):
            try:
                done, _, (objectives, *leaves) = checkpoint.load(file, self.side.experiment.digest)
                progress = refilled(self.progress, leaves)
                if objectives.shape[1:] != (self.side.agents,) or progress is None:
                    raise FedrlError(f"{file} has arrays of other shapes than this experiment")
            except FedrlError as error:
                self.log(f"{error}; looking for an older one")
                continue
            self.log(f"going on after round {done}")
            self.done, self.progress, self.objectives = done, progress, list(objectives)
            return
