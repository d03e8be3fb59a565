"""The work that every peer does: DDPG on robots."""

from typing import Any

from benchmarks.peers.group import Work, need

ROBOTS = {"HalfCheetah-v5": (17, 6), "Hopper-v5": (11, 3)}
"""Numbers of an observation and of an action, by Gymnasium's name."""

CAPACITY = 100_000
LEARNING_STARTS = 1000
LEARNING_RATE = 1e-3
GAMMA = 0.99
TAU = 5e-3
SIGMA = 0.1
TIME_LIMIT = 1000


def environment(work: Work) -> Any:
    """A Gymnasium environment; robots that differ would cost the same."""
    return need("gymnasium").make(
        work.robot, max_episode_steps=TIME_LIMIT, disable_env_checker=True
    )
