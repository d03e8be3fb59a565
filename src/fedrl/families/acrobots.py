"""Acrobots: Gymnasium's Acrobot-v1 with first links of different masses and lengths."""

from dataclasses import dataclass
from math import pi
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.families.control_family import ControlFamily, Range, State, Stepped, Varied
from fedrl.families.drawing import draw_acrobot
from fedrl.files import Array

GRAVITY = 9.8
# The second link: the same in every environment.
MASS_2 = 1.0
LENGTH_2 = 1.0
CENTRE_2 = LENGTH_2 / 2
INERTIA = 1.0  # of either link about its centre of mass
SECONDS_PER_STEP = 0.2
FASTEST = (4 * pi, 9 * pi)

# The four numbers of a state, apart: stacking them before every evaluation of the equations would
# keep XLA from making one kernel of the whole step.
Motion = tuple[jax.Array, ...]


class AcrobotConstants(NamedTuple):
    """The three numbers in which the first link enters the equations of motion."""

    inertia: jax.Array
    """About the fixed joint, when the links are at right angles."""
    coupling: jax.Array
    """Mass of link 2 times the length of link 1 times the distance of link 2's centre."""
    weight: jax.Array
    """Torque of link 1, and link 2 hanging at its end, when link 1 is horizontal."""


@dataclass(frozen=True)
class Acrobots(ControlFamily):
    """Two links on a fixed joint, swung up by a torque of -1, 0 or 1 between them, reward -1.

    State: angle of link 1 (0 hangs down), angle of link 2 relative to it, their speeds. The
    observation has cosine and sine of the angles. The episode ends, with reward 0, when
    -cos(angle 1) - cos(angle 1 + angle 2) > 1, whatever the lengths. The moments of inertia stay at
    1, as in Gymnasium, whatever mass and length are. Theta is (mass,) or (mass, length) of link 1;
    1.0 is Gymnasium's.
    """

    time_limit: int = 500
    """Steps after which an episode is cut off (truncated, not terminated)."""
    mass: Range = (0.5, 1.5)
    """Smallest and largest mass of link 1; uniform."""
    length: Range | None = None
    """Shortest and longest link 1, its centre of mass in the middle; uniform. None: always 1."""

    name: ClassVar[str] = "acrobots"
    observation_size: ClassVar[int] = 6
    actions: ClassVar[int] = 3

    @property
    def varied(self) -> tuple[Varied, ...]:
        mass = Varied("mass", *self.mass, "mass of link 1")
        if self.length is None:
            return (mass,)
        return (mass, Varied("length", *self.length, "length of link 1"))

    @property
    def observation_bounds(self) -> Array:
        return np.array([1, 1, 1, 1, *FASTEST], np.float32)

    def constants(self, theta: jax.Array) -> AcrobotConstants:
        mass = theta[0]
        length = theta[1] if self.length is not None else jnp.ones_like(mass)
        centre = length / 2
        inertia = mass * centre**2 + MASS_2 * (length**2 + CENTRE_2**2) + 2 * INERTIA
        weight = GRAVITY * (mass * centre + MASS_2 * length)
        return AcrobotConstants(inertia, MASS_2 * length * CENTRE_2, weight)

    def reset(self, key: jax.Array) -> State:
        """All four uniform on [-0.1, 0.1]."""
        return jax.random.uniform(key, (4,), jnp.float32, -0.1, 0.1)

    def step(self, state: State, action: jax.Array, constants: AcrobotConstants) -> Stepped:
        """A Runge-Kutta step of fourth order; then angles in [-pi, pi] and speeds within bounds."""
        torque = jnp.asarray(action - 1, state.dtype)
        angle_1, angle_2, *spins = _runge_kutta(tuple(state), torque, constants)
        angle_1, angle_2 = _wrapped(angle_1), _wrapped(angle_2)
        spins = [jnp.clip(spin, -most, most) for spin, most in zip(spins, FASTEST, strict=True)]
        after = jnp.stack([angle_1, angle_2, *spins])
        terminated = -jnp.cos(angle_1) - jnp.cos(angle_1 + angle_2) > 1
        return after, jnp.where(terminated, 0.0, -1.0).astype(state.dtype), terminated

    def observe(self, state: State) -> jax.Array:
        cos, sin = jnp.cos(state[:2]), jnp.sin(state[:2])
        return jnp.stack([cos[0], sin[0], cos[1], sin[1], state[2], state[3]])

    def draw(self, state: Array, theta: Array) -> Array:
        length = float(theta[1]) if self.length is not None else 1.0
        return draw_acrobot(float(state[0]), float(state[1]), float(theta[0]), length)


def _runge_kutta(start: Motion, torque: jax.Array, constants: AcrobotConstants) -> Motion:
    """The classical method of order four, one step."""

    def rates(seconds: float, before: Motion) -> Motion:
        return _derivative(_moved(start, seconds, before), torque, constants)

    k1 = _derivative(start, torque, constants)
    k2 = rates(SECONDS_PER_STEP / 2, k1)
    k3 = rates(SECONDS_PER_STEP / 2, k2)
    k4 = rates(SECONDS_PER_STEP, k3)
    mean = tuple((a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True))
    return _moved(start, SECONDS_PER_STEP, mean)


def _moved(start: Motion, seconds: float, rates: Motion) -> Motion:
    """Where constant rates of change lead."""
    return tuple(x + seconds * rate for x, rate in zip(start, rates, strict=True))


def _wrapped(angle: jax.Array) -> jax.Array:
    """The same angle in [-pi, pi]; one that lies there already stays as it is, to the last bit."""
    return angle - 2 * pi * jnp.round(angle / (2 * pi))


def _derivative(motion: Motion, torque: jax.Array, constants: AcrobotConstants) -> Motion:
    """Rates of change: mass matrix times angular accelerations = the torques on the joints."""
    angle_1, angle_2, spin_1, spin_2 = motion
    bend = constants.coupling * jnp.cos(angle_2)
    # The symmetric mass matrix is ((m11, m12), (m12, m22)).
    m11 = constants.inertia + 2 * bend
    m22 = MASS_2 * CENTRE_2**2 + INERTIA
    m12 = m22 + bend
    swirl = constants.coupling * jnp.sin(angle_2)
    fall_2 = GRAVITY * MASS_2 * CENTRE_2 * jnp.sin(angle_1 + angle_2)
    fall_1 = constants.weight * jnp.sin(angle_1) + fall_2
    torque_1 = swirl * spin_2 * (2 * spin_1 + spin_2) - fall_1
    torque_2 = torque - swirl * spin_1**2 - fall_2
    determinant = m11 * m22 - m12**2
    spin_rate_1 = (m22 * torque_1 - m12 * torque_2) / determinant
    spin_rate_2 = (m11 * torque_2 - m12 * torque_1) / determinant
    return spin_1, spin_2, spin_rate_1, spin_rate_2
