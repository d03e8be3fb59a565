"""Euclidean projection onto the probability simplex."""

from functools import reduce

import jax
import jax.numpy as jnp
from jax import lax

# Up to this many actions all pairs are compared; beyond it, sorting is cheaper.
PAIRWISE_LIMIT = 16


def _largest_is_zero(v: jax.Array) -> jax.Array:
    return v - reduce(jnp.maximum, [v[:, a] for a in range(v.shape[1])])[:, None]


def project(v: jax.Array) -> jax.Array:
    """The nearest probability vector to each v[s, :, lane], for v of shape (S, A, lanes).

    The projection is max(v - tau, 0) with tau = max_k (sum of the k largest - 1) / k: that ratio
    rises as long as the next entry is above it, and falls from then on.
    """
    actions = v.shape[1]
    # A shift of a row does not change its projection, but 1 would be lost beside large entries.
    # Under a condition that is always true of numbers, so that the result is written out once: each
    # of the comparisons below would compute it again.
    v = lax.cond(v[0, 0, 0] == v[0, 0, 0], _largest_is_zero, lambda v: v, v)
    if actions <= PAIRWISE_LIMIT:
        # The k largest entries are those at least as large as some entry of v.
        at_least = [v[:, b][:, None] >= v for b in range(actions)]
        count = sum(mask.astype(v.dtype) for mask in at_least)
        total = sum(jnp.where(mask, v[:, b][:, None], 0.0) for b, mask in enumerate(at_least))
    else:
        total = jnp.cumsum(-jnp.sort(-v, axis=1), axis=1)
        count = jnp.arange(1, actions + 1, dtype=v.dtype)[None, :, None]
    tau = jnp.max((total - 1.0) / count, axis=1, keepdims=True)
    return jnp.maximum(v - tau, 0.0)
