"""The server's loop: send the model, wait for answers, check them, aggregate, save; again.

It knows neither Flower nor the network: a transport brings messages to agents and back.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from fedrl.errors import FedrlError
from fedrl.experiment import checkpoint
from fedrl.flower.messages import Answer, Arrays, Instruction, Refusal
from fedrl.flower.record import Record
from fedrl.flower.settings import Deployment
from fedrl.flower.training import Planned, Training
from fedrl.flower.validation import why_not_answer

# An agent that fails is asked so often in a round.
ATTEMPTS = 2
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
                self._objectives += _mean_objective(done.answers)
            waited = self._clock()
            shared = {i: done.answers[i].shared for i in done.workers if i in done.answers}
            if planned.E:
                self._model = training.aggregate(shared, self._model, planned.number)
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

    def _answered(self, planned: Planned) -> _Round:
        """Ask the agents of a round and collect what they say, until the deadline."""
        round = self._asked(planned)
        wanted = round.workers if planned.E else set(round.instructions)
        needed = self._quorum(len(wanted))
        deadline = self._clock() + self._deployment.deadline
        while round.open:
            self._collect(round)
            here = self._ask_again(round)
            if self._clock() > deadline:
                self._lose(round, round.open, "it did not answer before the deadline")
            elif len(wanted & set(round.answers)) >= needed and not round.open & set(here):
                self._lose(round, round.open, "it has gone")
            if round.open:
                time.sleep(POLL)
        valid = wanted & set(round.answers)
        if len(valid) < needed:
            reasons = "; ".join(f"agent {i}: {why}" for i, why in sorted(round.lost.items()))
            raise FedrlError(
                f"round {planned.number} has {len(valid)} valid answers and needs {needed} "
                f"({reasons or 'nobody was there'}). Nothing was changed: start the server again "
                "to try this round again"
            )
        return round

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
        round = _Round(planned, instructions, workers)
        for agent in sorted(workers - set(here)):
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
        round.sent += self._transport.send({i: round.instructions[i] for i in sorted(agents)})
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
            wrong = why_not_answer(
                answer, round.planned.number, worked, self._model, self._deployment.norm_bound
            )
            if wrong is None:
                round.answers[agent] = answer
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
        self._log(f"round {round.planned.number}: agent {agent} failed ({reason}); asking again")
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

    def _lose(self, round: _Round, agents: set[int], why: str) -> None:
        for agent in sorted(agents):
            round.lost[agent] = why
            self._log(f"round {round.planned.number}: without agent {agent}: {why}")

    def _quorum(self, asked: int) -> int:
        return min(self._deployment.quorum or asked // 2 + 1, asked)

    def _save(self, planned: Planned) -> None:
        record = self._record
        leaves = [np.array(self._objectives), *(self._model[name] for name in self._names)]
        trained = planned.trained + planned.E
        checkpoint.save(record.checkpoints, record.experiment, planned.number, trained, leaves)

    def _restored(self, first: Arrays) -> tuple[int, Arrays, list[float]]:
        """(rounds done, model, objectives) of the newest good checkpoint."""
        for file in reversed(checkpoint.checkpoints(self._record.checkpoints)):
            try:
                done, _, saved = checkpoint.load(file, self._record.experiment)
                if [x.shape for x in saved[1:]] != [np.shape(x) for x in first.values()]:
                    raise FedrlError(f"{file} has arrays of other shapes than this experiment")
            except FedrlError as error:
                self._log(f"{error}; looking for an older one")
                continue
            self._log(f"going on after round {done}")
            objectives, *leaves = saved
            return done, dict(zip(first, leaves, strict=True)), [float(x) for x in objectives]
        return 0, first, []


def _mean_objective(answers: Mapping[int, Answer]) -> list[float]:
    """In agent order, as everything is summed."""
    told: list[Any] = [answers[i].metrics.get("objective") for i in sorted(answers)]
    return [sum(told) / len(told)] if told and None not in told else []
