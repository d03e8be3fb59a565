"""Asynchronous rounds: what offers are worth that begin with an older model than the server has."""

import jax
import jax.numpy as jnp

from fedrl.strategies.corrections import Broadcast, Offer


def rebased(
    offers: Offer, received: Broadcast, stale: jax.Array, now: Broadcast, staleness: float
) -> Offer:
    """Offers as changes of the model that the server has now, weighted by their staleness.

    Stacked in agent order: what agents offer, what they had received, and how many rounds ago.
    A change counts (1 + s) ** -staleness after s rounds.
    """
    weights = (1.0 + stale.astype(jnp.float32)) ** -staleness

    def moved(model: jax.Array, offered: jax.Array, received: jax.Array) -> jax.Array:
        weight = weights.reshape(-1, *(1,) * model.ndim).astype(model.dtype)
        return model + weight * (offered - received)

    model = jax.tree.map(moved, now.model, offers.model, received.model)
    return Offer(model, offers.correction)
