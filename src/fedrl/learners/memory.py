"""How an agent's experience is stored: in which numbers, every observation how often, how many
steps in a row.

A row is an observation, (in pairs) the next one, an action, a reward, and how it ended: 1 if in a
terminal state, 0 if the episode went on, -k if it was cut off after k steps (0 where pairs are
single steps, to which it makes no difference).
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from fedrl import arguments
from fedrl.errors import FedrlError
from fedrl.learners import replay
from fedrl.learners.replay import Transition

Dtype = Literal["float32", "float16", "bfloat16"]
Layout = Literal["pairs", "once"]
# Up to here every whole number is stored exactly: the numbers of actions, and of steps in a row.
EXACT = {"float32": 1 << 24, "float16": 1 << 11, "bfloat16": 1 << 8}
MOST_STEPS_IN_A_ROW = min(EXACT.values())
LARGEST = {"float16": 65504.0, "bfloat16": (2 - 2**-7) * 2.0**127}


class Window(NamedTuple):
    """The steps of one row, as far as they are taken."""

    experience: Transition
    """First observation and action, discounted sum of rewards, latest observation; `terminated` is
    how it ended (see above)."""
    weight: jax.Array
    """What the next reward counts for."""
    steps: jax.Array


class Recent(NamedTuple):
    """What an agent remembers beside its rows; without leaves where it needs none."""

    window: Any
    """Steps that are not yet a whole row."""
    latest: Any
    """The newest row with its next observation, which has no row after it yet."""


@dataclass(frozen=True)
class Memory:
    """How transitions are stored; unless said, as they are, which takes the most memory."""

    dtype: Dtype = "float32"
    """Numbers in a row; float16 and bfloat16 take half the memory and round to 3 or 2 digits."""
    layout: Layout = "pairs"
    """A row has its next observation ("pairs"), or it is that of the row after it ("once")."""
    n_step: int = 1
    """Environment steps that become one row: the first action, the sum of rewards."""

    def __post_init__(self) -> None:
        where = "learner.memory"
        arguments.choice(f"{where}.dtype", self.dtype, get_args(Dtype))
        arguments.choice(f"{where}.layout", self.layout, get_args(Layout))
        steps = arguments.whole(f"{where}.n_step", self.n_step, largest=MOST_STEPS_IN_A_ROW)
        arguments.settle(self, n_step=steps)

    def check(self, family: str, actions: int, continuous: bool) -> None:
        """Refuse a family whose actions cannot be stored like this."""
        if not continuous and actions > EXACT[self.dtype]:
            raise FedrlError(
                f"{family} has {actions} actions, and learner.memory.dtype = {self.dtype!r} tells "
                f"only {EXACT[self.dtype]} apart: choose another"
            )

    def width(self, observation_size: int, action_size: int) -> int:
        """Numbers in a row."""
        observations = 2 if self.layout == "pairs" else 1
        return observations * observation_size + action_size + 2

    def row_bytes(self, observation_size: int, action_size: int) -> int:
        """Memory of one row."""
        return self.width(observation_size, action_size) * self._stored_as.itemsize

    def empty(self, capacity: int, observation_size: int, action_size: int) -> jax.Array:
        """Rows for `capacity` transitions."""
        return jnp.zeros((capacity, self.width(observation_size, action_size)), self._stored_as)

    def recent(self, observation_size: int, action_shape: tuple[int, ...]) -> Recent:
        """Before the first step."""
        seen, zero = jnp.zeros(observation_size), jnp.float32(0)
        nothing = Transition(seen, jnp.zeros(action_shape), zero, seen, zero)
        return Recent(
            window=Window(nothing, zero, zero) if self.n_step > 1 else (),
            latest=self._encoded(replay.pack(nothing)) if self.layout == "once" else (),
        )

    def row(
        self, recent: Recent, step: Transition, cut: jax.Array, stored: jax.Array, gamma: float
    ) -> tuple[jax.Array, Recent]:
        """The row of a step and, where there are any, those before it; also what is then recent."""
        window = recent.window
        if self.n_step > 1:
            window = _extended(window, step, cut, stored % self.n_step == 0, gamma)
            step = window.experience
        elif self.layout == "once":
            step = step._replace(terminated=_ending(step.terminated, cut, jnp.float32(1)))
        row = self._encoded(replay.pack(step))
        if self.layout == "pairs":
            return row, Recent(window, ())
        latest = row if self.n_step == 1 else jnp.where(self._whole(stored), row, recent.latest)
        size = step.observation.shape[-1]
        return jnp.concatenate([row[:size], row[2 * size :]]), Recent(window, latest)

    def store(self, rows: jax.Array, row: jax.Array, stored: jax.Array) -> jax.Array:
        """Put a row where the oldest one is, after so many steps; until it is whole, nothing."""
        if self.n_step > 1:
            row = jnp.where(self._whole(stored), row, self.next_row(rows, stored))
        return replay.store(rows, row, self._rows(stored))

    def next_row(self, rows: jax.Array, stored: jax.Array) -> jax.Array:
        """What is where the next row goes."""
        return replay.next_row(rows, self._rows(stored))

    def recall(
        self,
        rows: jax.Array,
        recent: Recent,
        uniform: jax.Array,
        stored: jax.Array,
        observation_size: int,
        gamma: float,
    ) -> Transition:
        """Transitions picked uniformly, after so many steps, by numbers in [0, 1)."""
        stored = self._rows(stored)
        if self.layout == "once":
            found = self._joined(rows, recent.latest, uniform, stored, observation_size)
        else:
            found = replay.sample(rows, uniform, stored)
        found = self._decoded(found)
        batch = replay.unpack(found, observation_size)
        if self.n_step > 1:
            batch = batch._replace(discount=self._discount(batch.terminated, gamma))
        if self.n_step > 1 or self.layout == "once":
            batch = batch._replace(terminated=(batch.terminated > 0).astype(jnp.float32))
        return batch

    def _joined(
        self, rows: jax.Array, latest: jax.Array, uniform: jax.Array, stored: jax.Array, size: int
    ) -> jax.Array:
        """Rows with the observations, of so many numbers, of the rows after them.

        A row that was cut off has no next observation. It gives way to another pick of the batch,
        so that all others are equally likely, or, if there is none, to the newest row.
        """
        capacity = rows.shape[0]
        index = replay.places(capacity, uniform, stored)
        ending = self._decoded(rows.at[index, -1].get(mode="promise_in_bounds"))
        # The row after the newest is the oldest one, or nothing yet.
        newest = (stored - 1) % capacity
        usable = (ending >= 0) | (index == newest)
        index = jnp.where(jnp.any(usable), index[_nearest(usable)], newest)
        both = jnp.stack([index, (index + 1) % capacity])
        row, following = rows.at[both].get(mode="promise_in_bounds")
        pairs = jnp.concatenate([row[:, :size], following[:, :size], row[:, size:]], -1)
        return jnp.where((index == newest)[:, None], latest, pairs)

    def _discount(self, ending: jax.Array, gamma: float) -> jax.Array:
        """gamma^k after k steps, nothing after a terminal state."""
        steps = jnp.where(ending < 0, -ending, self.n_step)
        return jnp.where(ending > 0, 0.0, jnp.float32(gamma) ** steps)

    def _rows(self, stored: jax.Array) -> jax.Array:
        """Whole rows after so many steps."""
        return stored if self.n_step == 1 else stored // self.n_step

    def _whole(self, stored: jax.Array) -> jax.Array:
        """Whether a row is whole with the step after so many."""
        return (stored + 1) % self.n_step == 0

    def _encoded(self, row: jax.Array) -> jax.Array:
        if self.dtype == "float32":
            return row
        # The largest number there is, instead of infinity.
        largest = LARGEST[self.dtype]
        rounded = jnp.clip(row, -largest, largest).astype(self.dtype)
        return jax.lax.bitcast_convert_type(rounded, self._stored_as)

    def _decoded(self, stored: jax.Array) -> jax.Array:
        if self.dtype == "float32":
            return stored
        return jax.lax.bitcast_convert_type(stored, jnp.dtype(self.dtype)).astype(jnp.float32)

    @property
    def _stored_as(self) -> np.dtype[Any]:
        """Half numbers as their bits: files have no bfloat16, and XLA may widen whole rings."""
        return np.dtype(np.float32 if self.dtype == "float32" else np.uint16)


def _ending(terminated: jax.Array, cut: jax.Array, steps: jax.Array) -> jax.Array:
    """How it ended after so many steps, as a number."""
    return jnp.where(terminated, 1.0, jnp.where(cut, -steps, 0.0))


def _extended(
    window: Window, step: Transition, cut: jax.Array, first: jax.Array, gamma: float
) -> Window:
    """A window with one more step, or as it is if the episode has ended in it."""
    begun = Window(
        step._replace(reward=jnp.zeros_like(step.reward), terminated=jnp.float32(0)),
        weight=jnp.float32(1),
        steps=jnp.float32(0),
    )
    window = _where(first, begun, window)
    steps = window.steps + 1
    longer = window.experience._replace(
        reward=window.experience.reward + window.weight * step.reward,
        next_observation=step.next_observation,
        terminated=_ending(step.terminated, cut, steps),
    )
    going_on = window.experience.terminated == 0
    return _where(going_on, Window(longer, window.weight * gamma, steps), window)


def _where(condition: jax.Array, new: Window, old: Window) -> Window:
    result: Window = jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
    return result


def _nearest(usable: jax.Array) -> jax.Array:
    """For each of a batch the nearest at or before it that is usable, around its end."""
    numbers = jnp.where(usable, jnp.arange(usable.shape[0]), -1)
    latest = jax.lax.cummax(numbers)
    return jnp.where(latest < 0, latest[-1], latest)
