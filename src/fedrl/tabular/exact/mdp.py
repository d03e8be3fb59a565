"""Exact evaluation of policies, lane-last: P (S, A, S, lanes), R and policies (S, A, lanes).

Where a `Sparsity` is given, P has only what is possible: (S, A, K, lanes).
"""

from dataclasses import dataclass, field
from functools import reduce
from operator import add

import jax
import jax.numpy as jnp
from jax import lax

from fedrl.tabular.exact import banded
from fedrl.tabular.exact.elimination import UNROLL_LIMIT, Eliminated, ForLibrary, eliminate
from fedrl.tabular.exact.sparsity import Sparsity


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MDPs:
    """One MDP per lane, all of one size."""

    P: jax.Array
    """Transition probabilities P(s' | s, a), (S, A, S, lanes) or (S, A, K, lanes)."""
    R: jax.Array
    """Rewards, (S, A, lanes)."""
    d0: jax.Array
    """Initial state distribution, (S, lanes)."""
    gamma: jax.Array
    """Discount factor, ()."""
    sparsity: Sparsity | None = field(default=None, metadata={"static": True})
    """What the third axis of P stands for; None: all states."""


def stored(P: jax.Array, sparsity: Sparsity | None) -> jax.Array:
    """P (..., S, A, S) as MDPs have it, (..., S, A, K)."""
    if sparsity is None:
        return P
    found = jnp.take_along_axis(
        P,
        jnp.broadcast_to(sparsity.next_states, (*P.shape[:-1], sparsity.next_states.shape[-1])),
        axis=-1,
    )
    return jnp.where(sparsity.missing, 0.0, found)


def q_values(mdps: MDPs, V: jax.Array) -> jax.Array:
    """R(s, a) + gamma sum_s' P(s' | s, a) V(s')."""
    P, successors = mdps.P, mdps.P.shape[2]
    if mdps.sparsity is not None:
        next_states = mdps.sparsity.next_states
        reached = V.at[next_states].get(mode="promise_in_bounds")
        expected = reduce(add, (P[:, :, k] * reached[:, :, k] for k in range(successors)))
    elif successors <= UNROLL_LIMIT:
        # A sum over an axis that is not the last is 20 times slower when left to the compiler.
        expected = reduce(add, (P[:, :, s] * V[s] for s in range(successors)))
    else:
        expected = lax.fori_loop(
            0,
            successors,
            lambda s, total: total + lax.dynamic_index_in_dim(P, s, 2, keepdims=False) * V[s],
            jnp.zeros_like(mdps.R),
        )
    return mdps.R + mdps.gamma * expected


def _sum_over_actions(policy: jax.Array, x: jax.Array) -> jax.Array:
    """sum_a policy(a | s) x(s, a, ...)."""
    weights = policy.reshape(*policy.shape[:2], *(1,) * (x.ndim - 3), policy.shape[-1])
    return reduce(add, (weights[:, a] * x[:, a] for a in range(x.shape[1])))


def _entries(mdps: MDPs, policy: jax.Array, sparsity: Sparsity) -> jax.Array:
    """The entries of I - gamma P^pi, and a zero after them, (entries + 1, lanes)."""
    rows, columns = sparsity.entries.T
    slots, possible = sparsity.contributions

    def part(a: int) -> jax.Array:
        """pi(a | s) P(s' | s, a); gathered by what is known now, which is as fast as slices."""
        weights = policy.at[rows, a].get(mode="promise_in_bounds")
        chances = mdps.P.at[rows, a, slots[:, a]].get(mode="promise_in_bounds")
        return jnp.where(possible[:, a, None], weights * chances, 0.0)

    identity = (rows == columns).astype(policy.dtype)[:, None]
    found = identity - mdps.gamma * reduce(add, map(part, range(policy.shape[1])))
    return jnp.concatenate([found, jnp.zeros_like(found[:1])])


def _system(
    mdps: MDPs, policy: jax.Array, *, starts: bool = True
) -> Eliminated | banded.Eliminated | ForLibrary:
    """M = I - gamma P^pi, ready for V = M^-1 R^pi and, with `starts`, for what begins with d0."""
    sparsity, states = mdps.sparsity, mdps.P.shape[0]
    r = _sum_over_actions(policy, mdps.R)
    if sparsity is None:
        identity = jnp.eye(states)[:, :, None]
        M = identity - mdps.gamma * _sum_over_actions(policy, mdps.P)
    else:
        entries = _entries(mdps, policy, sparsity)
        if 2 * sparsity.bandwidth < states:  # most of M is outside of its band
            d = mdps.d0 if starts else None
            return banded.eliminate(entries, sparsity.places, sparsity.bandwidth, r, d)
        M = entries[sparsity.places]
    return (ForLibrary if states > UNROLL_LIMIT else eliminate)(M, r, mdps.d0)


def objective(mdps: MDPs, policy: jax.Array) -> jax.Array:
    """g_d0(pi) = d0 (I - gamma P^pi)^-1 R^pi in each lane."""
    return _system(mdps, policy).quadratic_form()


def values(mdps: MDPs, policy: jax.Array) -> jax.Array:
    """V^pi (S, lanes)."""
    return _system(mdps, policy, starts=False).solve(both=False)[0]


def values_and_visits(mdps: MDPs, policy: jax.Array) -> tuple[jax.Array, jax.Array]:
    """V^pi and the discounted visits d0 (I - gamma P^pi)^-1 = d_pi / (1 - gamma); (S, lanes)."""
    V, visits = _system(mdps, policy).solve(both=True)
    return V, visits
