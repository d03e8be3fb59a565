"""Exact evaluation of policies, lane-last: P (S, A, S, lanes), R and policies (S, A, lanes)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedrl.exact.elimination import (
    UNROLL_LIMIT,
    back_substitute,
    eliminate,
    library_solve,
    quadratic_form,
)


class MDPs(NamedTuple):
    """One MDP per lane, all of one size."""

    P: jax.Array  # (S, A, S, lanes) transition probabilities P(s' | s, a)
    R: jax.Array  # (S, A, lanes) rewards
    d0: jax.Array  # (S, lanes) initial state distribution
    gamma: jax.Array  # () discount factor


def q_values(mdps: MDPs, V: jax.Array) -> jax.Array:
    """R(s, a) + gamma sum_s' P(s' | s, a) V(s')."""
    P = mdps.P
    states = P.shape[2]
    if states <= UNROLL_LIMIT:
        # A sum over an axis that is not the last is 20 times slower when left to the compiler.
        expected = P[:, :, 0] * V[0]
        for s in range(1, states):
            expected = expected + P[:, :, s] * V[s]
    else:
        expected = lax.fori_loop(
            0,
            states,
            lambda s, total: total + lax.dynamic_index_in_dim(P, s, 2, keepdims=False) * V[s],
            jnp.zeros_like(mdps.R),
        )
    return mdps.R + mdps.gamma * expected


def _sum_over_actions(policy: jax.Array, x: jax.Array) -> jax.Array:
    """sum_a policy(a | s) x(s, a, ...)."""
    weights = policy.reshape(*policy.shape[:2], *(1,) * (x.ndim - 3), policy.shape[-1])
    total = weights[:, 0] * x[:, 0]
    for a in range(1, x.shape[1]):
        total = total + weights[:, a] * x[:, a]
    return total


def _linear_system(mdps: MDPs, policy: jax.Array) -> tuple[jax.Array, jax.Array]:
    """I - gamma P^pi and R^pi."""
    identity = jnp.eye(mdps.P.shape[0])[:, :, None]
    M = identity - mdps.gamma * _sum_over_actions(policy, mdps.P)
    return M, _sum_over_actions(policy, mdps.R)


def _solve(mdps: MDPs, policy: jax.Array, *, both: bool) -> tuple[jax.Array, jax.Array | None]:
    M, r = _linear_system(mdps, policy)
    if M.shape[0] > UNROLL_LIMIT:
        return library_solve(M, r, mdps.d0, both=both)
    return back_substitute(eliminate(M, r, mdps.d0), both=both)


def objective(mdps: MDPs, policy: jax.Array) -> jax.Array:
    """g_d0(pi) = d0 (I - gamma P^pi)^-1 R^pi in each lane."""
    M, r = _linear_system(mdps, policy)
    if M.shape[0] > UNROLL_LIMIT:
        V, _ = library_solve(M, r, mdps.d0, both=False)
        return jnp.sum(mdps.d0 * V, axis=0)
    return quadratic_form(eliminate(M, r, mdps.d0))


def values(mdps: MDPs, policy: jax.Array) -> jax.Array:
    """V^pi (S, lanes)."""
    V, _ = _solve(mdps, policy, both=False)
    return V


def values_and_visits(mdps: MDPs, policy: jax.Array) -> tuple[jax.Array, jax.Array]:
    """V^pi and the discounted visits d0 (I - gamma P^pi)^-1 = d_pi / (1 - gamma); (S, lanes)."""
    V, visits = _solve(mdps, policy, both=True)
    assert visits is not None
    return V, visits
