"""A ring of transitions, each packed into one row. How rows are stored is `memory`'s business.

The caller counts what it has stored; `stored` says where the next row goes and how many are there.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp


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


def places(capacity: int, uniform: jax.Array, stored: jax.Array) -> jax.Array:
    """Places of rows, picked uniformly, with replacement, by numbers in [0, 1)."""
    size = jnp.minimum(stored, capacity)
    # The minimum: a product may round up to size.
    return jnp.minimum((uniform * size).astype(jnp.int32), size - 1)


def sample(rows: jax.Array, uniform: jax.Array, stored: jax.Array) -> jax.Array:
    """The rows at `places`."""
    index = places(rows.shape[0], uniform, stored)
    return rows.at[index].get(mode="promise_in_bounds")
