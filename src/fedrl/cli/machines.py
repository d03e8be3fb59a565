"""Where runs are carried out: waves of agents on one device, several hosts together."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Annotated

import tyro

from fedrl.compilation import use_compilation_cache


@dataclass(frozen=True)
class Machines:
    """Changes how fast a run is, and on several hosts the last digits of its results."""

    wave: int | None = None
    """Agents that work side by side, the others wait their turn; as many as fit unless given."""
    hosts: int = 1
    """Machines that carry out the run together; the others run `fedrl join`."""
    address: str | None = None
    """Several hosts: where they meet, a name or number of this machine and a free port."""

    def together(self) -> AbstractContextManager[None]:
        """With all hosts, if there are several."""
        from fedrl.errors import FedrlError

        if (self.hosts > 1) != (self.address is not None):
            raise FedrlError("--hosts and --address go together: give both, or neither")
        if self.address is None:
            return nullcontext()
        from fedrl.engine.hosts import leading

        use_compilation_cache()
        return leading(self.address, self.hosts)


@dataclass(frozen=True)
class Join:
    """Help another machine with its runs: `fedrl run ... --hosts 2 --address 10.0.0.1:9000`.

    Nothing is written here. It ends when the other machine has finished.
    """

    address: Annotated[str, tyro.conf.Positional]
    """Where the machines meet, as given there."""
    hosts: int
    """How many there are, as given there."""
    host: int
    """Which one this is: 1, 2, ...; the one that leads is 0."""

    def run(self) -> int:
        from fedrl.engine.hosts import follow

        use_compilation_cache()
        follow(self.address, self.hosts, self.host, print)
        return 0
