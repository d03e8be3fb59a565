"""CartPoles: Gymnasium's CartPole-v1 with poles of different lengths."""

from dataclasses import dataclass
from functools import partial
from math import inf, pi
from typing import Annotated, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.arguments import Check
from fedrl.families.control_family import ControlFamily, Range, State, Stepped, Varied, interval
from fedrl.families.drawing import draw_cart_pole
from fedrl.files import Array

GRAVITY = 9.8
CART_MASS = 1.0
POLE_MASS = 0.1
FORCE = 10.0
SECONDS_PER_STEP = 0.02
FURTHEST = 2.4
STEEPEST = 12 * pi / 180
WIRING = (-1.0, 1.0)
Wiring = Annotated[tuple[float, float], Check(partial(interval, possible=WIRING))]


class CartPoleConstants(NamedTuple):
    """What follows from the length of the pole, whose mass stays the same, and the wiring."""

    half_length: jax.Array
    mass_times_half_length: jax.Array
    total_mass: jax.Array
    force: jax.Array
    """What action 1 does; action 0 does the opposite."""


@dataclass(frozen=True)
class CartPoles(ControlFamily):
    """A cart that is pushed left (0) or right (1) to keep a pole upright, reward 1 per step.

    State and observation: position, speed, angle of the pole (0 is upright), angular speed. The
    episode ends beyond 2.4 to either side or at more than 12 degrees. Theta is the pole's full
    length; 1.0 is Gymnasium's pole. Carts may also be wired differently: theta then has a second
    number, and where it is negative left and right are exchanged. No single policy is good for both
    kinds.
    """

    time_limit: int = 200
    """Steps after which an episode is cut off (truncated, not terminated)."""
    length: Range = (0.2, 1.8)
    """Shortest and longest pole, end to end (Gymnasium's `length` is half of it); uniform."""
    wiring: Wiring = (1.0, 1.0)
    """Range of the wiring, uniform; (-1, 1): every second cart is wired the other way round."""

    name: ClassVar[str] = "cartpoles"
    observation_size: ClassVar[int] = 4
    actions: ClassVar[int] = 2

    @property
    def varied(self) -> tuple[Varied, ...]:
        length = Varied("length", *self.length, "full length of the pole")
        if self.wiring == (1.0, 1.0):
            return (length,)
        what = "negative: left and right are exchanged"
        return (length, Varied("wiring", *self.wiring, what, WIRING))

    @property
    def observation_bounds(self) -> Array:
        """Twice the limits, so that they hold for the last observation too.

        A pole under about 0.1 can turn by more than that within a step.
        """
        return np.array([2 * FURTHEST, inf, 2 * STEEPEST, inf], np.float32)

    def constants(self, theta: jax.Array) -> CartPoleConstants:
        half_length = theta[0] / 2
        total_mass = jnp.full_like(half_length, CART_MASS + POLE_MASS)
        wired = theta[1] if len(self.varied) > 1 else jnp.ones_like(half_length)
        force = jnp.where(wired < 0, -FORCE, FORCE).astype(half_length.dtype)
        return CartPoleConstants(half_length, POLE_MASS * half_length, total_mass, force)

    def reset(self, key: jax.Array) -> State:
        """All four uniform on [-0.05, 0.05]."""
        return jax.random.uniform(key, (4,), jnp.float32, -0.05, 0.05)

    def step(self, state: State, action: jax.Array, constants: CartPoleConstants) -> Stepped:
        """An Euler step; the last step of an episode is rewarded as well."""
        force = jnp.where(action == 1, constants.force, -constants.force)
        after = state + SECONDS_PER_STEP * _derivative(state, force, constants)
        terminated = (jnp.abs(after[0]) > FURTHEST) | (jnp.abs(after[2]) > STEEPEST)
        return after, jnp.ones((), state.dtype), terminated

    def observe(self, state: jax.Array) -> jax.Array:
        return state

    def draw(self, state: Array, theta: Array) -> Array:
        return draw_cart_pole(float(state[0]), float(state[2]), float(theta[0]))


def _derivative(state: State, force: jax.Array, constants: CartPoleConstants) -> State:
    """Rates of change: a uniform rod, hinged on a cart without friction."""
    half_length, mass_times_half_length, total_mass, _ = constants
    _, speed, angle, spin = state
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    # As if the pole did not turn faster or slower; then what its turning does to the cart.
    push = (force + mass_times_half_length * spin**2 * sin) / total_mass
    spin_rate = (GRAVITY * sin - push * cos) / (
        half_length * (4 / 3 - POLE_MASS * cos**2 / total_mass)
    )
    acceleration = push - mass_times_half_length * spin_rate * cos / total_mass
    return jnp.stack([speed, acceleration, spin, spin_rate])
