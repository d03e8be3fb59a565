"""Instructions that are out, and what comes of them: asked again where needed, and checked.

It knows neither Flower nor the network: a transport brings messages to agents and back.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
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
    _failures: Counter[int] = field(default_factory=Counter)

    @property
    def open(self) -> set[int]:
        """Who was asked and may still answer."""
        return set(self._marks) - set(self.answers) - set(self.lost)

    def ask(self, instructions: Mapping[int, Instruction], here: Mapping[int, object]) -> None:
        """Send instructions to agents that are there; what they were asked before is over."""
        self.forget(instructions)
        self.instructions |= instructions
        self._send(instructions, here)

    def forget(self, agents: Iterable[int]) -> None:
        """What these agents were asked is over."""
        for agent in agents:
            for known in (self.instructions, self.answers, self.lost, self._marks):
                known.pop(agent, None)
            del self._failures[agent]

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

    def ask_again(self) -> Mapping[int, object]:
        """Whoever was restarted since it was asked has forgotten that it was; who is there."""
        here = self.transport.present()
        again = {i for i in self.open if i in here and here[i] != self._marks[i]}
        self.repeat(again, here, "are back")
        return here

    def repeat(self, agents: set[int], here: Mapping[int, object], why: str) -> None:
        """Send the same instructions once more."""

        def number(agent: int) -> int:
            return self.instructions[agent].round

        for round, some in groupby(sorted(agents, key=lambda i: (number(i), i)), number):
            self.log(f"round {round}: agents {list(some)} {why}; asking again")
        if agents:
            self._send(agents, here)

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

    def _send(self, agents: Iterable[int], here: Mapping[int, object]) -> None:
        # Those who may not answer are asked last.
        order = sorted(agents, key=lambda i: (self.silent[i] >= SILENT, i))
        self.sent += self.transport.send({i: self.instructions[i] for i in order})
        for agent in order:
            self._marks[agent] = here[agent]

    def _failed(self, agent: int, reason: str) -> None:
        here = self.transport.present()
        if here.get(agent) != self._marks[agent]:
            return  # it was stopped over it, and is asked again when it is back
        self._failures[agent] += 1
        if self._failures[agent] >= ATTEMPTS:
            self.lose({agent}, reason)
            return
        number = self.instructions[agent].round
        self.log(f"round {number}: agent {agent} failed ({shown(reason)}); asking again")
        self._send({agent}, here)
