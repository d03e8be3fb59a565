"""Learners on tables with known dynamics: QAvg, ProjPAvg and SoftPAvg (section 4 of the paper).

All arrays are lane-last (see fedrl.tabular.exact.lanes); a learner sees only its own lane.
"""

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from fedrl import arguments
from fedrl.tabular.exact.lanes import written_out
from fedrl.tabular.exact.mdp import MDPs, q_values, values, values_and_visits
from fedrl.tabular.exact.simplex import project


class Agents(NamedTuple):
    """The state of all agents between two local updates."""

    table: jax.Array  # (S, A, lanes): what is communicated
    private: Any  # whatever else a learner carries along; never communicated


class TabularLearner(Protocol):
    """Settings of a learner, and the pure functions that carry it out."""

    name: ClassVar[str]
    exact: ClassVar[bool]
    """Whether P is for `exact.mdp` alone, which also knows it without what is impossible."""

    def init(self, key: jax.Array, states: int, actions: int) -> jax.Array:
        """The protocol's random initial table (S, A) of one replicate."""

    def start(self, mdps: MDPs, keys: jax.Array) -> Any:
        """The private state before the first update."""

    def begin(self, agents: Agents, mdps: MDPs) -> Agents:
        """From the communicated table to what the local updates work on."""

    def step(
        self, agents: Agents, mdps: MDPs, lr: jax.Array, keys: jax.Array, t: jax.Array
    ) -> Agents:
        """Local update number t, with step size `lr` (lanes,)."""

    def end(self, agents: Agents, mdps: MDPs) -> Agents:
        """Back to the table that is communicated."""

    def policy(self, table: jax.Array) -> jax.Array:
        """The policy (S, A, lanes) that a table stands for."""


class _Memoryless:
    """A learner whose only state is its table, which is also what it communicates."""

    exact: ClassVar[bool] = True

    def start(self, mdps: MDPs, keys: jax.Array) -> Any:
        return ()

    def begin(self, agents: Agents, mdps: MDPs) -> Agents:
        return agents

    def end(self, agents: Agents, mdps: MDPs) -> Agents:
        return agents


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


def uniform_table(key: jax.Array, states: int, actions: int) -> jax.Array:
    """Entries U[0, 1]."""
    return jax.random.uniform(key, (states, actions), dtype=jnp.float64)


@dataclass(frozen=True)
class QAvg(_Memoryless):
    """Q-learning with known dynamics; the server averages Q tables."""

    update: Literal["value", "q"] = "value"
    """`value`: E damped value iterations, then one backup to Q (the released experiments);
    `q`: Q <- (1 - lr) Q + lr T_k Q (the paper)."""

    name: ClassVar[str] = "qavg"

    def __post_init__(self) -> None:
        arguments.choice("update", self.update, ("value", "q"))

    def init(self, key: jax.Array, states: int, actions: int) -> jax.Array:
        return uniform_table(key, states, actions)

    def begin(self, agents: Agents, mdps: MDPs) -> Agents:
        if self.update == "q":
            return agents
        return agents._replace(table=best(agents.table))

    def step(
        self, agents: Agents, mdps: MDPs, lr: jax.Array, keys: jax.Array, t: jax.Array
    ) -> Agents:
        if self.update == "q":
            target = q_values(mdps, best(agents.table))
        else:
            target = best(q_values(mdps, agents.table))
        return agents._replace(table=(1.0 - lr) * agents.table + lr * target)

    def end(self, agents: Agents, mdps: MDPs) -> Agents:
        if self.update == "q":
            return agents
        return agents._replace(table=q_values(mdps, agents.table))

    def policy(self, table: jax.Array) -> jax.Array:
        return greedy(table)


@dataclass(frozen=True)
class ProjPAvg(_Memoryless):
    """Projected policy gradient in the direct parametrisation; the server averages policies."""

    name: ClassVar[str] = "projpavg"

    def init(self, key: jax.Array, states: int, actions: int) -> jax.Array:
        weights = uniform_table(key, states, actions)
        return weights / jnp.sum(weights, axis=1, keepdims=True)

    def step(
        self, agents: Agents, mdps: MDPs, lr: jax.Array, keys: jax.Array, t: jax.Array
    ) -> Agents:
        V, visits = values_and_visits(mdps, agents.table)
        gradient = visits[:, None] * q_values(mdps, V)  # d_pi(s) Q_pi(s, a) / (1 - gamma)
        return agents._replace(table=project(agents.table + lr * gradient))

    def policy(self, table: jax.Array) -> jax.Array:
        return table


@dataclass(frozen=True)
class SoftPAvg(_Memoryless):
    """Policy gradient in the softmax parametrisation; the server averages logits."""

    gradient: Literal["natural", "plain"] = "natural"
    """`natural`: A_pi(s, a) / (1 - gamma) (the released experiments); `plain`: the gradient of the
    objective itself, which multiplies that by d_pi(s) pi(a | s)."""

    name: ClassVar[str] = "softpavg"

    def __post_init__(self) -> None:
        arguments.choice("gradient", self.gradient, ("natural", "plain"))

    def init(self, key: jax.Array, states: int, actions: int) -> jax.Array:
        return uniform_table(key, states, actions)

    def step(
        self, agents: Agents, mdps: MDPs, lr: jax.Array, keys: jax.Array, t: jax.Array
    ) -> Agents:
        policy = self.policy(agents.table)
        if self.gradient == "natural":
            V = values(mdps, policy)
            direction = (q_values(mdps, V) - V[:, None]) / (1.0 - mdps.gamma)
        else:
            V, visits = values_and_visits(mdps, policy)
            direction = visits[:, None] * policy * (q_values(mdps, V) - V[:, None])
        return agents._replace(table=agents.table + lr * direction)

    def policy(self, table: jax.Array) -> jax.Array:
        largest = written_out(best, table)
        weights = written_out(jnp.exp, table - largest[:, None])
        return weights / reduce(add, [weights[:, a] for a in range(table.shape[1])])[:, None]
