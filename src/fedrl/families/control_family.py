"""Families whose environments are simulated by pure JAX functions, one constant set per theta.

A family holds no environment: `constants(theta)` gives every number the physics needs, and comes in
with every step, so n different environments are one `vmap` and nothing derived can be stale.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fedrl import arguments
from fedrl.counting import count
from fedrl.errors import FedrlError
from fedrl.files import Array
from fedrl.keys import numbered
from fedrl.registry import Group

# A counter of steps is 32 bits wide.
MOST_STEPS = 2**31 - 1
# Smallest and largest positive number that a constant can be.
POSITIVE = (1e-30, 1e30)

State = Any
"""A tree of arrays; for most families a single vector."""
Constants = Any
Stepped = tuple[State, jax.Array, jax.Array]
"""(next state, reward, terminated) of one step."""
Renewed = tuple[State, jax.Array, jax.Array, jax.Array, State]
"""(next state, reward, terminated, cut off before the time limit, the next episode's start)."""


def stretched(action: Array, low: Array, high: Array) -> Array:
    """An action in [-1, 1] as one between these bounds."""
    within: Array = np.clip(low + (action + 1) / 2 * (high - low), low, high)
    return within.astype(low.dtype)


def numbers_of(given: object) -> Array:
    """Numbers in 32 bits; what is none becomes NaN, and what is too large infinite."""
    try:
        with np.errstate(over="ignore"):
            return np.asarray(given, np.float32)
    except (TypeError, ValueError):
        return np.full(1, np.nan, np.float32)


def without_idle(active: jax.Array, state: State) -> State:
    """States, those that need not be simulated replaced by what is no number.

    `active` has the first axes of every leaf. A host leaves out such states.
    """

    def of_active(leaf: jax.Array) -> jax.Array:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        axes = (*active.shape, *(1,) * (leaf.ndim - active.ndim))
        return jnp.where(active.reshape(axes), leaf, jnp.nan)

    return jax.tree.map(of_active, state)


def interval(
    name: str, value: Any, possible: tuple[float, float] = POSITIVE
) -> tuple[float, float]:
    """The range of a varied constant, within what is possible."""
    smallest, largest = possible
    ends = f"from {smallest:g} to {largest:g}"
    numbers = "two positive numbers below 1e30" if possible == POSITIVE else f"two numbers {ends}"
    allowed = f"{numbers}, the smaller one first"
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise FedrlError(f"{name} must be two numbers, got {value!r}")
    low, high = (
        arguments.number(name, x, allowed, lambda x: smallest <= x <= largest) for x in value
    )
    if low > high:
        raise FedrlError(f"{name} must be {allowed}, got {value!r}")
    return low, high


Range = Annotated[tuple[float, float], arguments.Check(interval)]
"""In a family's settings: the range of a varied constant that is positive."""


@dataclass(frozen=True)
class Varied:
    """A constant that differs between the environments of a family, uniform on [low, high]."""

    name: str
    low: float
    high: float
    what: str
    possible: tuple[float, float] = POSITIVE
    """Smallest and largest value that makes sense; unless said, any positive number."""

    @property
    def allowed(self) -> str:
        if self.possible == POSITIVE:
            return f"{self.name}, positive"
        return "{} from {:g} to {:g}".format(self.name, *self.possible)

    def allows(self, value: float) -> bool:
        return self.possible[0] <= value <= self.possible[1]


@dataclass(frozen=True)
class ControlFamily(ABC):
    """Environments with one observation space, one set of actions and one reward."""

    registered_in: ClassVar[Group] = "families"
    name: ClassVar[str]
    observation_size: ClassVar[int]
    actions: ClassVar[int]
    """How many there are; if `continuous`, of how many numbers in [-1, 1] one consists."""
    continuous: ClassVar[bool] = False
    first_action: ClassVar[int] = 0
    """The number that environments give to the first of several actions."""
    action_bounds: ClassVar[tuple[Array, Array] | None] = None
    """Where environments want continuous actions, if not in [-1, 1]."""
    steps_on_host: ClassVar[bool] = False
    """Whether every step is a call out of the compiled program, to the cores."""
    keeps_environments: ClassVar[bool] = False
    """Whether environments are objects on the host, and a state only names one of them."""

    time_limit: arguments.Count
    """Steps after which an episode is cut off (truncated, not terminated)."""

    def __post_init__(self) -> None:
        arguments.check_fields(self, "family")

    def translated(self, action: Array) -> Array:
        """A policy's action as environments outside want it."""
        if not self.continuous:
            return action + self.first_action
        if self.action_bounds is None:
            return action
        return stretched(action, *self.action_bounds)

    @property
    def remembered(self) -> tuple[int, int]:
        """Numbers of an observation and of an action, as transitions are remembered."""
        return self.observation_size, self.actions if self.continuous else 1

    @property
    @abstractmethod
    def varied(self) -> tuple[Varied, ...]:
        """What theta consists of, in order."""

    @property
    def observation_bounds(self) -> Array:
        """Largest size of every component of an observation, to either side of 0."""
        return np.full(self.observation_size, np.inf, np.float32)

    def settle_range(self, field: str, possible: tuple[float, float] = POSITIVE) -> None:
        """Check a field that holds the range of a varied constant."""
        checked = interval(f"family.{field}", getattr(self, field), possible)
        arguments.settle(self, **{field: checked})

    def sample(self, key: jax.Array, n: int) -> jax.Array:
        """n thetas, (n, number of varied constants); the first few do not depend on n."""
        low = jnp.array([varied.low for varied in self.varied], jnp.float32)
        high = jnp.array([varied.high for varied in self.varied], jnp.float32)
        draw = partial(jax.random.uniform, shape=low.shape, minval=low, maxval=high)
        thetas: jax.Array = jax.vmap(draw)(numbered(key, n))
        return thetas

    def check_theta(self, theta: float | Sequence[float]) -> Array:
        """One theta as a vector; also outside the range drawn from, where that makes sense."""
        vector = np.atleast_1d(numbers_of(theta))
        if vector.shape != (len(self.varied),) or not all(
            varied.allows(value) for varied, value in zip(self.varied, vector, strict=True)
        ):
            allowed = ", ".join(varied.allowed for varied in self.varied)
            raise FedrlError(
                f"theta of {self.name} must be {count(len(self.varied), 'numbers')} ({allowed}), "
                f"got {theta!r}"
            )
        return vector

    @abstractmethod
    def constants(self, theta: jax.Array) -> Constants:
        """Every number the physics needs, from one theta."""

    @abstractmethod
    def reset(self, key: jax.Array) -> State:
        """A first state."""

    @abstractmethod
    def step(self, state: State, action: jax.Array, constants: Constants) -> Stepped:
        """(next state, reward, terminated) of one step."""

    def begin(self, state: State, constants: Constants) -> State:
        """The first state of an episode, from what `reset` gave."""
        return state

    def step_and_renew(
        self, state: State, action: jax.Array, constants: Constants, reset: State
    ) -> Renewed:
        """A step; whether the episode was cut off, before its time limit; the next one's start."""
        return (*self.step(state, action, constants), jnp.bool_(False), reset)

    def rejoin(self, state: State, constants: Constants, reset: State) -> tuple[State, jax.Array]:
        """The state itself; where its environment is gone, the first of a new episode, and True."""
        return state, jnp.bool_(False)

    def check(self) -> None:  # noqa: B027 (most families need none)
        """Refuse environments that cannot be learnt in, before anything is begun."""

    def raise_trouble(self) -> None:  # noqa: B027 (most families need none)
        """Say what went wrong on the host since somebody last asked."""

    def warning(self) -> str | None:
        """What was hardly right on the host since somebody last asked."""
        return None

    @abstractmethod
    def observe(self, state: State) -> jax.Array:
        """What the agent sees of a state."""

    def draw(self, state: Array, theta: Array) -> Array:
        """A picture of a state, shape (height, width, 3)."""
        raise FedrlError(f"{self.name} has no pictures: its class does not define draw()")


@dataclass(frozen=True)
class Shape:
    """What a policy needs to know of environments."""

    observation_size: int
    actions: int
    continuous: bool
    first_action: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    """Bounds of continuous actions, where they are not -1 and 1."""

    @property
    def words(self) -> str:
        actions = "numbers" if self.continuous else "choices"
        return f"{self.observation_size} observations, {self.actions} {actions}"


class ShapedFamily(ControlFamily):
    """A family whose `shape` is found out or read, instead of known to its class."""

    observation_size = property(attrgetter("shape.observation_size"))
    actions = property(attrgetter("shape.actions"))
    continuous = property(attrgetter("shape.continuous"))
    first_action = property(attrgetter("shape.first_action"))

    @property
    def action_bounds(self) -> tuple[Array, Array] | None:  # type: ignore[override]
        shape: Shape = self.shape  # type: ignore[attr-defined]
        if not shape.low:
            return None
        return np.array(shape.low, np.float32), np.array(shape.high, np.float32)
