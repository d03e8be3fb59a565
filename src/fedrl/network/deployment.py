"""How a federation is run, and the folder it is run from.

DIR/
  experiment.toml, federation.toml   what is trained, and how
  inventory.md                       who runs what, and which folder goes where
  ca/                                the key that signs the server's certificate: keep it offline
  server/                            everything the server's machine needs, and the results
  agents/3/                          everything that agent 3's machine needs, and its private state
"""

import ipaddress
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from fedrl.arguments import Check, Positive, check_fields, whole, within
from fedrl.errors import FedrlError
from fedrl.experiment.toml import read_settings

if TYPE_CHECKING:
    from fedrl.network.experiments import AnyExperiment

LOOPBACK = "127.0.0.1"
Port = Annotated[int, Check(partial(whole, largest=65535))]
FromZero = Annotated[int, Check(partial(whole, smallest=0))]
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
EXPERIMENT, FEDERATION, AGENT = "experiment.toml", "federation.toml", "agent.toml"
# Where an agent keeps its private state; a file in it is there while its training is finished.
STATE, FINISHED = "state", "finished"


@dataclass(frozen=True)
class Deployment:
    """How a federation is run (`federation.toml`)."""

    host: str = LOOPBACK
    """Name or address at which agents reach the server; its certificate is for this one."""
    port: Port = 9443
    """Port at which agents reach the server."""
    control_port: Port = 9444
    """Port of the SuperLink, on the server's loopback only: whoever reaches it controls runs."""
    proxy: Literal["nginx", "none"] = "nginx"
    """What stands between agents and the SuperLink; `none` only where all run on one machine."""
    quorum: FromZero = 0
    """Valid answers that a round needs; 0: more than half of its agents."""
    deadline: Positive = 600.0
    """Seconds an agent has to answer; then the round goes on without it."""
    gathering: Positive = 60.0
    """Seconds to wait for all agents before the first round; then a quorum is enough."""
    patience: Positive = 600.0
    """Seconds to wait for enough agents to be there."""
    norm_bound: Annotated[float, within("a number, 0 or more", lambda x: 0 <= x < 1e30)] = 0.0
    """How far, in Euclidean norm, an answer may be from the model that was sent; 0: as far as E
    updates of the learner can carry it."""

    def __post_init__(self) -> None:
        check_fields(self, "")
        if not _is_host(self.host):
            raise FedrlError(
                "host must be the name or the IPv4 address at which agents reach the server, "
                f"without a port, got {self.host!r}"
            )
        if self.port == self.control_port:
            raise FedrlError(f"port and control_port are both {self.port}: they must differ")
        if self.proxy == "none" and not is_loopback(self.host):
            raise FedrlError(
                f'proxy = "none" would let anybody at {self.host} control the server: use nginx'
            )

    @property
    def address(self) -> str:
        """Where agents connect to."""
        return f"{self.host}:{self.port if self.proxy == 'nginx' else self.control_port}"


@dataclass(frozen=True)
class AgentSettings:
    """What an agent's owner says about it (`agent.toml`); none of it leaves the machine."""

    id: FromZero
    """Number of the agent, from 0."""
    server: str
    """host:port of the server."""
    theta: tuple[float, ...] = ()
    """Its environment, as the family describes it."""
    environment: str = ""
    """Instead of theta: a Gymnasium environment, by id or as module:function."""
    mdp: str = ""
    """Instead of theta, for tables: a NumPy file with the transition probabilities (S, A, S)."""

    def __post_init__(self) -> None:
        check_fields(self, "")
        if len(self.described) > 1:
            raise FedrlError(f"{' and '.join(self.described)} exclude each other: give one of them")

    @property
    def described(self) -> list[str]:
        """The settings that describe its environment: one at most."""
        return [name for name in ("theta", "environment", "mdp") if getattr(self, name)]


@dataclass(frozen=True)
class Folder:
    """Where things are in the folder of a federation."""

    path: Path

    @property
    def server(self) -> Path:
        return self.path / "server"

    @property
    def runs(self) -> Path:
        return self.server / "runs"

    @property
    def status(self) -> Path:
        return self.server / "status.json"

    def agent(self, number: int) -> Path:
        return self.path / "agents" / str(number)

    @property
    def agents(self) -> list[int]:
        """Agents whose folders are here."""
        found = (self.path / "agents").glob("[0-9]*")
        return sorted(int(path.name) for path in found if (path / AGENT).is_file())

    def deployment(self) -> Deployment:
        """The server's settings."""
        return read_settings(Deployment, self._there(self.server / FEDERATION))

    def experiment(self) -> "AnyExperiment":
        """What is trained."""
        # Here, because it needs JAX, and the processes that only start others do not.
        from fedrl.network.experiments import read_experiment

        # The owner of this machine has put the folder here: what it names may be imported.
        return read_experiment(self._there(self.server / EXPERIMENT), allow_code=True)

    def _there(self, file: Path) -> Path:
        if not file.is_file():
            raise FedrlError(
                f"{self.path} is not the folder of a federation, or not the server's part of it: "
                f"there is no {file}; `fedrl federation init {self.path}` makes one"
            )
        return file


def _is_host(host: str) -> bool:
    """Whether one could connect there, going by its looks; it gets into a certificate."""
    labels = host.split(".")
    if labels[-1].isdigit():
        try:
            return not ipaddress.IPv4Address(host).is_unspecified
        except ValueError:
            return False
    return len(host) < 254 and all(_LABEL.fullmatch(label) for label in labels)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
