"""QAvg for agents that do not know their dynamics: tabular Q-learning from transitions."""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fedrl import arguments
from fedrl.tabular.exact.mdp import MDPs
from fedrl.tabular.learners import TabularLearner, greedy


def _draw(probabilities: jax.Array, u: jax.Array) -> jax.Array:
    """The index that the uniform number `u` picks from a probability vector."""
    cumulative = jnp.cumsum(probabilities)
    # Scaled, so that a sum a rounding error below one never picks an index past the last.
    return jnp.sum(cumulative <= u * cumulative[-1])


@dataclass(frozen=True)
class SampledQAvg(TabularLearner):
    """Q-learning from an agent's own transitions; the server averages Q tables."""

    epsilon: float = 0.1
    """Probability of a uniformly random action."""
    restart: float = 0.0
    """Probability, after each step, of starting again from d0."""

    name: ClassVar[str] = "sampled-qavg"
    exact: ClassVar[bool] = False

    def __post_init__(self) -> None:
        arguments.settle(
            self,
            epsilon=arguments.probability("epsilon", self.epsilon),
            restart=arguments.probability("restart", self.restart),
        )

    def start(self, mdps: MDPs, keys: jax.Array) -> jax.Array:
        """Where each agent stands: a draw from d0."""

        def one(key: jax.Array, d0: jax.Array) -> jax.Array:
            u = jax.random.uniform(jax.random.fold_in(key, 0), dtype=d0.dtype)
            return _draw(d0, u).astype(jnp.int32)

        return jax.vmap(one, in_axes=(0, -1))(keys, mdps.d0)

    def directions(
        self, points: tuple[jax.Array, ...], private: Any, mdps: MDPs, keys: jax.Array, t: jax.Array
    ) -> tuple[tuple[jax.Array, ...], Any]:
        """The temporal difference of one epsilon-greedy step with the first point."""
        step_keys = jax.vmap(lambda key: jax.random.fold_in(key, t + 1))(keys)
        step = partial(self._step, mdps.gamma)
        stepped = jax.vmap(step, in_axes=(-1, 0, -1, -1, -1, 0), out_axes=(-1, 0))
        return stepped(points, private, mdps.P, mdps.R, mdps.d0, step_keys)

    def _step(
        self,
        gamma: jax.Array,
        tables: tuple[jax.Array, ...],
        s: jax.Array,
        P: jax.Array,
        R: jax.Array,
        d0: jax.Array,
        key: jax.Array,
    ) -> tuple[tuple[jax.Array, ...], jax.Array]:
        """One agent's differences, one for each table, and where it stands then."""
        table = tables[0]
        u = jax.random.uniform(key, (5,), dtype=table.dtype)
        exploring = jnp.floor(u[1] * table.shape[1]).astype(s.dtype)
        a = jnp.where(u[0] < self.epsilon, exploring, jnp.argmax(table[s]).astype(s.dtype))
        s_next = _draw(P[s, a], u[2]).astype(s.dtype)

        def difference(table: jax.Array) -> jax.Array:
            error = R[s, a] + gamma * jnp.max(table[s_next]) - table[s, a]
            return jnp.zeros_like(table).at[s, a].set(error)

        differences = tuple(map(difference, tables))
        # A restart ends the trajectory, not the task: the differences have bootstrapped through it.
        s_next = jnp.where(u[3] < self.restart, _draw(d0, u[4]).astype(s.dtype), s_next)
        return differences, s_next

    def policy(self, table: jax.Array) -> jax.Array:
        return greedy(table)
