"""What robots have in common: Gymnasium's models with edited bodies, on the host or on a device.

A state is an array (parts, positions + velocities + the solver's warm start). MuJoCo on the host
computes with 64 bits, of which JAX keeps none by default: there a number is the sum of three parts
of 32 bits, to the last bit. MJX computes with 32 bits and has one part.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from math import inf
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.arguments import Check, whole
from fedrl.families.control_family import Constants, ControlFamily, State, Stepped
from fedrl.families.robots.models import nominal
from fedrl.families.robots.rendering import picture
from fedrl.files import Array

if TYPE_CHECKING:
    import mujoco

Iterations = Annotated[int, Check(partial(whole, largest=100))]


@dataclass(frozen=True)
class RobotFamily(ControlFamily):
    """Robots of one kind with different bodies; actions are torques in [-1, 1]."""

    time_limit: int = 1000
    """Steps after which an episode is cut off (truncated, not terminated)."""
    simulator: Literal["mujoco", "mjx"] = "mujoco"
    """Who computes the physics: MuJoCo in C on the host, or MJX on the device JAX uses."""

    mjx_iterations: Iterations = 6
    """Most steps of MJX's contact solver; MuJoCo takes what it needs, which is seldom more."""
    mjx_line_search: Iterations = 4
    """Most steps of the search along a line within each."""

    continuous: ClassVar[bool] = True
    asset: ClassVar[str]
    """Gymnasium's file of the nominal robot."""
    frame_skip: ClassVar[int]
    """Steps of the physics for one of the environment."""
    joints: ClassVar[int]
    """Positions, and as many velocities."""
    fastest_seen: ClassVar[float] = inf
    """Velocities beyond are observed as this."""

    @property
    def steps_on_host(self) -> bool:  # type: ignore[override]
        return self.simulator == "mujoco"

    @abstractmethod
    def edit(self, spec: "mujoco.MjSpec", theta: tuple[float, ...]) -> None:
        """Give the robot its body; mass and inertia follow when the model is compiled."""

    @abstractmethod
    def reset_noise(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """How first positions and velocities differ from the nominal ones."""

    @abstractmethod
    def outcome(self, x_speed: Any, qpos: Any, qvel: Any, action: Any, xp: Any) -> tuple[Any, Any]:
        """(reward, terminated) after a step, of one robot or many; `xp` is numpy or jax.numpy."""

    @property
    def state_shape(self) -> tuple[int, int]:
        return self._simulation.PARTS, 3 * self.joints

    def constants(self, theta: jax.Array) -> Constants:
        return self._simulation.constants(self, theta)

    def reset(self, key: jax.Array) -> State:
        qpos, qvel = self.reset_noise(key)
        first = jnp.concatenate(
            [qpos + nominal(self).qpos0.astype(np.float32), qvel, jnp.zeros(self.joints)]
        )
        return jnp.zeros(self.state_shape).at[0].set(first)

    def step(self, state: State, action: jax.Array, constants: Constants) -> Stepped:
        stepped: Stepped = self._simulation.step(self, state, action, constants)
        return stepped

    def observe(self, state: State) -> jax.Array:
        """All positions but the first, which is how far the robot has come, and velocities."""
        n, fastest = self.joints, self.fastest_seen
        velocity = jnp.clip(state[0, n : 2 * n], -fastest, fastest)
        return jnp.concatenate([state[0, 1:n], velocity])

    def draw(self, state: Array, theta: Array) -> Array:
        return picture(self, state[0].astype(np.float64), tuple(map(float, theta)))

    @property
    def _simulation(self) -> ModuleType:
        # When it is needed: both import MuJoCo, an extra.
        if self.simulator == "mujoco":
            from fedrl.families.robots import host

            return host
        from fedrl.families.robots import on_device

        return on_device
