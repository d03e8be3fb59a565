"""Euclidean projection onto the probability simplex."""

import jax
import jax.numpy as jnp

from fedrl.tabular.exact.lanes import written_out

# Up to this many actions entries are sorted by comparing neighbours, which is vectorised.
NETWORK_LIMIT = 16


def project(v: jax.Array) -> jax.Array:
    """The nearest probability vector to each v[s, :, lane], for v of shape (S, A, lanes).

    The projection is max(v - tau, 0) with tau = max_k (sum of the k largest - 1) / k: that ratio
    rises as long as the next entry is above it, and falls from then on.
    """
    largest, tau = written_out(_largest_and_tau, v)
    return jnp.maximum((v - largest[:, None]) - tau[:, None], 0.0)


def _largest_and_tau(v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The largest entry of each row, and tau of the row without it, both (S, lanes).

    A shift of a row does not change its projection, but 1 would be lost beside large entries.
    """
    entries = _largest_first(v)
    largest = entries[0]
    total, tau = jnp.zeros_like(largest), jnp.full_like(largest, -jnp.inf)
    for k, entry in enumerate(entries, start=1):
        total = total + (entry - largest)
        tau = jnp.maximum(tau, (total - 1.0) / k)
    return largest, tau


def _largest_first(v: jax.Array) -> list[jax.Array]:
    """The entries of every row, (S, lanes) each, sorted."""
    if v.shape[1] > NETWORK_LIMIT:
        return list(jnp.moveaxis(-jnp.sort(-v, axis=1), 1, 0))
    entries = [v[:, a] for a in range(v.shape[1])]
    for last in range(len(entries) - 1, 0, -1):
        for a in range(last):
            left, right = entries[a], entries[a + 1]
            entries[a], entries[a + 1] = jnp.maximum(left, right), jnp.minimum(left, right)
    return entries
