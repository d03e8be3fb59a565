"""Learners on tables: QAvg, ProjPAvg and SoftPAvg, which know their dynamics, and SampledQAvg.

All arrays are lane-last (see fedrl.tabular.exact.lanes); a learner sees only its own lane.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from fedrl import arguments
from fedrl.tabular.exact.lanes import written_out
from fedrl.tabular.exact.mdp import MDPs, q_values, values, values_and_visits
from fedrl.tabular.exact.simplex import project


@dataclass(frozen=True)
class TabularLearner(ABC):
    """Settings of a learner, and the pure functions that carry it out.

    Unless a subclass says otherwise, its only state is its table, and its directions need no
    randomness.
    """

    name: ClassVar[str]
    exact: ClassVar[bool] = True
    """Whether P is for `exact.mdp` alone, which also knows it without what is impossible."""

    def __post_init__(self) -> None:
        arguments.check_fields(self, "")

    def init(self, key: jax.Array, states: int, actions: int) -> jax.Array:
        """The protocol's random initial table (S, A) of one replicate."""
        return jax.random.uniform(key, (states, actions), dtype=jnp.float64)

    def start(self, mdps: MDPs, keys: jax.Array) -> Any:
        """The private state before the first update."""
        return ()

    def begin(self, table: jax.Array, mdps: MDPs) -> jax.Array:
        """From the communicated table to what the local updates work on."""
        return table

    def directions(
        self, points: tuple[jax.Array, ...], private: Any, mdps: MDPs, keys: jax.Array, t: jax.Array
    ) -> tuple[tuple[jax.Array, ...], Any]:
        """Where update number t goes from each point, on the same data; and the private state.

        The first point is what the agents have, the others are a correction's.
        """
        return tuple(self.direction(point, mdps) for point in points), private

    def direction(self, table: jax.Array, mdps: MDPs) -> jax.Array:
        """Where an update goes from a table."""
        raise NotImplementedError

    def move(self, table: jax.Array, step: jax.Array) -> jax.Array:
        """What the agents have after a step."""
        return table + step

    def end(self, worked: jax.Array, mdps: MDPs) -> jax.Array:
        """Back to the table that is communicated."""
        return worked

    def nearest(self, table: jax.Array) -> jax.Array:
        """The table nearest to one that a server has come to; not every table need mean something.

        Averages of what agents offer must be as they are.
        """
        return table

    @abstractmethod
    def policy(self, table: jax.Array) -> jax.Array:
        """The policy (S, A, lanes) that a table stands for."""


def best(Q: jax.Array) -> jax.Array:
    """max_a Q(s, a), (S, lanes)."""
    # Compiled reductions over an axis that is not the last are not vectorised; pairwise ones are.
    return reduce(jnp.maximum, [Q[:, a] for a in range(Q.shape[1])])


def greedy(Q: jax.Array) -> jax.Array:
    """The deterministic policy argmax_a Q(s, a), ties to the first action."""
    maximum = best(Q)
    taken = jnp.zeros(maximum.shape, dtype=bool)
    chosen = []
    for a in range(Q.shape[1]):
        first = (Q[:, a] == maximum) & ~taken
        taken |= first
        chosen.append(first)
    return jnp.stack(chosen, axis=1).astype(Q.dtype)


@dataclass(frozen=True)
class QAvg(TabularLearner):
    """Q-learning with known dynamics; the server averages Q tables."""

    update: Literal["value", "q"] = "value"
    """`value`: E damped value iterations, then one backup to Q (the released experiments);
    `q`: Q <- (1 - lr) Q + lr T_k Q (the paper)."""

    name: ClassVar[str] = "qavg"

    def begin(self, table: jax.Array, mdps: MDPs) -> jax.Array:
        return table if self.update == "q" else best(table)

    def direction(self, table: jax.Array, mdps: MDPs) -> jax.Array:
        """T_k Q - Q, or the same of values."""
        if self.update == "q":
            return q_values(mdps, best(table)) - table
        return best(q_values(mdps, table)) - table

    def end(self, worked: jax.Array, mdps: MDPs) -> jax.Array:
        return worked if self.update == "q" else q_values(mdps, worked)

    def policy(self, table: jax.Array) -> jax.Array:
        return greedy(table)


@dataclass(frozen=True)
class ProjPAvg(TabularLearner):
    """Projected policy gradient in the direct parametrisation; the server averages policies."""

    name: ClassVar[str] = "projpavg"

    def init(self, key: jax.Array, states: int, actions: int) -> jax.Array:
        weights = super().init(key, states, actions)
        return weights / jnp.sum(weights, axis=1, keepdims=True)

    def direction(self, table: jax.Array, mdps: MDPs) -> jax.Array:
        """d_pi(s) Q_pi(s, a) / (1 - gamma)."""
        V, visits = values_and_visits(mdps, table)
        return visits[:, None] * q_values(mdps, V)

    def move(self, table: jax.Array, step: jax.Array) -> jax.Array:
        return project(table + step)

    def nearest(self, table: jax.Array) -> jax.Array:
        return project(table)

    def policy(self, table: jax.Array) -> jax.Array:
        return table


@dataclass(frozen=True)
class SoftPAvg(TabularLearner):
    """Policy gradient in the softmax parametrisation; the server averages logits."""

    gradient: Literal["natural", "plain"] = "natural"
    """`natural`: A_pi(s, a) / (1 - gamma) (the released experiments); `plain`: the gradient of the
    objective itself, which multiplies that by d_pi(s) pi(a | s)."""

    name: ClassVar[str] = "softpavg"

    def direction(self, table: jax.Array, mdps: MDPs) -> jax.Array:
        policy = self.policy(table)
        if self.gradient == "natural":
            V = values(mdps, policy)
            return (q_values(mdps, V) - V[:, None]) / (1.0 - mdps.gamma)
        V, visits = values_and_visits(mdps, policy)
        return visits[:, None] * policy * (q_values(mdps, V) - V[:, None])

    def policy(self, table: jax.Array) -> jax.Array:
        largest = written_out(best, table)
        weights = written_out(jnp.exp, table - largest[:, None])
        return weights / reduce(add, [weights[:, a] for a in range(table.shape[1])])[:, None]


@dataclass(frozen=True)
class SampledQAvg(TabularLearner):
    """Q-learning from an agent's own transitions; the server averages Q tables."""

    epsilon: arguments.Probability = 0.1
    """Probability of a uniformly random action."""
    restart: arguments.Probability = 0.0
    """Probability, after each step, of starting again from d0."""

    name: ClassVar[str] = "sampled-qavg"
    exact: ClassVar[bool] = False

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

        def step(
            tables: tuple[jax.Array, ...],
            s: jax.Array,
            P: jax.Array,
            R: jax.Array,
            d0: jax.Array,
            key: jax.Array,
        ) -> tuple[tuple[jax.Array, ...], jax.Array]:
            """One agent's differences, one for each table, and where it stands then."""
            u = jax.random.uniform(jax.random.fold_in(key, t + 1), (5,), dtype=R.dtype)
            exploring = jnp.floor(u[1] * R.shape[1]).astype(s.dtype)
            a = jnp.where(u[0] < self.epsilon, exploring, jnp.argmax(tables[0][s]).astype(s.dtype))
            s_next = _draw(P[s, a], u[2]).astype(s.dtype)

            def difference(table: jax.Array) -> jax.Array:
                error = R[s, a] + mdps.gamma * jnp.max(table[s_next]) - table[s, a]
                return jnp.zeros_like(table).at[s, a].set(error)

            # A restart ends the trajectory, not the task: differences bootstrap through it.
            restarted = jnp.where(u[3] < self.restart, _draw(d0, u[4]).astype(s.dtype), s_next)
            return tuple(map(difference, tables)), restarted

        stepped = jax.vmap(step, in_axes=(-1, 0, -1, -1, -1, 0), out_axes=(-1, 0))
        return stepped(points, private, mdps.P, mdps.R, mdps.d0, keys)

    def policy(self, table: jax.Array) -> jax.Array:
        return greedy(table)


def _draw(probabilities: jax.Array, u: jax.Array) -> jax.Array:
    """The index that the uniform number `u` picks from a probability vector."""
    cumulative = jnp.cumsum(probabilities)
    # Scaled, so that a sum a rounding error below one never picks an index past the last.
    return jnp.sum(cumulative <= u * cumulative[-1])
