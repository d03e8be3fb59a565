"""Drones that hold their place in different winds: a family written for fedrl.

A planar drone (position, angle, and their speeds) feels the drag of the air that moves past it.
Nobody tells it the wind: to stay at the origin it has to lean against it by the right angle.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fedrl import FedrlError
from fedrl.families import ControlFamily, Varied

GRAVITY = 9.8
DRAG = 0.4  # force of a wind of 1 m/s on a drone of 1 kg
THRUST = 0.6  # how far the rotors can go above and below hovering, as a share of it
TURN = 20.0  # angular acceleration at full difference of the rotors
DAMPING = 3.0  # of turning, by the air
SECONDS_PER_STEP = 0.05
FURTHEST = 4.0
STEEPEST = 1.2


@dataclass(frozen=True)
class Drones(ControlFamily):
    """A planar drone that is to stay where it is, each in a steady wind of its own.

    Observation: position, speed, sine and cosine of the angle, angular speed. Reward: 1 at the
    origin, less with the distance; an episode ends far away or upside down. Theta: speed of the
    wind, positive to the right.
    """

    time_limit: int = 200
    """Steps of 0.05 seconds after which an episode is cut off."""
    wind: tuple[float, float] = (-8.0, 8.0)
    """Strongest wind to the left and to the right, in m/s; uniform."""
    controls: Literal["continuous", "discrete"] = "continuous"
    """Total thrust and difference of the rotors in [-1, 1], or 9 combinations of -1, 0 and 1."""

    name: ClassVar[str] = "drones"
    observation_size: ClassVar[int] = 7

    def __post_init__(self):
        super().__post_init__()
        self.settle_range("wind", (-15.0, 15.0))
        if self.controls not in ("continuous", "discrete"):
            raise FedrlError(f"family.controls is continuous or discrete, got {self.controls!r}")

    @property
    def continuous(self):
        return self.controls == "continuous"

    @property
    def actions(self):
        return 2 if self.continuous else 9

    @property
    def varied(self):
        return (Varied("wind", *self.wind, "speed of the wind", (-15.0, 15.0)),)

    def constants(self, theta):
        return theta[0]

    def reset(self, key):
        spread = jnp.array([1.0, 1.0, 0.5, 0.5, 0.2, 0.2])
        return jax.random.uniform(key, (6,), minval=-spread, maxval=spread)

    def step(self, state, action, wind):
        _, _, speed_x, speed_z, angle, spin = state
        lift, turn = action if self.continuous else (action // 3 - 1.0, action % 3 - 1.0)
        thrust = GRAVITY * (1 + THRUST * lift)
        rates = jnp.stack(
            [
                speed_x,
                speed_z,
                thrust * jnp.sin(angle) + DRAG * (wind - speed_x),
                thrust * jnp.cos(angle) - GRAVITY - DRAG * speed_z,
                spin,
                TURN * turn - DAMPING * spin,
            ]
        )
        after = state + SECONDS_PER_STEP * rates
        distance = jnp.hypot(after[0], after[1])
        lost = (distance > FURTHEST) | (jnp.abs(after[4]) > STEEPEST)
        return after, 1 - jnp.tanh(distance), lost

    def observe(self, state):
        x, z, speed_x, speed_z, angle, spin = state
        return jnp.stack([x, z, speed_x, speed_z, jnp.sin(angle), jnp.cos(angle), spin / 5])

    def draw(self, state, theta):
        from PIL import Image, ImageDraw

        size, scale = 300, 30  # pixels, and pixels in a metre
        picture = Image.new("RGB", (size, size), "white")
        pen = ImageDraw.Draw(picture)
        middle = size / 2
        pen.ellipse([middle - 4, middle - 4, middle + 4, middle + 4], outline="red")
        pen.line([20, 20, 20 + 5 * float(theta[0]), 20], fill="gray", width=3)
        x, z, angle = (float(state[i]) for i in (0, 1, 4))
        at = np.array([middle + scale * x, middle - scale * z])
        along = 14 * np.array([np.cos(angle), np.sin(angle)])
        pen.line([*(at - along), *(at + along)], fill="black", width=4)
        return np.asarray(picture)
