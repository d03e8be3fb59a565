"""Episodes of Gymnasium's own simulators, and ours along the same states and actions."""

from typing import NamedTuple

import jax
import numpy as np


class Episode(NamedTuple):
    states: np.ndarray  # (steps + 1, 4)
    actions: np.ndarray
    observations: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray


def recorded(simulator, policy, seed, limit=500):
    """An episode of an unwrapped Gymnasium environment under `policy(state, rng)`."""
    rng = np.random.default_rng(seed)
    simulator.reset(seed=seed)
    states, steps = [simulator.state], []
    while len(steps) < limit and not (steps and steps[-1][3]):
        action = policy(simulator.state, rng)
        steps.append((action, *simulator.step(action)[:3]))
        states.append(simulator.state)
    return Episode(np.array(states), *(np.array(column) for column in zip(*steps, strict=True)))


def stepping(family):
    """One step of ours from each of many states: (after, observations, rewards, terminated)."""

    @jax.jit
    def from_every_state(states, actions, constants):
        after, rewards, terminated = jax.vmap(family.step, (0, 0, None))(states, actions, constants)
        return after, jax.vmap(family.observe)(after), rewards, terminated

    return from_every_state


def running(family):
    """Many steps of ours from one state: (states, rewards, terminated)."""

    @jax.jit
    def free_run(state, actions, constants):
        def step(state, action):
            after, reward, terminated = family.step(state, action, constants)
            return after, (after, reward, terminated)

        return jax.lax.scan(step, state, actions)[1]

    return free_run
