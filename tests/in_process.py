"""A federation in one process: the real server loop and real agents, with Flower's bytes between
them, and no Flower.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict

from fedrl.errors import FedrlError
from fedrl.network import flower_records as records
from fedrl.network import server
from fedrl.network.agent_client import named
from fedrl.network.answering import Agent
from fedrl.network.asynchronous import server_for
from fedrl.network.deployment import AgentSettings, Deployment
from fedrl.network.kinds import agent_of, server_of
from fedrl.network.messages import Answer, Instruction, Refusal
from fedrl.network.record import Record


def flowers_bytes(content):
    """What Flower puts on the network for one of its records."""
    return recorddict_to_proto(content).SerializeToString()


def from_flowers_bytes(content):
    return recorddict_from_proto(RecordDict.FromString(content))


def to_agent(instruction: Instruction) -> tuple[Instruction, bytes]:
    """An instruction after the network, and what was on it: the same goes over the socket."""
    content = flowers_bytes(records.asking(instruction))
    return records.asked(from_flowers_bytes(content)), content


def to_server(answer: Answer) -> tuple[Answer, bytes]:
    """An answer after the network, and what was on it: the same goes over the socket."""
    content = flowers_bytes(records.telling(answer))
    return records.told(from_flowers_bytes(content)), content


class Exchange(NamedTuple):
    agent: int
    instruction: Instruction
    answer: Answer
    content: bytes


class InProcess:
    """The way to agents that answer at once; what comes can be changed, lost or delayed."""

    def __init__(self, agents: Mapping[int, Any]) -> None:
        self.agents = dict(agents)
        self.marks: dict[int, object] = dict.fromkeys(agents, "first")
        self.exchanges: list[Exchange] = []
        self.came: list[tuple[int, Answer | Refusal]] = []
        self.change: Callable[[int, Instruction, Answer], Answer | Refusal | None] | None = None
        """What comes instead of an agent's answer; None: nothing."""

    def present(self):
        return dict(self.marks)

    def send(self, instructions):
        self.came = [(agent, what) for agent, what in self.came if agent not in instructions]
        sent = 0
        for agent, instruction in instructions.items():
            asked, content = to_agent(instruction)
            sent += len(content)
            try:
                answer: Any = self.agents[agent].answer(asked)
                answer, content = to_server(answer)
                self.exchanges.append(Exchange(agent, asked, answer, content))
            except FedrlError as error:
                answer = Refusal(str(error))
            if self.change is not None:
                answer = self.change(agent, asked, answer)
            if answer is not None:
                self.came.append((agent, answer))
        return sent

    def receive(self):
        came, self.came = self.came, []
        return came, len(came)

    def asked(self, number):
        """The agents that were asked in a round, and for how much work."""
        return {x.agent: x.instruction.E for x in self.exchanges if x.instruction.round == number}


class Clock:
    """Time that passes only when somebody waits."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        self.waits = []
        """Called after each wait."""
        monkeypatch.setattr(server, "time", SimpleNamespace(sleep=self.sleep))

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        for wait in list(self.waits):
            wait()


def client_of(experiment, agent, **described):
    """An agent's client, as its owner describes it."""
    return agent_of(experiment, AgentSettings(agent, "server:1", **described), Path())


def agents_of(experiment, folder: Path):
    return {
        i: Agent(folder / f"agent {i}", client_of(experiment, i), experiment.digest)
        for i in range(experiment.agents)
    }


class Federation:
    """A server and agents below a folder; made again on the same folder, it goes on."""

    def __init__(self, experiment, folder: Path, agents=None, clock=None, **deployment):
        self.log: list[str] = []
        self.side = server_of(experiment)
        self.record = Record(folder / "runs", self.side, folder / "status.json")
        self.path = self.record.path
        self.transport = InProcess(agents_of(experiment, folder) if agents is None else agents)
        deployment = Deployment(**({"quorum": 1, "gathering": 0.01} | deployment))
        given = (self.side, self.transport, self.record, deployment, self.log.append)
        kind = server_for(self.side)
        self.server = kind(*given, **({} if clock is None else {"clock": clock}))

    @property
    def first(self):
        """The arrays that agents are sent first."""
        return named(self.side.begin().sent)

    def run(self):
        self.server.train()
        return self
