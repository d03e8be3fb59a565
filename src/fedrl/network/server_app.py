"""The ServerApp: our rounds, with Flower as the way to the agents."""

import json
import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from flwr.app import Context, Message, MessageType
from flwr.serverapp import Grid, ServerApp

from fedrl.errors import FedrlError
from fedrl.network.asynchronous import server_for
from fedrl.network.deployment import Folder
from fedrl.network.flower_records import asking, size, told
from fedrl.network.kinds import server_of
from fedrl.network.messages import Answer, Instruction, Refusal
from fedrl.network.processes import leave_with
from fedrl.network.record import Record
from fedrl.network.serve import NODES, SERVER, TRACK
from fedrl.network.validation import shown
from fedrl.trackers.available import trackers_named

# Who is there is asked at most so often, in seconds.
LOOK = 1.0
# What nobody has fetched so many seconds after the deadline is thrown away: whoever was away then
# is not to begin with rounds that are over.
LATE = 5.0

app = ServerApp()


class FlowerTransport:
    """Messages to SuperNodes, which are known by the keys they were registered with."""

    def __init__(self, grid: Grid, agents: Mapping[int, int], deadline: float) -> None:
        """`agents` says which agent a node is, by node id."""
        self._grid, self._agents, self._deadline = grid, agents, deadline
        self._nodes = {agent: node for node, agent in agents.items()}
        self._waiting: dict[str, int] = {}
        self._looked = -LOOK
        self._present: dict[int, object] = {}

    def present(self) -> Mapping[int, object]:
        if time.monotonic() - self._looked >= LOOK:
            self._looked = time.monotonic()
            self._present = {
                self._agents[node.node_id]: getattr(node, "last_activated_at", "")
                for node in self._grid.get_nodes()
                if node.node_id in self._agents
            }
        return self._present

    def send(self, instructions: Mapping[int, Instruction]) -> int:
        again = set(instructions)
        self._waiting = {key: who for key, who in self._waiting.items() if who not in again}
        messages, sent = [], 0
        for agent, instruction in instructions.items():
            records = asking(instruction)
            sent += size(records)
            messages.append(
                Message(
                    records,
                    dst_node_id=self._nodes[agent],
                    message_type=MessageType.TRAIN,
                    group_id=str(instruction.round),
                    ttl=self._deadline + LATE,
                )
            )
        keys = list(self._grid.push_messages(messages))
        self._waiting |= dict(zip(keys, instructions, strict=True))
        return sent

    def receive(self) -> tuple[list[tuple[int, Answer | Refusal]], int]:
        came: list[tuple[int, Answer | Refusal]] = []
        received = 0
        for message in self._grid.pull_messages(list(self._waiting)):
            agent = self._waiting.pop(message.metadata.reply_to_message_id, None)
            if agent is None:
                continue
            if message.has_error():
                self._looked = -LOOK  # it may have gone: look again
                came.append((agent, Refusal(_in_short(message.error.reason))))
                continue
            received += size(message.content)
            try:
                came.append((agent, told(message.content)))
            except FedrlError as error:
                came.append((agent, Refusal(str(error))))
        return came, received


def _in_short(reason: str | None) -> str:
    """What an agent says, without Flower's wrapping of our errors."""
    wrapped = re.fullmatch(r"<class 'fedrl\.errors\.FedrlError'>:<'(.*)'>", str(reason), re.DOTALL)
    return shown(wrapped[1] if wrapped else str(reason))


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train until the experiment is finished; `server` in the run's settings is our folder."""
    # Flower's programs would wait for ever for a server that was killed.
    if SERVER in os.environ:
        leave_with(int(os.environ[SERVER]))
    folder = Folder(Path(str(context.run_config["server"])).parent)
    log = _log(folder.server / "server.log")
    deployment = folder.deployment()
    side = server_of(folder.experiment())
    nodes = json.loads((folder.server / NODES).read_text())
    agents = {int(node): int(agent) for node, agent in nodes.items()}
    record = Record(folder.runs, side, folder.status)
    transport = FlowerTransport(grid, agents, deployment.deadline)
    trackers = trackers_named(os.environ.get(TRACK, "").split())
    try:
        with record.tracked(trackers, log):
            server_for(side)(side, transport, record, deployment, log).train()
    except Exception as error:
        log(f"the training ends: {error}")
        record.failed(str(error) if isinstance(error, FedrlError) else repr(error))
        raise


def _log(file: Path) -> Callable[[str], None]:
    """A logger of lines, to a file that people can follow."""
    logger = logging.getLogger("fedrl.server")
    logger.setLevel(logging.INFO)
    handler = logging.FileHandler(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    return logger.info
