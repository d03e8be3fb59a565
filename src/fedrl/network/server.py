"""A server in the middle of a training: what it asks, how it checks, steps and saves."""

import time
from collections.abc import Callable, Iterable, Mapping
from math import nan
from typing import Any, NamedTuple

import jax
import numpy as np

from fedrl.errors import FedrlError
from fedrl.files import Array, Arrays
from fedrl.network.agent_client import like, model_only, named
from fedrl.network.deployment import Deployment
from fedrl.network.exchange import Exchange, Transport
from fedrl.network.messages import Answer, Instruction
from fedrl.network.record import Record
from fedrl.network.server_side import Planned, ServerSide
from fedrl.network.validation import why_not_answer
from fedrl.runs import checkpoint
from fedrl.strategies.corrections import Broadcast
from fedrl.strategies.strategy import ServerState
from fedrl.trees import refilled

POLL = 0.1


class Underway(NamedTuple):
    """Asynchronous rounds: the instruction that each agent works on; agents first."""

    round: Array
    """Its number: that of the first round which can use the answer."""
    received: Broadcast
    """The model in it."""
    evaluate: Array
    """Whether it asks for an evaluation."""
    evaluated: Array
    """The latest round that began with an evaluation the agent was asked for; 0: none."""


class Progress(NamedTuple):
    """What a server knows of its training from round to round; a checkpoint has all of it."""

    server: ServerState
    counted: Array
    """The last round that used each agent's offer; 0: none yet."""
    underway: Any = ()
    """`Underway`; nothing where the server waits for all agents of a round."""


class Server:
    """Made again on the same folder, it goes on where an earlier process got."""

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
        first, nothing = side.begin(), np.zeros(side.agents, np.int64)
        self.progress, self._first = Progress(first, nothing), named(first.sent)
        if side.experiment.timing.arrivals:
            received = jax.tree.map(lambda leaf: np.stack([leaf] * side.agents), first.sent)
            underway = Underway(nothing, received, nothing.astype(bool), nothing)
            self.progress = self.progress._replace(underway=underway)
            self.assign(range(side.agents), 1)
        self._gathered = False
        self._restore()

    def instruction(
        self, agent: int, planned: Planned, model: Arrays, *, works: bool, evaluate: bool
    ) -> Instruction:
        """What an agent is to do with a model."""
        return Instruction(
            training=self.record.training,
            experiment=self.record.experiment,
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

    def assign(self, agents: Iterable[int], number: int, answered: Iterable[int] = ()) -> None:
        """Agents are to begin with the model of round `number`; some had answered before."""
        everybody, under = np.arange(self.side.agents), self.progress.underway
        begin = np.isin(everybody, list(agents))
        due = max((x.number for x in self.side.rounds[:number] if x.evaluate), default=0)
        owed = under.evaluate & ~np.isin(everybody, list(answered))

        def put(all: Array, new: Array) -> Array:
            return np.where(begin.reshape(-1, *[1] * np.ndim(new)), new, all)

        underway = Underway(
            round=np.where(begin, number, under.round),
            received=jax.tree.map(put, under.received, self.progress.server.sent),
            evaluate=np.where(begin, owed | (under.evaluated < due), under.evaluate),
            evaluated=np.where(begin, due, under.evaluated),
        )
        self.progress = self.progress._replace(underway=underway)

    def hear(self, answers: Mapping[int, Answer]) -> None:
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
        folder, digest = self.record.directory.checkpoints, self.record.experiment
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
                done, _, (objectives, *leaves) = checkpoint.load(file, self.record.experiment)
                progress = refilled(self.progress, leaves)
                if objectives.shape[1:] != (self.side.agents,) or progress is None:
                    raise FedrlError(f"{file} has arrays of other shapes than this experiment")
            except FedrlError as error:
                self.log(f"{error}; looking for an older one")
                continue
            self.log(f"going on after round {done}")
            self.done, self.progress, self.objectives = done, progress, list(objectives)
            return
