"""In which numbers an agent's transitions are stored.

A row is an observation, the next one, an action, a reward, and 1 if the next state is terminal.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from fedrl import arguments
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
        arguments.choice("learner.memory.dtype", self.dtype, get_args(Dtype))

    def check(self, family: str, actions: int, continuous: bool) -> None:
        """Refuse a family whose actions cannot be stored like this."""
        if not continuous and actions > EXACT[self.dtype]:
            raise FedrlError(
                f"{family} has {actions} actions, and learner.memory.dtype = {self.dtype!r} tells "
                f"only {EXACT[self.dtype]} apart: choose another"
            )

    def width(self, observation_size: int, action_size: int) -> int:
        """Numbers in a row."""
        return 2 * observation_size + action_size + 2

    def row_bytes(self, observation_size: int, action_size: int) -> int:
        """Memory of one row."""
        return self.width(observation_size, action_size) * self._stored_as.itemsize

    def empty(self, capacity: int, observation_size: int, action_size: int) -> jax.Array:
        """Rows for `capacity` transitions."""
        return jnp.zeros((capacity, self.width(observation_size, action_size)), self._stored_as)

    def row(self, step: Transition) -> jax.Array:
        """The row of a transition."""
        row = replay.pack(step)
        if self.dtype == "float32":
            return row
        # The largest number there is, instead of infinity.
        largest = LARGEST[self.dtype]
        rounded = jnp.clip(row, -largest, largest).astype(self.dtype)
        return jax.lax.bitcast_convert_type(rounded, self._stored_as)

    def transitions(self, rows: jax.Array, observation_size: int) -> Transition:
        """The transitions of rows."""
        if self.dtype != "float32":
            halves = jax.lax.bitcast_convert_type(rows, jnp.dtype(self.dtype))
            rows = halves.astype(jnp.float32)
        return replay.unpack(rows, observation_size)

    @property
    def _stored_as(self) -> np.dtype[Any]:
        """Half numbers as their bits: files have no bfloat16, and XLA may widen whole rings."""
        return np.dtype(np.float32 if self.dtype == "float32" else np.uint16)
