"""What every peer is given and gives."""

import importlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]
Episode = tuple[int, float]
"""The step at which an episode ended, and its undiscounted return."""


@dataclass(frozen=True)
class Work:
    """What is trained, for how long, and on how many processes and threads."""

    hidden: tuple[int, ...]
    batch: int
    agents: int
    E: int
    """Updates between two averages."""
    learning_starts: int
    """Steps of each agent before its first update."""
    seconds: float
    """That the clock runs."""
    processes: int
    threads: int
    """Of each process."""
    seed: int = 0
    robot: str = ""
    """Gymnasium's name; CartPoles otherwise."""
    compiled: bool = True
    """stacked: with `torch.compile`."""
    huber: bool = False
    """sb3: with its own loss."""


class Group(Protocol):
    """The agents that one process trains."""

    updates: int
    """Updates that each agent has made so far."""

    def advance(self, steps: int) -> None:
        """Every agent takes this many steps, one update after each once learning has started."""

    def parameters(self) -> list[Array]:
        """What is averaged, each with a leading agent axis; nothing if nothing is."""

    def load(self, means: list[Array]) -> None:
        """Every agent gets these parameters; optimiser, replay and target stay."""

    def episodes(self) -> list[Episode]:
        """Those that have ended."""


def need(module: str) -> Any:
    """Import a module that the project itself does not depend on."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SystemExit(
            f"{module} is missing: make .venv-peers/ready, or .venv-jaxpeers/ready for rejax"
        ) from error


def torch_for(work: Work) -> Any:
    """PyTorch with as many threads as the work says."""
    torch = need("torch")
    torch.set_num_threads(work.threads)
    return torch
