"""Single environments of the simulated families, for Gymnasium.

>>> import gymnasium
>>> env = gymnasium.make("fedrl.envs:fedrl/CartPole-v0", theta=0.5)
>>> observation, info = env.reset(seed=0)
>>> observation.shape
(4,)
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import logger, spaces
from gymnasium.error import ResetNeeded

from fedrl.arguments import choice
from fedrl.errors import FedrlError
from fedrl.families import Acrobots, CartPoles, ControlFamily, HalfCheetahs, Hoppers
from fedrl.families.control_family import Constants, State, numbers_of
from fedrl.files import Array

Theta = float | Sequence[float]
Action = np.int64 | Array

ENVIRONMENTS: dict[str, tuple[ControlFamily, Theta, int]] = {
    "fedrl/CartPole-v0": (CartPoles(time_limit=500), 1.0, 50),
    "fedrl/Acrobot-v0": (Acrobots(time_limit=500), 1.0, 15),
    "fedrl/HalfCheetah-v0": (HalfCheetahs(time_limit=1000), (0.145, 0.133), 20),
    "fedrl/Hopper-v0": (Hoppers(time_limit=1000), 0.04, 125),
}
"""By id: the family, the theta that is Gymnasium's, and pictures in a second.

An acrobot's theta may also be two numbers: mass and length."""


class FamilyEnv(gymnasium.Env[Array, Action]):
    """One environment of a family; the time limit is left to Gymnasium's wrapper."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012

    def __init__(
        self,
        family: ControlFamily,
        theta: Theta,
        *,
        render_mode: str | None = None,
        render_fps: int = 50,
    ) -> None:
        """`theta` as the family describes it."""
        if render_mode is not None:
            choice("render_mode", render_mode, tuple(self.metadata["render_modes"]))
        self.family = family
        self.theta = family.check_theta(theta)
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": render_fps}
        bounds = family.observation_bounds
        self.observation_space = spaces.Box(-bounds, bounds, dtype=np.float32)
        self.action_space: spaces.Space[Any] = (
            spaces.Box(-1.0, 1.0, (family.actions,), np.float32)
            if family.continuous
            else spaces.Discrete(family.actions)
        )
        self._cpu = jax.local_devices(backend="cpu")[0]
        with jax.default_device(self._cpu):
            self._constants = jax.device_put(family.constants(jnp.asarray(self.theta)), self._cpu)
        self._state: State | None = None
        self._terminated = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start an episode; there are no options."""
        super().reset(seed=seed)
        # A step of one environment is too little work to be worth a trip to an accelerator.
        with jax.default_device(self._cpu):
            key = jax.random.key(int(self.np_random.integers(2**31)))
        self._state, observation = _reset(self.family, jax.device_put(key, self._cpu))
        self._terminated = False
        return np.array(observation), {}

    def step(self, action: Action) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        if self._state is None or self._terminated:
            raise ResetNeeded("the episode has not started or is over: call reset() before step()")
        self._state, observation, reward, terminated = _step(
            self.family, self._state, self._checked(action), self._constants
        )
        self._terminated = bool(terminated)
        return np.array(observation), float(reward), self._terminated, False, {}

    def _checked(self, action: Action) -> Array:
        n = self.family.actions
        if self.family.continuous:
            vector = numbers_of(action)
            if vector.shape != (n,) or not (np.abs(vector) <= 1).all():
                raise FedrlError(f"action must be {n} numbers from -1 to 1, got {action!r}")
            return vector
        if not self.action_space.contains(action):
            raise FedrlError(f"action must be an integer from 0 to {n - 1}, got {action!r}")
        return np.asarray(action, np.int32)

    def render(self) -> Array | None:
        """A picture of the state, or None (and a warning) without a render mode."""
        if self.render_mode is None:
            logger.warn('nothing is rendered: make the environment with render_mode="rgb_array"')
            return None
        if self._state is None:
            raise ResetNeeded("there is no state to render yet: call reset() before render()")
        return self.family.draw(np.asarray(self._state), self.theta)


# The family is static and theta is not: environments that differ in theta share one compilation.
@partial(jax.jit, static_argnums=0)
def _reset(family: ControlFamily, key: jax.Array) -> tuple[State, jax.Array]:
    state = family.reset(key)
    return state, family.observe(state)


@partial(jax.jit, static_argnums=0)
def _step(
    family: ControlFamily, state: State, action: Array, constants: Constants
) -> tuple[State, jax.Array, jax.Array, jax.Array]:
    after, reward, terminated = family.step(state, jnp.asarray(action), constants)
    return after, family.observe(after), reward, terminated


def make(environment: str, theta: Theta, render_mode: str | None = None) -> FamilyEnv:
    """One of `ENVIRONMENTS`, by its id."""
    family, _, fps = ENVIRONMENTS[environment]
    if isinstance(family, Acrobots) and np.asarray(theta, dtype=object).size == 2:
        family = replace(family, length=(0.5, 1.5))
    return FamilyEnv(family, theta, render_mode=render_mode, render_fps=fps)


def register() -> None:
    """Make the environments known to Gymnasium; importing this module does so."""
    for id, (family, theta, _) in ENVIRONMENTS.items():
        if id not in gymnasium.registry:
            given = {"environment": id, "theta": theta}
            gymnasium.register(
                id, "fedrl.envs:make", max_episode_steps=family.time_limit, kwargs=given
            )


register()
