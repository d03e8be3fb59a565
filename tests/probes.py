"""Environments so small that the right Q-values are known without a computer."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.families.control_family import ControlFamily, Varied


@dataclass(frozen=True)
class Probe(ControlFamily):
    """One number is both state and observation; theta does nothing."""

    time_limit: int = 10

    name: ClassVar[str] = "probe"
    observation_size: ClassVar[int] = 1
    actions: ClassVar[int] = 2

    @property
    def varied(self):
        return (Varied("nothing", 1.0, 1.0, "no effect"),)

    @property
    def observation_bounds(self):
        return np.ones(1, np.float32)

    def constants(self, theta):
        return theta[0]

    def reset(self, key):
        return jnp.ones(1, jnp.float32)

    def observe(self, state):
        return state

    def draw(self, state, theta):
        raise NotImplementedError


@dataclass(frozen=True)
class ConstantReward(Probe):
    """Reward 1, and the episode is over: Q = 1."""

    def step(self, state, action, constants):
        return state, jnp.float32(1), jnp.bool_(True)


@dataclass(frozen=True)
class Choice(Probe):
    """Action 1 is right, action 0 is wrong, and the episode is over: Q = 1 and -1."""

    def step(self, state, action, constants):
        return state, jnp.where(action == 1, 1.0, -1.0), jnp.bool_(True)


@dataclass(frozen=True)
class Observed(Probe):
    """The observation, 1 or -1, is the reward, and the episode is over: Q = observation."""

    def reset(self, key):
        return jax.random.rademacher(key, (1,), jnp.float32)

    def step(self, state, action, constants):
        return state, state[0], jnp.bool_(True)


@dataclass(frozen=True)
class Delayed(Probe):
    """From -1 to 1 for nothing, from there to the end for 1: Q(1) = 1 and Q(-1) = gamma."""

    def reset(self, key):
        return -jnp.ones(1, jnp.float32)

    def step(self, state, action, constants):
        second = state[0] > 0
        return jnp.ones_like(state), jnp.where(second, 1.0, 0.0), second


@dataclass(frozen=True)
class Endless(Probe):
    """Reward 1 for ever, cut off after 3 steps: Q = 1 / (1 - gamma), as if it were not."""

    time_limit: int = 3

    def step(self, state, action, constants):
        return state, jnp.float32(1), jnp.bool_(False)


@dataclass(frozen=True)
class EndedOrCutOff(Observed):
    """Reward 1 whatever the action: once if 1 is seen, so Q = 1; for ever if -1 is, but cut off
    after 3 steps, so Q = 1 / (1 - gamma), as if it were not.
    """

    time_limit: int = 3

    continuous: ClassVar[bool] = True
    actions: ClassVar[int] = 1

    def step(self, state, action, constants):
        return state, jnp.float32(1), state[0] > 0


@dataclass(frozen=True)
class Aim(Observed):
    """The nearer to 0.3 the better if 1 is seen, to -0.3 if -1 is, and the episode is over."""

    continuous: ClassVar[bool] = True
    actions: ClassVar[int] = 1

    def step(self, state, action, constants):
        return state, -jnp.sum((action - 0.3 * state) ** 2), jnp.bool_(True)


@dataclass(frozen=True)
class Pendulum(Probe):
    """Gymnasium's Pendulum-v1 with its torque of up to 2 as an action of up to 1."""

    time_limit: int = 200

    observation_size: ClassVar[int] = 3
    actions: ClassVar[int] = 1
    continuous: ClassVar[bool] = True

    @property
    def observation_bounds(self):
        return np.array([1, 1, 8], np.float32)

    def reset(self, key):
        high = jnp.array([jnp.pi, 1.0])
        return jax.random.uniform(key, (2,), jnp.float32, -high, high)

    def step(self, state, action, constants):
        angle, spin = state
        torque = 2 * action[0]
        from_top = jnp.mod(angle + jnp.pi, 2 * jnp.pi) - jnp.pi
        cost = from_top**2 + 0.1 * spin**2 + 0.001 * torque**2
        spin = jnp.clip(spin + 0.05 * (15.0 * jnp.sin(angle) + 3.0 * torque), -8.0, 8.0)
        return jnp.stack([angle + 0.05 * spin, spin]), -cost, jnp.bool_(False)

    def observe(self, state):
        angle, spin = state
        return jnp.stack([jnp.cos(angle), jnp.sin(angle), spin])
