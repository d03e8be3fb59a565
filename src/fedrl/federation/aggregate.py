"""What the server does with the agents' parameters."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class Mean:
    """The plain average of all agents, as in the paper."""

    name: ClassVar[str] = "mean"

    def apply(self, stacked: Any) -> Any:
        """One tree from trees stacked along the first axis of each leaf, in agent order."""
        return jax.tree.map(_mean, stacked)


def _mean(leaves: jax.Array) -> jax.Array:
    # Around the first agent: equal parameters then stay exactly as they are.
    first = leaves[0]
    return first + jnp.sum(leaves - first, 0) / leaves.shape[0]
