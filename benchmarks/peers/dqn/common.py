"""The work that every peer does: DQN on CartPoles of different lengths."""

from typing import Any

import numpy as np

from benchmarks.peers.group import Array, Work, need

OBSERVATION, ACTIONS = 4, 2
CAPACITY = 10_000
LEARNING_STARTS = 100
TARGET_INTERVAL = 10
LEARNING_RATE = 1e-3
GAMMA = 0.99
TIME_LIMIT = 200
EPSILON_FINAL, EPSILON_STEPS = 0.05, 1000


def epsilon(step: int) -> float:
    return max(EPSILON_FINAL, 1 - (1 - EPSILON_FINAL) * step / EPSILON_STEPS)


def half_lengths(agents: int) -> Array:
    """Half of each agent's pole length, which is what Gymnasium calls `length`."""
    return np.linspace(0.2, 1.8, agents) / 2


def cart_pole(work: Work, agent: int) -> Any:
    """One agent's Gymnasium environment."""
    env = need("gymnasium").make(
        "CartPole-v1", max_episode_steps=TIME_LIMIT, disable_env_checker=True
    )
    physics = env.unwrapped
    physics.length = float(half_lengths(work.agents)[agent])
    physics.polemass_length = physics.masspole * physics.length
    return env
