"""A problem, and exact values of batches of policies in it, in plain NumPy: clarity first.

Shapes: P (n, S, A, S), R (S, A), policies (..., S, A).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrl import arguments
from fedrl.errors import FedrlError
from fedrl.tabular.problems import checked_arrays

Floats = NDArray[np.float64]


class Problem(NamedTuple):
    """n environments with one reward table."""

    P: Floats  # (n, S, A, S)
    R: Floats  # (S, A)
    gamma: float
    d0: Floats  # (S,)


def checked(P: ArrayLike, R: ArrayLike, gamma: float, d0: ArrayLike | None = None) -> Problem:
    """The problem, or a FedrlError that names the argument."""
    arrays, seed_axis = checked_arrays(P, R, d0)
    if seed_axis:
        raise FedrlError("P, R and d0 must not have a seeds axis here: give one problem at a time")
    only_P, only_R, only_d0 = (np.asarray(x)[0] for x in arrays[:3])
    return Problem(only_P, only_R, arguments.discount(gamma), only_d0)


def normalised(problem: Problem) -> Problem:
    """The same problem with rewards in [0, 1]; the order of policies is unchanged."""
    low, span = problem.R.min(), np.ptp(problem.R)
    return problem._replace(R=(problem.R - low) / (span if span > 0 else 1.0))


def systems(policies: Floats, P: Floats, gamma: float) -> Floats:
    """I - gamma P_i^pi, (..., n, S, S)."""
    S = P.shape[1]
    flow: Floats = np.einsum("...sa,nsat->...nst", policies, P)
    return np.eye(S) - gamma * flow


def values(policies: Floats, P: Floats, R: Floats, gamma: float) -> Floats:
    """V_i^pi(s), (..., n, S)."""
    rewards = np.sum(policies * R, axis=-1)
    M = systems(policies, P, gamma)
    right = np.broadcast_to(rewards[..., None, :, None], (*M.shape[:-1], 1))
    V: Floats = np.linalg.solve(M, right)[..., 0]
    return V


def q_values(V: Floats, P: Floats, R: Floats, gamma: float) -> Floats:
    """R(s, a) + gamma sum_s' P_i(s' | s, a) V_i(s') of values (..., n, S), (..., n, S, A)."""
    Q: Floats = R + gamma * np.einsum("nsat,...nt->...nsa", P, V)
    return Q


def objectives(policies: Floats, P: Floats, R: Floats, gamma: float, d0: Floats) -> Floats:
    """g_d0(pi): mean over environments, (...)."""
    mean: Floats = (values(policies, P, R, gamma) @ d0).mean(axis=-1)
    return mean


def gradients(policies: Floats, P: Floats, R: Floats, gamma: float, d0: Floats) -> Floats:
    """grad g_d0,i(pi) in the direct parametrisation, (..., n, S, A): visits times Q."""
    V = values(policies, P, R, gamma)
    M = systems(policies, P, gamma)
    right = np.broadcast_to(d0[:, None], (*M.shape[:-1], 1))
    visits = np.linalg.solve(np.swapaxes(M, -1, -2), right)[..., 0]
    slopes: Floats = visits[..., None] * q_values(V, P, R, gamma)
    return slopes


def project(v: Floats) -> Floats:
    """The nearest policy: rows projected onto the simplex."""
    largest_first = -np.sort(-v, axis=-1)
    count = np.arange(1, v.shape[-1] + 1)
    tau = ((np.cumsum(largest_first, axis=-1) - 1) / count).max(axis=-1, keepdims=True)
    nearest: Floats = np.maximum(v - tau, 0.0)
    return nearest


def random_policies(rng: np.random.Generator, count: int, S: int, A: int) -> Floats:
    """Half of them uniform on the simplex, the rest deterministic."""
    inner = rng.dirichlet(np.ones(A), size=(count - count // 2, S))
    corners = np.eye(A)[rng.integers(A, size=(count // 2, S))]
    return np.concatenate([inner, corners])


def optimal(P: Floats, R: Floats, gamma: float) -> Floats:
    """Q* of one environment P (S, A, S), by policy iteration."""
    policy = np.eye(R.shape[1])[R.argmax(axis=1)]
    while True:
        V = values(policy, P[None], R, gamma)[0]
        Q: Floats = R + gamma * P @ V
        # Only a real improvement counts: ties must not make it go round in circles.
        better = Q.max(axis=1) > (Q * policy).sum(axis=1) + 1e-12 * (1 + np.abs(Q).max())
        if not better.any():
            return Q
        policy = np.where(better[:, None], np.eye(R.shape[1])[Q.argmax(axis=1)], policy)
