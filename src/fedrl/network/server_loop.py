"""The server's loop: send the model, wait for answers, check them, aggregate, save; again.

It knows neither Flower nor the network: a transport brings messages to agents and back.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Protocol

import numpy as np

from fedrl.counting import count
from fedrl.errors import FedrlError
from fedrl.network.deployment import Deployment
from fedrl.network.messages import Answer, Array, Arrays, Instruction, Refusal
from fedrl.network.record import Record
from fedrl.network.server_side import Planned, Training
from fedrl.network.validation import shown, why_not_answer
from fedrl.runs import checkpoint

# An agent that fails is asked so often in a round.
ATTEMPTS = 2
# An agent that was silent for so many rounds in a row holds up no further one at full length.
SILENT = 2
POLL = 0.1


class Transport(Protocol):
    """The way to the agents."""

    def present(self) -> Mapping[int, object]:
        """Agents that are there, each with a mark that changes when it was away in between."""

    def send(self, instructions: Mapping[int, Instruction]) -> int:
        """Send; what was said to these agents before is forgotten. Returns bytes."""

    def receive(self) -> tuple[list[tuple[int, Answer | Refusal]], int]:
        """What has come since, and its bytes."""


@dataclass
class _Round:
    """Who was asked, who has answered."""

    planned: Planned
    instructions: dict[int, Instruction]
    workers: set[int]
    start: float
    latest: float
    """When the last valid answer came."""
    marks: dict[int, object] = field(default_factory=dict)
    failures: dict[int, int] = field(default_factory=dict)
    answers: dict[int, Answer] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    sent: int = 0
    received: int = 0

    @property
    def open(self) -> set[int]:
        return set(self.marks) - set(self.answers) - set(self.lost)


class Server:
    """Carries out a training, round after round, from wherever an earlier process got."""

    def __init__(
        self,
        training: Training,
        transport: Transport,
        record: Record,
        deployment: Deployment,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._training, self._transport, self._record = training, transport, record
        self._deployment, self._log, self._clock = deployment, log, clock
        self._gathered = False
        self._silent: Counter[int] = Counter()
        """Rounds in a row in which an agent was asked and did not answer."""
        first = training.first()
        self._names = list(first)
        self._done, self._model, self._objectives = self._restored(first)

    def run(self) -> None:
        """All rounds that are left."""
        record, training = self._record, self._training
        for planned in training.rounds[self._done :]:
            start = self._clock()
            record.status(planned, self._transport.present())
            held_out = training.held_out(self._model, planned.trained) if planned.evaluate else {}
            done = self._answered(planned)
            if planned.evaluate:
                record.evaluation(planned, done.answers, held_out)
                self._objectives += list(_objectives(done.answers, training.agents))
            waited = self._clock()
            shared = {i: done.answers[i].shared for i in done.workers if i in done.answers}
            if planned.E:
                self._aggregate(planned, shared, len(done.workers))
                self._save(planned)
            self._done = planned.number
            record.round(
                planned,
                done.answers,
                done.lost,
                sent=done.sent,
                received=done.received,
                seconds=(waited - start, self._clock() - waited),
            )
        record.finish(self._model)

    def _aggregate(self, planned: Planned, shared: dict[int, Arrays], asked: int) -> None:
        """Make the next model, or keep the one there is if the aggregator needs more answers."""
        least = self._training.least(planned.number)
        if len(shared) >= least:
            self._model = self._training.aggregate(shared, self._model, planned.number)
            return
        why = (
            f"{len(shared)} of {asked} answers are valid, the aggregator needs {least}: the model "
            "stays as it was"
        )
        self._log(f"round {planned.number}: {why}")
        self._record.kept(planned, why)

    def _answered(self, planned: Planned) -> _Round:
        """Ask the agents of a round and collect what they say, until the deadline."""
        round = self._asked(planned)
        wanted = round.workers if planned.E else set(round.instructions)
        needed = self._quorum(len(wanted))
        while round.open:
            self._collect(round)
            here = self._ask_again(round)
            if self._clock() > round.start + self._deployment.deadline:
                self._give_up(round, "it did not answer before the deadline")
            elif len(wanted & set(round.answers)) >= needed:
                if not round.open & set(here):
                    self._give_up(round, "it has gone")
                elif self._only_silent_ones(round):
                    self._give_up(
                        round, f"it missed {SILENT} rounds before, and the others have answered"
                    )
            if round.open:
                time.sleep(POLL)
        valid = wanted & set(round.answers)
        if len(valid) < needed:
            reasons = "; ".join(f"agent {i}: {why}" for i, why in sorted(round.lost.items()))
            raise FedrlError(
                f"round {planned.number} has {count(len(valid), 'valid answers')} and needs "
                f"{needed} ({reasons or 'nobody was there'}). Nothing was changed: start the "
                "server again to try this round again"
            )
        return round

    def _only_silent_ones(self, round: _Round) -> bool:
        """Whether all that are missing were silent before, and have had twice the others' time."""
        twice = self._clock() > 2 * round.latest - round.start
        return twice and all(self._silent[agent] >= SILENT for agent in round.open)

    def _asked(self, planned: Planned) -> _Round:
        """Send instructions to all who are there, once enough of them are."""
        training = self._training
        workers = set(training.takes_part(planned.number)) if planned.E else set()
        # Who does not take part is asked only for an evaluation.
        wanted = set(range(training.agents)) if planned.evaluate else workers
        needed = self._quorum(len(workers or wanted))
        if not self._gathered:
            self._gather(planned, workers or wanted)
        until = self._clock() + self._deployment.patience
        while len((workers or wanted) & set(here := self._transport.present())) < needed:
            if self._clock() > until:
                raise FedrlError(
                    f"round {planned.number} needs {needed} of the agents "
                    f"{sorted(workers or wanted)}, and after {self._deployment.patience:g} s only "
                    f"{sorted(here)} are there"
                )
            self._record.status(planned, here)
            time.sleep(POLL)
        model = self._model if planned.number > 1 or training.sends_first else {}
        instructions = {
            agent: Instruction(
                training=self._record.training,
                experiment=self._record.experiment,
                round=planned.number,
                E=planned.E if agent in workers else 0,
                trained=planned.trained,
                evaluate=planned.evaluate,
                scale=training.scale(self._objectives),
                model=model,
            )
            for agent in wanted & set(here)
        }
        now = self._clock()
        round = _Round(planned, instructions, workers, start=now, latest=now)
        for agent in sorted(wanted - set(here)):
            round.lost[agent] = "it was not there"
            self._log(f"round {planned.number}: agent {agent} is not there")
        self._send(round, set(instructions), here)
        return round

    def _gather(self, planned: Planned, wanted: set[int]) -> None:
        """Agents that were started together with the server are to have their chance."""
        until = self._clock() + self._deployment.gathering
        while wanted - set(here := self._transport.present()) and self._clock() < until:
            self._record.status(planned, here)
            time.sleep(POLL)
        self._gathered = True

    def _send(self, round: _Round, agents: set[int], here: Mapping[int, object]) -> None:
        # Those who may not answer are asked last.
        order = sorted(agents, key=lambda i: (self._silent[i] >= SILENT, i))
        round.sent += self._transport.send({i: round.instructions[i] for i in order})
        for agent in agents:
            round.marks[agent] = here[agent]

    def _collect(self, round: _Round) -> None:
        """Take what has come, and check it."""
        came, received = self._transport.receive()
        round.received += received
        for agent, answer in came:
            if agent not in round.open:
                continue
            if isinstance(answer, Refusal):
                self._failed(round, agent, answer.reason)
                continue
            worked = round.instructions[agent].E > 0
            bound = self._deployment.norm_bound or self._training.furthest(round.planned)
            wrong = why_not_answer(
                answer, round.planned.number, worked, self._model, bound
            ) or self._training.why_not(answer.metrics)
            if wrong is None:
                round.answers[agent] = answer
                round.latest = self._clock()
                del self._silent[agent]
            else:
                # Asked again it would say the same.
                self._lose(round, {agent}, f"its answer was rejected: {wrong}")

    def _failed(self, round: _Round, agent: int, reason: str) -> None:
        here = self._transport.present()
        if here.get(agent) != round.marks[agent]:
            return  # it was stopped over it, and is asked again when it is back
        round.failures[agent] = round.failures.get(agent, 0) + 1
        if round.failures[agent] >= ATTEMPTS:
            self._lose(round, {agent}, reason)
            return
        self._log(
            f"round {round.planned.number}: agent {agent} failed ({shown(reason)}); asking again"
        )
        self._send(round, {agent}, here)

    def _ask_again(self, round: _Round) -> Mapping[int, object]:
        """Whoever was restarted since it was asked has forgotten that it was; who is there."""
        here = self._transport.present()
        again = {i for i in round.open if i in here and here[i] != round.marks[i]}
        if again:
            self._log(
                f"round {round.planned.number}: agents {sorted(again)} are back; asking again"
            )
            self._send(round, again, here)
        return here

    def _give_up(self, round: _Round, why: str) -> None:
        """Go on without those who have not answered."""
        self._silent.update(round.open)
        self._lose(round, round.open, why)

    def _lose(self, round: _Round, agents: set[int], why: str) -> None:
        why = shown(why)
        for agent in sorted(agents):
            round.lost[agent] = why
            self._log(f"round {round.planned.number}: without agent {agent}: {why}")

    def _quorum(self, asked: int) -> int:
        return min(self._deployment.quorum or asked // 2 + 1, asked)

    def _save(self, planned: Planned) -> None:
        record = self._record
        told = np.reshape(self._objectives, (-1, self._training.agents))
        leaves = [told, *(self._model[name] for name in self._names)]
        trained = planned.trained + planned.E
        checkpoint.save(record.checkpoints, record.experiment, planned.number, trained, leaves)

    def _restored(self, first: Arrays) -> tuple[int, Arrays, list[Array]]:
        """(rounds done, model, objectives) of the newest good checkpoint."""
        for file in reversed(checkpoint.checkpoints(self._record.checkpoints)):
            try:
                done, _, saved = checkpoint.load(file, self._record.experiment)
                shapes = [x.shape for x in saved[1:]]
                agents = (self._training.agents,)
                if saved[0].shape[1:] != agents or shapes != [x.shape for x in first.values()]:
                    raise FedrlError(f"{file} has arrays of other shapes than this experiment")
            except FedrlError as error:
                self._log(f"{error}; looking for an older one")
                continue
            self._log(f"going on after round {done}")
            objectives, *leaves = saved
            return done, dict(zip(first, leaves, strict=True)), list(objectives)
        return 0, first, []


def _objectives(answers: Mapping[int, Answer], agents: int) -> Array:
    """(1, n) what each agent says of the model, NaN if nothing; (0, n) if none of them does."""
    told = np.full((1, agents), nan)
    for agent, answer in answers.items():
        told[0, agent] = answer.metrics.get("objective", nan)
    spoken: Array = told[~np.isnan(told).all(1)]
    return spoken
