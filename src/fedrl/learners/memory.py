"""In which numbers an agent's transitions are stored.

A row is an observation, the next one, an action, a reward, 1 if the next state is terminal, and
what the learner records beside them, which keeps its 32 bits whatever the rest is stored in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.arguments import check_fields
from fedrl.errors import FedrlError
from fedrl.learners import replay
from fedrl.learners.replay import Transition

Dtype = Literal["float32", "float16", "bfloat16"]
# Up to here every whole number is stored exactly, and so are the numbers of actions.
EXACT = {"float32": 1 << 24, "float16": 1 << 11, "bfloat16": 1 << 8}
LARGEST = {"float16": 65504.0, "bfloat16": (2 - 2**-7) * 2.0**127}


@dataclass(frozen=True)
class Memory:
    """How transitions are stored; unless said, as they are."""

    dtype: Dtype = "float32"
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

    def width(self, observation_size: int, action_size: int, recorded: int = 0) -> int:
        """Numbers in a row; what is recorded takes as many as have 32 bits."""
        return 2 * observation_size + action_size + 2 + recorded * self._in_32_bits

    def row_bytes(self, observation_size: int, action_size: int, recorded: int = 0) -> int:
        """Memory of one row."""
        return self.width(observation_size, action_size, recorded) * self._stored_as.itemsize

    def empty(
        self, capacity: int, observation_size: int, action_size: int, recorded: int = 0
    ) -> jax.Array:
        """Rows for `capacity` transitions."""
        width = self.width(observation_size, action_size, recorded)
        return jnp.zeros((capacity, width), self._stored_as)

    def row(self, step: Transition) -> jax.Array:
        """The row of a transition."""
        row, recorded = replay.pack(step), _vector(step.recorded)
        if self.dtype != "float32":
            # The largest number there is, instead of infinity.
            largest = LARGEST[self.dtype]
            rounded = jnp.clip(row, -largest, largest).astype(self.dtype)
            row = jax.lax.bitcast_convert_type(rounded, self._stored_as)
            recorded = jax.lax.bitcast_convert_type(recorded, self._stored_as).ravel()
        return jnp.concatenate([row, recorded])

    def transitions(
        self, rows: jax.Array, observation_size: int, recorded: tuple[str, ...] = ()
    ) -> Transition:
        """The transitions of rows, with what was recorded under these names."""
        size = rows.shape[-1] - len(recorded) * self._in_32_bits
        rows, bits = rows[..., :size], rows[..., size:]
        if self.dtype != "float32":
            rows = jax.lax.bitcast_convert_type(rows, jnp.dtype(self.dtype)).astype(jnp.float32)
            pairs = bits.reshape(*bits.shape[:-1], len(recorded), self._in_32_bits)
            bits = jax.lax.bitcast_convert_type(pairs, jnp.float32)
        found = {name: bits[..., i] for i, name in enumerate(sorted(recorded))}
        return replay.unpack(rows, observation_size)._replace(recorded=found)

    @property
    def _in_32_bits(self) -> int:
        return 4 // self._stored_as.itemsize

    @property
    def _stored_as(self) -> np.dtype[Any]:
        """Half numbers as their bits: files have no bfloat16, and XLA may widen whole rings."""
        return np.dtype(np.float32 if self.dtype == "float32" else np.uint16)


def _vector(recorded: Mapping[str, jax.Array]) -> jax.Array:
    """What is recorded, in the order of its names."""
    numbers = [jnp.asarray(recorded[name], jnp.float32) for name in sorted(recorded)]
    return jnp.stack(numbers) if numbers else jnp.zeros(0)
