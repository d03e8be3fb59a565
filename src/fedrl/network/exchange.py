"""Instructions that are out, and what comes of them: asked again where needed, and checked.

It knows neither Flower nor the network: a transport brings messages to agents and back.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from math import inf
from typing import Protocol

from fedrl.network.messages import Answer, Instruction, Refusal
from fedrl.network.validation import shown

# An agent that fails is asked so often in a round.
ATTEMPTS = 2
# An agent that was silent for so many rounds in a row holds up no further one at full length.
SILENT = 2


class Transport(Protocol):
    """The way to the agents."""

    def present(self) -> Mapping[int, object]:
        """Agents that are there, each with a mark that changes when it was away in between."""

    def send(self, instructions: Mapping[int, Instruction]) -> int:
        """Send; what was said to these agents before is forgotten. Returns bytes."""

    def receive(self) -> tuple[list[tuple[int, Answer | Refusal]], int]:
        """What has come since, and its bytes."""


@dataclass
class Exchange:
    """Who was asked, and who has answered."""

    transport: Transport
    wrong: Callable[[Instruction, Answer], str | None]
    """What is wrong with an answer, or None."""
    log: Callable[[str], None]
    clock: Callable[[], float]
    silent: Counter[int] = field(default_factory=Counter)
    """Rounds in a row in which an agent was asked and did not answer."""
    instructions: dict[int, Instruction] = field(default_factory=dict)
    answers: dict[int, Answer] = field(default_factory=dict)
    """The valid ones, in the order in which they came."""
    lost: dict[int, str] = field(default_factory=dict)
    """Why nothing will come of an agent."""
    sent: int = 0
    """Bytes."""
    received: int = 0
    _marks: dict[int, object] = field(default_factory=dict)
    _asked: dict[int, float] = field(default_factory=dict)
    """When each agent was, last."""
    _failures: Counter[int] = field(default_factory=Counter)

    @property
    def open(self) -> set[int]:
        """Who was asked and may still answer."""
        return set(self._marks) - set(self.answers) - set(self.lost)

    def ask(self, instructions: Mapping[int, Instruction]) -> None:
        """Send instructions to agents that are there; what they were asked before is over."""
        self.forget(instructions)
        self.instructions |= instructions
        self._send(instructions)

    def forget(self, agents: Iterable[int]) -> None:
        """What these agents were asked is over."""
        for agent in agents:
            for known in (self.instructions, self.answers, self.lost, self._marks, self._failures):
                known.pop(agent, None)

    def collect(self) -> list[int]:
        """Take what has come, and check it; who has sent a valid answer."""
        came, received = self.transport.receive()
        self.received += received
        valid = []
        for agent, answer in came:
            if agent not in self.open:
                continue
            if isinstance(answer, Refusal):
                self._failed(agent, answer.reason)
            elif wrong := self.wrong(self.instructions[agent], answer):
                # Asked again it would say the same.
                self.lose({agent}, f"its answer was rejected: {wrong}")
            else:
                self.answers[agent] = answer
                del self.silent[agent]
                valid.append(agent)
        return valid

    def ask_again(self, deadline: float = inf) -> Mapping[int, object]:
        """Send once more what an agent has forgotten in a restart, or is late with; who is there.

        After the deadline a message is thrown away.
        """
        here, now = self.transport.present(), self.clock()
        waiting = self.open & set(here)
        back = {i for i in waiting if here[i] != self._marks[i]}
        late = {i for i in waiting - back if now - self._asked[i] > deadline}
        for agents, why in ((back, "are back"), (late, "have not answered before the deadline")):
            by_round = sorted((self.instructions[i].round, i) for i in agents)
            for number, group in groupby(by_round, lambda pair: pair[0]):
                some = [agent for _, agent in group]
                self.log(f"round {number}: agents {some} {why}; asking again")
            if agents:
                self._send(agents)
        return here

    def lose(self, agents: set[int], why: str) -> None:
        """Go on without some of those that were asked."""
        why = shown(why)
        for agent in sorted(agents):
            self.lost[agent] = why
            self.log(f"round {self.instructions[agent].round}: without agent {agent}: {why}")

    def give_up(self, why: str) -> None:
        """Go on without all who have not answered."""
        self.silent.update(self.open)
        self.lose(self.open, why)

    def reasons(self) -> str:
        """Why nothing will come of agents, one after the other."""
        return "; ".join(f"agent {agent}: {why}" for agent, why in sorted(self.lost.items()))

    def _send(self, agents: Iterable[int]) -> None:
        here, now = self.transport.present(), self.clock()
        # Those who may not answer are asked last.
        order = sorted(agents, key=lambda i: (self.silent[i] >= SILENT, i))
        self.sent += self.transport.send({i: self.instructions[i] for i in order})
        for agent in order:
            # Should it have gone just now, it is asked again when it is back.
            self._marks[agent], self._asked[agent] = here.get(agent), now

    def _failed(self, agent: int, reason: str) -> None:
        if self.transport.present().get(agent) != self._marks[agent]:
            return  # it was stopped over it, and is asked again when it is back
        self._failures[agent] += 1
        if self._failures[agent] >= ATTEMPTS:
            self.lose({agent}, reason)
            return
        number = self.instructions[agent].round
        self.log(f"round {number}: agent {agent} failed ({shown(reason)}); asking again")
        self._send({agent})
