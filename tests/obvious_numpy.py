"""Tabular federated reinforcement learning written the obvious way, one table at a time.

The tests compare the fast implementation with this one and the benchmark is measured against it.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Run(NamedTuple):
    """What one seed leaves behind: the final average, its policy and the recorded curves."""

    table: Array
    policy: Array
    objective: Array
    baseline: Array


# Exact evaluation of one policy


def evaluate(policy: Array, P: Array, R: Array, gamma: float) -> Array:
    """State values of a policy in one environment, from the Bellman equations."""
    P_pi = np.einsum("sa,sat->st", policy, P)
    R_pi = np.sum(policy * R, axis=1)
    V: Array = np.linalg.solve(np.eye(len(R_pi)) - gamma * P_pi, R_pi)
    return V


def objective(policy: Array, Ps: Array, R: Array, gamma: float, d0: Array) -> float:
    """Return from d0, averaged over the environments."""
    total = 0.0
    for P in Ps:
        total += float(d0 @ evaluate(policy, P, R, gamma))
    return total / len(Ps)


def visits(policy: Array, P: Array, gamma: float, d0: Array) -> Array:
    """Expected discounted number of visits to every state; sums to 1 / (1 - gamma)."""
    P_pi = np.einsum("sa,sat->st", policy, P)
    counts: Array = np.linalg.solve((np.eye(len(d0)) - gamma * P_pi).T, d0)
    return counts


def action_values(V: Array, P: Array, R: Array, gamma: float) -> Array:
    """Q(s, a) when V is the value of what follows."""
    Q: Array = R + gamma * (P @ V)
    return Q


def advantages(policy: Array, P: Array, R: Array, gamma: float) -> Array:
    """Q(s, a) - V(s) of a policy in one environment."""
    V = evaluate(policy, P, R, gamma)
    return action_values(V, P, R, gamma) - V[:, None]


# From tables to policies


def project_row(v: Array) -> Array:
    """Probability vector nearest to v in Euclidean distance."""
    largest_first = np.sort(v)[::-1]
    running = 0.0
    shift = 0.0
    for k, value in enumerate(largest_first, start=1):
        running += float(value)
        candidate = (running - 1.0) / k
        if value > candidate:  # the k largest entries all stay positive
            shift = candidate
    projected: Array = np.maximum(v - shift, 0.0)
    return projected


def greedy(Q: Array) -> Array:
    """Deterministic policy that takes the first best action."""
    policy = np.zeros_like(Q)
    for s in range(len(Q)):
        policy[s, np.argmax(Q[s])] = 1.0
    return policy


def softmax(logits: Array) -> Array:
    """Softmax over the actions of every state."""
    weights = np.exp(logits - np.max(logits, axis=1, keepdims=True))
    policy: Array = weights / np.sum(weights, axis=1, keepdims=True)
    return policy


def policy_of(algorithm: str, table: Array) -> Array:
    """The policy that an algorithm's table stands for."""
    if algorithm == "qavg":
        return greedy(table)
    if algorithm == "projpavg":
        return table
    if algorithm == "softpavg":
        return softmax(table)
    raise ValueError(f"unknown algorithm {algorithm!r}")


# One local update


def q_update(Q: Array, P: Array, R: Array, gamma: float, lr: float) -> Array:
    """Damped Bellman optimality step on Q."""
    target = action_values(np.max(Q, axis=1), P, R, gamma)
    return (1.0 - lr) * Q + lr * target


def value_update(V: Array, P: Array, R: Array, gamma: float, lr: float) -> Array:
    """Damped Bellman optimality step on V."""
    target: Array = np.max(action_values(V, P, R, gamma), axis=1)
    return (1.0 - lr) * V + lr * target


def projected_update(pi: Array, P: Array, R: Array, gamma: float, d0: Array, lr: float) -> Array:
    """Gradient step on the policy table, then every state back onto the simplex."""
    Q = action_values(evaluate(pi, P, R, gamma), P, R, gamma)
    gradient = visits(pi, P, gamma, d0)[:, None] * Q
    moved = pi + lr * gradient
    projected = np.zeros_like(pi)
    for s in range(len(pi)):
        projected[s] = project_row(moved[s])
    return projected


def natural_update(logits: Array, P: Array, R: Array, gamma: float, lr: float) -> Array:
    """Natural gradient step on the logits."""
    return logits + lr * advantages(softmax(logits), P, R, gamma) / (1.0 - gamma)


def softmax_update(logits: Array, P: Array, R: Array, gamma: float, d0: Array, lr: float) -> Array:
    """Plain gradient step on the logits."""
    pi = softmax(logits)
    gradient = visits(pi, P, gamma, d0)[:, None] * pi * advantages(pi, P, R, gamma)
    return logits + lr * gradient


# The federated loop


def local_round(
    algorithm: str,
    variant: str,
    table: Array,
    P: Array,
    R: Array,
    gamma: float,
    d0: Array,
    steps: Array,
) -> Array:
    """One agent's updates between two communications, one for every step size in steps."""
    if algorithm == "qavg" and variant == "value":
        V: Array = np.max(table, axis=1)
        for lr in steps:
            V = value_update(V, P, R, gamma, float(lr))
        return action_values(V, P, R, gamma)
    for lr in steps:
        if algorithm == "qavg" and variant == "q":
            table = q_update(table, P, R, gamma, float(lr))
        elif algorithm == "projpavg":
            table = projected_update(table, P, R, gamma, d0, float(lr))
        elif algorithm == "softpavg" and variant == "natural":
            table = natural_update(table, P, R, gamma, float(lr))
        elif algorithm == "softpavg" and variant == "plain":
            table = softmax_update(table, P, R, gamma, d0, float(lr))
        else:
            raise ValueError(f"unknown algorithm {algorithm!r} with variant {variant!r}")
    return table


def mean_own_objective(
    algorithm: str, tables: list[Array], Ps: Array, R: Array, gamma: float, d0: Array
) -> float:
    """Mean over agents of the objective of each agent's own policy in all environments."""
    total = 0.0
    for table in tables:
        total += objective(policy_of(algorithm, table), Ps, R, gamma, d0)
    return total / len(tables)


def federated(
    algorithm: str,
    Ps: Array,
    R: Array,
    *,
    gamma: float,
    d0: Array,
    E: float,
    iterations: int,
    lr: float | Array,
    decay: float | None,
    init: Array,
    variant: str = "",
) -> Run:
    """Train one seed: E local updates per agent and round, then the server averages.

    With E = inf every update is recorded as a round, but the average is never sent back.
    """
    communicate = not math.isinf(E)
    round_length = int(E) if communicate else 1
    if round_length < 1:
        raise ValueError("E must be at least 1")
    step_sizes: Array = np.zeros(iterations)
    step_sizes[:] = lr

    tables = [init.copy() for _ in Ps]
    average = init.copy()
    curve = [objective(policy_of(algorithm, average), Ps, R, gamma, d0)]
    baseline: list[float] = []
    if not communicate:
        baseline.append(mean_own_objective(algorithm, tables, Ps, R, gamma, d0))

    factor = 1.0
    for r, start in enumerate(range(0, iterations, round_length)):
        if decay is not None and r > 2 and curve[r - 1] - curve[r - 2] < 0.001 * curve[r - 2]:
            factor *= decay
        steps = factor * step_sizes[start : start + round_length]
        for k, P in enumerate(Ps):
            tables[k] = local_round(algorithm, variant, tables[k], P, R, gamma, d0, steps)
        average = np.mean(tables, axis=0)
        curve.append(objective(policy_of(algorithm, average), Ps, R, gamma, d0))
        if communicate:
            tables = [average.copy() for _ in Ps]
        else:
            baseline.append(mean_own_objective(algorithm, tables, Ps, R, gamma, d0))

    return Run(average, policy_of(algorithm, average), np.array(curve), np.array(baseline))


def run_seeds(algorithm: str, Ps: Array, R: Array, init: Array, **settings: Any) -> list[Run]:
    """Train every seed, one after the other."""
    runs = []
    for seed in range(len(Ps)):
        runs.append(federated(algorithm, Ps[seed], R[seed], init=init[seed], **settings))
    return runs


# The windy cliff


def windy_cliff(theta: float, width: int = 4, height: int = 4) -> Array:
    """Transitions of the windy cliff; state y * width + x, actions up, down, left, right."""
    P = np.zeros((width * height, 4, width * height))
    for y in range(height):
        for x in range(width):
            s = y * width + x
            if y == 0 and x > 0:  # cliff or goal: back to the start
                P[s, :, 0] = 1.0
            else:
                up = s + width if y < height - 1 else s
                down = s - width if y > 0 else s
                left = s - 1 if x > 0 else s
                right = s + 1 if x < width - 1 else s
                P[s, 1, down] = 1.0
                for action, target in ((0, up), (2, left), (3, right)):
                    P[s, action, target] += 1.0 - theta / 3.0
                    P[s, action, down] += theta / 3.0
    return P


def windy_cliff_rewards(width: int = 4, height: int = 4) -> Array:
    """Rewards of the windy cliff: they depend on the state only."""
    R = np.zeros((width * height, 4))
    for y in range(height):
        for x in range(width):
            s = y * width + x
            if y == 0 and x == width - 1:
                R[s, :] = 100.0
            elif y == 0 and x > 0:
                R[s, :] = -100.0
            else:
                R[s, :] = -1.0
    return R
