"""What an agent remembers: a ring of transitions, each packed into one row.

A row is an observation, the next one, an action, a reward, 1 if the next state is terminal, and
what the learner records beside them, which keeps its 32 bits whatever the rest is stored in. The
caller counts what it has stored; `stored` says where the next row goes and how many are there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.arguments import check_fields
from fedrl.errors import FedrlError

# Up to here every whole number is stored exactly, and so are the numbers of actions.
EXACT = {"float32": 1 << 24, "float16": 1 << 11, "bfloat16": 1 << 8}
LARGEST = {"float16": 65504.0, "bfloat16": (2 - 2**-7) * 2.0**127}


class Transition(NamedTuple):
    """What an agent learns from. Also many at once, with leading axes."""

    observation: jax.Array
    action: jax.Array
    reward: jax.Array
    next_observation: jax.Array
    terminated: jax.Array
    """Whether the next state is worth nothing; a time limit is not that."""
    recorded: Mapping[str, jax.Array] = {}
    """What the learner recorded of the step when it was taken, by name."""


@dataclass(frozen=True)
class Memory:
    """How transitions are stored; unless said, as they are."""

    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    """Numbers in a row; float16 and bfloat16 take half the memory and round to 3 or 2 digits."""

    def __post_init__(self) -> None:
        check_fields(self, "learner.memory")

    def check(self, family: str, actions: int, continuous: bool) -> None:
        """Refuse a family whose actions cannot be stored like this."""
        if not continuous and actions > EXACT[self.dtype]:
            raise FedrlError(
                f"{family} has {actions} actions, and learner.memory.dtype = {self.dtype!r} tells "
                f"only {EXACT[self.dtype]} apart: choose another"
            )

    def row_bytes(self, observation_size: int, action_size: int, recorded: int = 0) -> int:
        """Memory of one row; a number that is recorded has 32 bits."""
        numbers = 2 * observation_size + action_size + 2
        return numbers * self._stored_as.itemsize + 4 * recorded

    def empty(
        self, capacity: int, observation_size: int, action_size: int, recorded: int = 0
    ) -> jax.Array:
        """Rows for `capacity` transitions."""
        size = self.row_bytes(observation_size, action_size, recorded)
        return jnp.zeros((capacity, size // self._stored_as.itemsize), self._stored_as)

    def row(self, step: Transition) -> jax.Array:
        """The row of a transition."""
        # In the order of their names.
        recorded = [jnp.asarray(x, jnp.float32) for _, x in sorted(step.recorded.items())]
        row, bits = pack(step), jnp.stack(recorded) if recorded else jnp.zeros(0)
        if self.dtype != "float32":
            # The largest number there is, instead of infinity.
            largest = LARGEST[self.dtype]
            rounded = jnp.clip(row, -largest, largest).astype(self.dtype)
            row = jax.lax.bitcast_convert_type(rounded, self._stored_as)
            bits = jax.lax.bitcast_convert_type(bits, self._stored_as).ravel()
        return jnp.concatenate([row, bits])

    def transitions(
        self, rows: jax.Array, observation_size: int, recorded: tuple[str, ...] = ()
    ) -> Transition:
        """The transitions of rows, with what was recorded under these names."""
        in_32_bits = 4 // self._stored_as.itemsize
        size = rows.shape[-1] - len(recorded) * in_32_bits
        rows, bits = rows[..., :size], rows[..., size:]
        if self.dtype != "float32":
            rows = jax.lax.bitcast_convert_type(rows, jnp.dtype(self.dtype)).astype(jnp.float32)
            pairs = bits.reshape(*bits.shape[:-1], len(recorded), in_32_bits)
            bits = jax.lax.bitcast_convert_type(pairs, jnp.float32)
        found = {name: bits[..., i] for i, name in enumerate(sorted(recorded))}
        return unpack(rows, observation_size)._replace(recorded=found)

    @property
    def _stored_as(self) -> np.dtype[Any]:
        """Half numbers as their bits: files have no bfloat16, and XLA may widen whole rings."""
        return np.dtype(np.float32 if self.dtype == "float32" else np.uint16)


def pack(transition: Transition) -> jax.Array:
    """A transition as a row, without what was recorded."""
    action = jnp.atleast_1d(transition.action).astype(jnp.float32)
    rest = jnp.stack([transition.reward, transition.terminated.astype(jnp.float32)])
    return jnp.concatenate([transition.observation, transition.next_observation, action, rest])


def unpack(rows: jax.Array, observation_size: int) -> Transition:
    """Transitions from rows; actions keep an axis of their own."""
    size = observation_size
    return Transition(
        observation=rows[..., :size],
        action=rows[..., 2 * size : -2],
        reward=rows[..., -2],
        next_observation=rows[..., size : 2 * size],
        terminated=rows[..., -1],
    )


def store(rows: jax.Array, row: jax.Array, stored: jax.Array) -> jax.Array:
    """Put a row where the oldest one is."""
    return jax.lax.dynamic_update_slice(rows, row[None], (stored % rows.shape[0], 0))


def next_row(rows: jax.Array, stored: jax.Array) -> jax.Array:
    """What is where the next row goes."""
    row: jax.Array = jax.lax.dynamic_slice_in_dim(rows, stored % rows.shape[0], 1)[0]
    return row


def sample(rows: jax.Array, uniform: jax.Array, stored: jax.Array) -> jax.Array:
    """Rows picked uniformly, with replacement, by numbers in [0, 1)."""
    size = jnp.minimum(stored, rows.shape[0])
    # The minimum: a product may round up to size.
    index = jnp.minimum((uniform * size).astype(jnp.int32), size - 1)
    return rows.at[index].get(mode="promise_in_bounds")
