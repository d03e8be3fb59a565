"""The work that every peer does, and when parameters are averaged and the clock is started."""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

Array = np.ndarray[Any, Any]
Episode = tuple[int, float]
"""The step at which an episode ended, and its undiscounted return."""

OBSERVATION, ACTIONS = 4, 2
CAPACITY = 10_000
LEARNING_STARTS = 100
WARM_UP = 200
TARGET_INTERVAL = 10
LEARNING_RATE = 1e-3
GAMMA = 0.99
TIME_LIMIT = 200
EPSILON_FINAL, EPSILON_STEPS = 0.05, 1000


@dataclass(frozen=True)
class Work:
    """What is trained, and on how many processes and threads."""

    hidden: tuple[int, ...]
    batch: int
    agents: int
    E: int
    steps: int
    seed: int
    processes: int
    threads: int
    compiled: bool
    huber: bool


class Piece(NamedTuple):
    """Some steps of every agent, and what happens after them."""

    steps: int
    averages: bool
    starts_clock: bool


class Group(Protocol):
    """The agents that one process trains."""

    updates: int
    """Updates that each agent has made so far."""

    def advance(self, steps: int) -> None:
        """Every agent takes this many steps, one update after each once learning has started."""

    def parameters(self) -> list[Array]:
        """The online networks' parameters, each with a leading agent axis."""

    def load(self, means: list[Array]) -> None:
        """Every agent gets these online parameters; optimiser, replay and target stay."""

    def episodes(self) -> list[Episode]: ...


def pieces(work: Work) -> Iterator[Piece]:
    """The steps of a run, cut at every E-th update and where the clock starts."""
    rounds = range(LEARNING_STARTS + work.E, work.steps + 1, work.E)
    last = 0
    for now in sorted({WARM_UP, work.steps, *rounds}):
        yield Piece(now - last, now in rounds, now == WARM_UP)
        last = now


def epsilon(step: int) -> float:
    return max(EPSILON_FINAL, 1 - (1 - EPSILON_FINAL) * step / EPSILON_STEPS)


def half_lengths(agents: int) -> Array:
    """Half of each agent's pole length, which is what Gymnasium calls `length`."""
    return np.linspace(0.2, 1.8, agents) / 2


def need(module: str) -> Any:
    """Import a module that the project itself does not depend on."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SystemExit(
            f"{module} is missing: pip install torch==2.13.0 stable-baselines3"
        ) from error


def cart_pole(work: Work, agent: int) -> Any:
    """One agent's Gymnasium environment."""
    env = need("gymnasium").make(
        "CartPole-v1", max_episode_steps=TIME_LIMIT, disable_env_checker=True
    )
    physics = env.unwrapped
    physics.length = float(half_lengths(work.agents)[agent])
    physics.polemass_length = physics.masspole * physics.length
    return env
