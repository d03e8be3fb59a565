"""RandomMDPs: random transition matrices, one random reward table."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.arguments import BelowOne, Check, Probability, Whole, whole
from fedrl.tabular.families.tabular_family import Floats, GraphFamily


@dataclass(frozen=True)
class RandomMDPs(GraphFamily):
    """Random sparse transitions; rewards U[0, 1] per state and action."""

    states: Annotated[int, Check(partial(whole, smallest=2))] = 5
    """Number of states."""
    actions: Whole = 5
    """Number of actions."""
    gamma: BelowOne = 0.9
    """Discount factor."""
    sparsity: Probability = 0.2
    """Probability that a transition is possible in an independent environment."""
    centre_sparsity: Probability = 0.5
    """The same in P_0 of the noisy copies, whose noise lives on the other transitions."""

    name: ClassVar[str] = "random-mdps"

    def d0(self) -> Floats:
        return np.full(self.states, 1.0 / self.states)

    def rewards(self, key: jax.Array) -> jax.Array:
        return jax.random.uniform(key, (self.states, self.actions), dtype=jnp.float64)

    def environments(self, key: jax.Array, n: int) -> jax.Array:
        return jax.vmap(self._environment)(jax.random.split(key, n))

    def centre_and_noise(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
        """P_0 on a random support, every P_k on its complement."""
        of_support, of_centre, of_noise = jax.random.split(key, 3)
        support = self._support(of_support, self.centre_sparsity, neither_empty_nor_full=True)
        noise = jax.vmap(lambda key: _on_support(key, ~support))(jax.random.split(of_noise, n))
        return _on_support(of_centre, support), noise

    def _environment(self, key: jax.Array) -> jax.Array:
        of_support, of_entries = jax.random.split(key)
        return _on_support(of_entries, self._support(of_support, self.sparsity))

    def _support(
        self, key: jax.Array, probability: float, *, neither_empty_nor_full: bool = False
    ) -> jax.Array:
        """Which transitions are possible, (S, A, S): at least one from everywhere."""
        of_mask, of_state = jax.random.split(key)
        shape = (self.states, self.actions, self.states)
        mask = jax.random.uniform(of_mask, shape, dtype=jnp.float64) < probability
        lucky = jax.random.randint(of_state, shape[:2], 0, self.states)
        one_entry = lucky[..., None] == jnp.arange(self.states)
        mask = jnp.where(mask.any(axis=-1, keepdims=True), mask, one_entry)
        if neither_empty_nor_full:
            mask = jnp.where(mask.all(axis=-1, keepdims=True), ~one_entry, mask)
        return mask


def _on_support(key: jax.Array, support: jax.Array) -> jax.Array:
    """Entries U(0, 1] on the support, rows normalised."""
    # One minus the draw: a lone entry of exactly zero could not be normalised.
    entries = 1.0 - jax.random.uniform(key, support.shape, dtype=jnp.float64)
    weights = jnp.where(support, entries, 0.0)
    return weights / jnp.sum(weights, axis=-1, keepdims=True)
