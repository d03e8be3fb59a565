"""How runs are carried out: waves of agents on one device, several hosts together."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from fedrl.compilation import use_compilation_cache
from fedrl.errors import FedrlError

if TYPE_CHECKING:
    from fedrl.runs.run_directory import RunDirectory


@dataclass(frozen=True)
class Execution:
    """Changes no result, but on several hosts the last digits."""

    track: tuple[str, ...] = ()
    """Show the run there, too: tensorboard, wandb, mlflow (extras of those names)."""
    on_divergence: Literal["stop", "continue"] = "stop"
    """What to do when a reward, a loss, a parameter or a return is not a finite number."""
    wave: int | None = None
    """Agents that work side by side, the others wait their turn; as many as fit unless given."""
    hosts: int = 1
    """Machines that carry out the run together; the others run `fedrl join`."""
    address: str | None = None
    """Several hosts: where they meet, a name or number of this machine and a free port."""

    def carry_out(self, begin: "Callable[[], list[RunDirectory]]") -> int:
        """Begin runs, take them to their end one after the other, and compare them."""
        from fedrl.comparing import compare
        from fedrl.progress import new_console
        from fedrl.runs.launch import go_on
        from fedrl.runs.run import Run
        from fedrl.trackers.available import trackers_named

        trackers_named(self.track)  # before anything is made
        console, runs = new_console(), []
        with self._together():
            for directory in begin():
                if directory.finished:
                    done = f"{directory.path} is finished already"
                    console.print(done, highlight=False, soft_wrap=True)
                trackers = trackers_named(self.track)
                go_on(directory, console, trackers, self.wave, self.on_divergence)
                runs.append(Run(directory.path))
            compare(*runs)
        return 0

    def _together(self) -> AbstractContextManager[None]:
        """With all hosts, if there are several."""
        if (self.hosts > 1) != (self.address is not None):
            raise FedrlError("--hosts and --address go together: give both, or neither")
        use_compilation_cache()
        if self.address is None:
            return nullcontext()
        from fedrl.engine.hosts import leading

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
