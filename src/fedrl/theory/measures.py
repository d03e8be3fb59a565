"""How different are the environments? kappa_1, kappa_2, and Lemmas 1 and 2 on sampled policies."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedrl.errors import FedrlError
from fedrl.tabular.problems import transitions
from fedrl.theory.policies import (
    Floats,
    Problem,
    checked,
    gradients,
    random_policies,
    values,
)

# Rounding of the solves, relative to the largest value.
ROUNDING = 1e-10


def kappa1(P: ArrayLike) -> float:
    """max_{s, pi} sum_s' sum_i |P_i^pi(s'|s) - mean P^pi(s'|s)|, exactly.

    The sum is convex in pi(.|s), so its maximum sits at a single action.
    """
    each = transitions("P", P)[0]
    if np.ndim(P) != 4:
        raise FedrlError(f"P must have shape (n, S, A, S), got {np.shape(P)}")
    return float(np.abs(each - each.mean(axis=0)).sum(axis=(0, 3)).max())


class Kappa2(NamedTuple):
    """kappa_2 lies between the two; the lower bound is attained by `policy`."""

    lower: float
    upper: float
    policy: Floats


def kappa2(
    P: ArrayLike,
    R: ArrayLike,
    gamma: float,
    d0: ArrayLike | None = None,
    *,
    starts: int = 16,
    steps: int = 60,
    seed: int = 0,
) -> Kappa2:
    """max_pi mean_i ||grad g_i(pi) - mean_j grad g_j(pi)||_2, from below and from above.

    From below: the largest value that ascent from `starts` policies has met; it is a value of the
    function, so the maximum cannot be smaller. From above: `kappa2_upper`.
    """
    problem = checked(P, R, gamma, d0)
    S, A = problem.R.shape
    policies = random_policies(np.random.default_rng(seed), starts, S, A)
    corners = np.eye(A)
    best = dissimilarity(policies, *problem)
    length = np.ones(starts)
    for _ in range(steps):
        # All moves of one state towards one action, and the best of them: the function has kinks
        # where environments agree, so this needs no gradient. State by state, to spare memory.
        improved = best.copy()
        chosen = policies.copy()
        for s in range(S):
            moves = np.repeat(policies[:, None], A, axis=1)
            moves[:, :, s] += length[:, None, None] * (corners - policies[:, None, s])
            moved = dissimilarity(moves, *problem)
            best_moves = moves[np.arange(starts), moved.argmax(axis=1)]
            better = moved.max(axis=1) > improved
            chosen = np.where(better[:, None, None], best_moves, chosen)
            improved = np.maximum(improved, moved.max(axis=1))
        length = np.where(improved > best, length, length / 2)
        policies, best = chosen, improved
        if length.max() < 1e-3:
            break
    winner = int(best.argmax())
    upper = kappa2_upper(problem.P, problem.R, problem.gamma)
    return Kappa2(float(best[winner]), upper, policies[winner])


def dissimilarity(policies: Floats, P: Floats, R: Floats, gamma: float, d0: Floats) -> Floats:
    """mean_i ||grad g_i - mean_j grad g_j||_2 at each policy."""
    each = gradients(policies, P, R, gamma, d0)
    apart = each - each.mean(axis=-3, keepdims=True)
    distance: Floats = np.sqrt((apart**2).sum(axis=(-1, -2))).mean(axis=-1)
    return distance


def kappa2_upper(P: Floats, R: Floats, gamma: float) -> float:
    """An analytic bound on kappa_2 from distances of transition probabilities.

    With delta_i = max_{s,a} ||P_i(.|s,a) - P_bar(.|s,a)||_1, visits differ from those in the
    imaginary environment by at most gamma delta_i / (1 - gamma)^2 in the 1-norm and Q by at most
    gamma delta_i span(R) / (2 (1 - gamma)^2), so that the gradients differ by at most
    b_i = gamma sqrt(A) delta_i (max|R| + span(R)/2) / (1 - gamma)^3; and the mean distance to the
    mean is at most the root of the mean of b_i^2. Each gradient is also at most
    sqrt(A) max|R| / (1 - gamma)^2 long.
    """
    delta = np.abs(P - P.mean(axis=0)).sum(axis=3).max(axis=(1, 2))
    largest, span = np.abs(R).max(), R.max() - R.min()
    root_A = np.sqrt(R.shape[1])
    by_distance = gamma * root_A * delta * (largest + span / 2) / (1 - gamma) ** 3
    by_length = root_A * largest / (1 - gamma) ** 2
    return float(min(np.sqrt((by_distance**2).mean()), by_length))


def smoothness(R: ArrayLike, gamma: float) -> float:
    """L = 2 gamma |A| span(R) / (1 - gamma)^3, the smoothness of g_d0 along the simplex.

    Of the gradient only what lies along the simplex counts: a constant reward adds to the rest.
    """
    rewards = np.asarray(R, dtype=float)
    span = rewards.max() - rewards.min()
    return float(2 * gamma * rewards.shape[-1] * span / (1 - gamma) ** 3)


class LemmaCheck(NamedTuple):
    """What sampled policies say."""

    policies: int
    violations_of_lemma1: float  # share of policies with mean_i V_i(s) < V_I(s) in some state
    worst_violation: float  # the largest V_I(s) - mean_i V_i(s); <= 0 if there is none
    policy: Floats  # the policy of the worst violation
    state: int  # and its state
    largest_difference: float  # max |mean_i V_i(s) - V_I(s)|, which Lemma 2 bounds


def check_lemmas(problem: Problem, *, policies: int = 500, seed: int = 0) -> LemmaCheck:
    """Compare mean_i V_i^pi with V_I^pi in every state, for random policies."""
    P, R, gamma, _ = problem
    sampled = random_policies(np.random.default_rng(seed), policies, *R.shape)
    real = values(sampled, P, R, gamma).mean(axis=1)
    imaginary = values(sampled, P.mean(axis=0)[None], R, gamma)[:, 0]
    excess = imaginary - real
    noise = ROUNDING * (1 + np.abs(imaginary).max())
    worst = np.unravel_index(excess.argmax(), excess.shape)
    return LemmaCheck(
        policies,
        float((excess.max(axis=1) > noise).mean()),
        float(excess.max()),
        sampled[worst[0]],
        int(worst[1]),
        float(np.abs(excess).max()),
    )
