"""The work that every peer does."""

import importlib
from dataclasses import dataclass
from typing import Any

ROBOTS = {"HalfCheetah-v5": (17, 6), "Hopper-v5": (11, 3)}
"""Numbers of an observation and of an action, by Gymnasium's name."""

CAPACITY = 100_000
LEARNING_STARTS = 1000
WARM_UP = LEARNING_STARTS + 100
"""Steps of each agent before the clock starts."""
LEARNING_RATE = 1e-3
GAMMA = 0.99
TAU = 5e-3
SIGMA = 0.1
TIME_LIMIT = 1000


@dataclass(frozen=True)
class Work:
    """What is trained, for how long, and on how many processes and threads."""

    robot: str
    hidden: tuple[int, ...]
    batch: int
    agents: int
    E: int
    seconds: float
    seed: int
    processes: int
    threads: int


def need(module: str) -> Any:
    """Import a module that the project itself does not depend on."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SystemExit(
            f"{module} is missing: "
            "pip install torch==2.13.0 stable-baselines3 'mujoco==3.17.*' imageio packaging"
        ) from error


def environment(work: Work) -> Any:
    """A Gymnasium environment; robots that differ would cost the same."""
    return need("gymnasium").make(
        work.robot, max_episode_steps=TIME_LIMIT, disable_env_checker=True
    )
