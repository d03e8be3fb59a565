"""A server that waits for nobody: it steps whenever enough agents have arrived."""

from collections.abc import Iterable
from typing import NamedTuple

import jax
import numpy as np

from fedrl.counting import count
from fedrl.errors import FedrlError
from fedrl.files import Array
from fedrl.network.agent_client import named
from fedrl.network.messages import Instruction
from fedrl.network.server import Server
from fedrl.network.server_side import Planned, ServerSide
from fedrl.strategies.corrections import Broadcast


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


class Asynchronous(Server):
    """Rounds that end when some of the agents have arrived; the last one, for all to evaluate.

    Each agent works on an instruction of its own, from the model that was the newest one when it
    was asked. A checkpoint has all instructions: after a kill the same ones are sent again, and
    agents that have carried them out say again what came of it.
    """

    def begin(self) -> None:
        agents, first = self.side.agents, self.progress.server.sent
        received = jax.tree.map(lambda leaf: np.stack([leaf] * agents), first)
        nothing = np.zeros(agents, np.int64)
        underway = Underway(nothing, received, nothing.astype(bool), nothing)
        self.progress = self.progress._replace(underway=underway)
        self._assign(range(agents), 1)

    def train(self) -> None:
        if left := self.side.rounds[self.done : -1]:
            self.gather(left[0], set(range(self.side.agents)), self._needed)
        for planned in left:
            self._overlapping(planned)
        super().train()

    @property
    def _needed(self) -> int:
        """Agents that a round waits for."""
        needed: int = self.side.experiment.timing.arrivals
        return needed

    def _overlapping(self, planned: Planned) -> None:
        """A round in which agents may still be busy with an earlier model."""
        exchange, start, state = self.exchange, self.clock(), self.progress.server
        if planned.evaluate:
            held_out = self.side.held_out(state, planned.trained)
            self.record.evaluation(planned, {}, held_out, more=True)
        self._wait(planned)
        waited = self.clock()
        came = list(exchange.answers)[: self._needed]
        answers = {agent: exchange.answers[agent] for agent in came}
        self.step(planned, answers, {agent: self._begun(agent) for agent in came})
        busy = exchange.open | set(exchange.answers) - set(came)
        self._assign(set(range(self.side.agents)) - busy, planned.number + 1, came)
        self.close(planned, answers, start, waited)

    def _wait(self, planned: Planned) -> None:
        """Until enough agents have arrived."""
        exchange, enough, patience = self.exchange, self.clock(), self.deployment.patience
        while len(exchange.answers) < self._needed:
            here = exchange.ask_again(self.deployment.deadline)
            if idle := sorted(set(here) - set(exchange.instructions)):
                exchange.ask({agent: self._instruction(agent) for agent in idle})
            for agent in exchange.collect():
                self._keep_evaluation(agent)
            if len(exchange.answers) >= self._needed:
                return
            if len(exchange.answers) + len(exchange.open & set(here)) >= self._needed:
                enough = self.clock()
            elif self.clock() > enough + patience:
                raise FedrlError(
                    f"round {planned.number} needs {count(self._needed, 'arrivals')}, and for "
                    f"{patience:g} s only {sorted(here)} were there "
                    f"({exchange.reasons() or 'nothing was wrong with them'}). Start the server "
                    "again to try this round again"
                )
            self.wait(planned, here)

    def _assign(self, agents: Iterable[int], number: int, answered: Iterable[int] = ()) -> None:
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

    def _instruction(self, agent: int) -> Instruction:
        received, begun = self._begun(agent)
        # Nobody begins with what only evaluates.
        planned = self.side.rounds[min(begun, len(self.side.rounds) - 1) - 1]
        evaluate = bool(self.progress.underway.evaluate[agent])
        return self.instruction(agent, planned, named(received), works=True, evaluate=evaluate)

    def _begun(self, agent: int) -> tuple[Broadcast, int]:
        """What an agent has received, and in which round."""
        underway = self.progress.underway
        received = jax.tree.map(lambda leaf: leaf[agent], underway.received)
        return received, int(underway.round[agent])

    def _keep_evaluation(self, agent: int) -> None:
        """An agent measures the first model it gets once an evaluation is due."""
        answer = self.exchange.answers[agent]
        if self.exchange.instructions[agent].evaluate:
            number = int(self.progress.underway.evaluated[agent])
            self.record.evaluation(self.side.rounds[number - 1], {agent: answer}, {}, more=True)


def server_for(side: ServerSide) -> type[Server]:
    """The server that an experiment wants."""
    return Asynchronous if side.experiment.timing.arrivals else Server
