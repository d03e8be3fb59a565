"""The best single policy of a small problem, and how far from it we may still be.

Upper bounds come from branch and bound over boxes of policies: if every environment may choose its
own policy within a box, the mean of their optima bounds every common policy in the box.
"""

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrl.theory.policies import (
    Floats,
    Problem,
    checked,
    gradients,
    objectives,
    optimal,
    project,
    q_values,
    random_policies,
    values,
)

# Deterministic policies are enumerated up to this many.
ENUMERABLE = 50_000
BATCH = 64


@dataclass(frozen=True)
class Oracle:
    """The best policies found, and bounds on what any policy can reach."""

    policy: Floats
    """Best policy found, (S, A)."""
    objective: float
    """What it reaches."""
    upper: float
    """No policy, stochastic or not, reaches more than this."""
    deterministic: float
    """What the best deterministic policy found reaches."""
    deterministic_is_exact: bool
    """Whether all deterministic policies were looked at."""
    own_optima: float
    """Mean of what each environment's own optimal policy reaches in it: the first upper bound."""

    @property
    def gap(self) -> float:
        """How much better than `objective` the best policy can be."""
        return max(self.upper - self.objective, 0.0)


def oracle(
    P: ArrayLike,
    R: ArrayLike,
    gamma: float,
    d0: ArrayLike | None = None,
    *,
    restarts: int = 32,
    nodes: int = 2000,
    tolerance: float = 1e-6,
    seed: int = 0,
) -> Oracle:
    """The best single policy for g_d0.

    Args:
        P: transition probabilities, (n, S, A, S).
        R: rewards, (S, A).
        gamma: discount factor in [0, 1).
        d0: initial state distribution; uniform if None.
        restarts: projected gradient ascents from random policies.
        nodes: boxes that branch and bound may look at to lower the upper bound.
        tolerance: gap, as a part of the span of returns, at which to stop.
        seed: root of the random starts.

    """
    problem = checked(P, R, gamma, d0)
    rng = np.random.default_rng(seed)
    S, A = problem.R.shape
    # Random policies, and those that are optimal in one environment or in the imaginary one.
    alone = [optimal(each, problem.R, gamma) for each in (*problem.P, problem.P.mean(axis=0))]
    starts = np.concatenate(
        [random_policies(rng, restarts, S, A), np.eye(A)[np.argmax(alone, axis=-1)]]
    )
    policies, reached = _ascend(starts, problem)
    corner, corner_value, exact = _best_deterministic(problem, policies.argmax(axis=-1))
    best = int(reached.argmax())
    policy, value = policies[best], float(reached[best])
    if corner_value >= value:
        policy, value = corner, corner_value
    small = tolerance * max(np.ptp(problem.R) / (1 - gamma), 1e-12)
    own, upper, policy, value = _tighten(problem, policy, value, nodes, small)
    return Oracle(policy, value, upper, corner_value, exact, own)


def _best_deterministic(problem: Problem, actions: NDArray[np.int64]) -> tuple[Floats, float, bool]:
    """Of all, if they can be enumerated; otherwise the best found from `actions` (starts, S)."""
    S, A = problem.R.shape
    if A**S <= ENUMERABLE:
        best, value = np.zeros((S, A)), -np.inf
        for first in range(0, A**S, 4096):
            numbers = np.arange(first, min(first + 4096, A**S))
            these = np.eye(A)[numbers[:, None] // A ** np.arange(S) % A]
            reached = objectives(these, *problem)
            if reached.max() > value:
                best, value = these[reached.argmax()], float(reached.max())
        return best, value, True
    # Too many: change one state at a time for as long as that helps.
    actions = actions.copy()
    reached = objectives(np.eye(A)[actions], *problem)
    improving = True
    while improving:
        improving = False
        for s in range(S):
            trial = np.repeat(actions[:, None], A, axis=1)
            trial[:, :, s] = np.arange(A)
            value_of = objectives(np.eye(A)[trial], *problem)
            actions[:, s] = value_of.argmax(axis=1)
            improving |= bool((value_of.max(axis=1) > reached + 1e-12).any())
            reached = np.maximum(reached, value_of.max(axis=1))
    return np.eye(A)[actions[reached.argmax()]], float(reached.max()), False


def _ascend(policies: Floats, problem: Problem, steps: int = 400) -> tuple[Floats, Floats]:
    """Projected gradient ascent from each policy; a step that does not help is taken back."""
    value = objectives(policies, *problem)
    length = np.ones(len(policies))
    for _ in range(steps):
        slope = gradients(policies, *problem).mean(axis=-3)
        norm = np.sqrt((slope**2).sum(axis=(1, 2), keepdims=True)) + 1e-300
        trial = project(policies + length[:, None, None] * slope / norm)
        reached = objectives(trial, *problem)
        better = reached > value
        policies = np.where(better[:, None, None], trial, policies)
        value = np.maximum(value, reached)
        length = np.where(better, length * 1.5, length / 2)
        if length.max() < 1e-9:
            break
    return policies, value


def _best_in_box(Q: Floats, low: Floats, high: Floats) -> Floats:
    """argmax of sum_a pi(a|s) Q(s, a) over low <= pi <= high: fill up the best actions first."""
    order = np.argsort(-Q, axis=-1, kind="stable")
    room = np.take_along_axis(np.broadcast_to(high - low, Q.shape), order, axis=-1)
    left = 1 - low.sum(axis=-1, keepdims=True)
    before = np.cumsum(room, axis=-1) - room
    filled = np.clip(left - before, 0, room)
    extra = np.empty_like(filled)
    np.put_along_axis(extra, order, filled, axis=-1)
    filled_up: Floats = low + extra
    return filled_up


def _bound_boxes(
    problem: Problem, low: Floats, high: Floats, iterations: int = 60
) -> tuple[Floats, Floats]:
    """For boxes (N, S, A): an upper bound on every common policy, and each environment's best.

    Policy iteration within the box; what is left of the Bellman error is added to the bound.
    """
    P, R, gamma, d0 = problem
    n = len(P)
    rewards = np.broadcast_to(R, (len(low), n, *R.shape))
    policies = _best_in_box(rewards, low[:, None], high[:, None])
    for _ in range(iterations):
        V = np.stack([values(policies[:, i], P[i : i + 1], R, gamma)[:, 0] for i in range(n)], 1)
        Q = q_values(V, P, R, gamma)
        greedy = _best_in_box(Q, low[:, None], high[:, None])
        error = ((greedy * Q).sum(axis=-1) - V).max(axis=-1)
        if error.max() <= 1e-11 * (1 + np.abs(V).max()):
            break
        policies = greedy
    upper = (V @ d0 + np.maximum(error, 0) / (1 - gamma)).mean(axis=-1)
    return upper, policies


def _tighten(
    problem: Problem, policy: Floats, value: float, nodes: int, small: float
) -> tuple[float, float, Floats, float]:
    """Branch and bound over boxes: (own optima, upper bound, best policy, its value)."""
    S, A = problem.R.shape
    low, high = np.zeros((1, S, A)), np.ones((1, S, A))
    bounds, inside = _bound_boxes(problem, low, high)
    own = float(bounds[0])
    heap = [(-own, 0, low[0], high[0], inside[0])]
    made, dropped = 1, False
    while heap and made < nodes and -heap[0][0] > value + small:
        lows, highs = [], []
        for _ in range(min(BATCH, len(heap))):
            bound, _, low_box, high_box, each = heapq.heappop(heap)
            if -bound <= value + small:
                dropped = True
                continue
            s, a = _where_they_disagree(each, low_box, high_box)
            # The half of the box with less of the action, and the half with more.
            less, more = high_box.copy(), low_box.copy()
            less[s, a] = more[s, a] = (low_box[s, a] + high_box[s, a]) / 2
            lows += [low_box, more]
            highs += [less, high_box]
        if not lows:
            break
        low, high = np.array(lows), np.array(highs)
        possible = (low.sum(axis=-1) <= 1).all(axis=-1) & (high.sum(axis=-1) >= 1).all(axis=-1)
        low, high = low[possible], high[possible]
        bounds, inside = _bound_boxes(problem, low, high)
        common = inside.mean(axis=1)
        reached = objectives(common, *problem)
        if reached.max() > value:
            value, policy = float(reached.max()), common[reached.argmax()]
        for i in range(len(low)):
            heapq.heappush(heap, (-float(bounds[i]), made, low[i], high[i], inside[i]))
            made += 1
    upper = max(value + small if dropped else value, -heap[0][0] if heap else -np.inf)
    return own, min(own, upper), policy, value


def _where_they_disagree(each: Floats, low: Floats, high: Floats) -> tuple[int, int]:
    """The state and action on which the environments' own policies differ most."""
    apart = each.max(axis=0) - each.min(axis=0)
    if apart.max() <= 1e-9:
        apart = high - low
    s, a = np.unravel_index(apart.argmax(), apart.shape)
    return int(s), int(a)
