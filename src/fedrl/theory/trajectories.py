"""What the theorems bound, measured at every local update of a run."""

from typing import NamedTuple

import numpy as np

from fedrl.theory.policies import (
    Floats,
    gradients,
    objectives,
    optimal,
    own_gradients,
    project,
)
from fedrl.theory.problem import Problem


def qavg_errors(problem: Problem, E: int, lr: Floats, init: Floats) -> Floats:
    """||Q_bar_t - Q_I*||_inf for t = 0, 1, ..., len(lr), of QAvg with the paper's Q update."""
    P, R, gamma, _ = problem
    limit = optimal(P.mean(axis=0), R, gamma)
    Q = np.repeat(init[None], len(P), axis=0)
    errors = [np.abs(init - limit).max()]
    for t, eta in enumerate(lr):
        target = R + gamma * np.einsum("nsat,nt->nsa", P, Q.max(axis=2))
        Q = (1 - eta) * Q + eta * target
        mean = Q.mean(axis=0)
        if (t + 1) % E == 0:
            Q = np.repeat(mean[None], len(P), axis=0)
        errors.append(np.abs(mean - limit).max())
    return np.array(errors)


class PAvgTrace(NamedTuple):
    """Entry t belongs to the average of the policies after t local updates."""

    gradient: Floats  # ||G^eta_t(pi_bar_t)||^2, for t < T
    objective: Floats  # g_d0(pi_bar_t), for t <= T


def pavg_trace(problem: Problem, E: int, lr: Floats, init: Floats) -> PAvgTrace:
    """The gradient mapping of Theorem 3 along ProjPAvg."""
    policies = np.repeat(init[None], len(problem.P), axis=0)
    gradient, reached = [], [float(objectives(init, *problem))]
    for t, eta in enumerate(lr):
        mean = policies.mean(axis=0)
        slope = gradients(mean, *problem).mean(axis=0)
        gradient.append(float((((project(mean + eta * slope) - mean) / eta) ** 2).sum()))
        policies = project(policies + eta * own_gradients(policies, *problem))
        if (t + 1) % E == 0:
            policies = np.repeat(policies.mean(axis=0)[None], len(policies), axis=0)
        reached.append(float(objectives(policies.mean(axis=0), *problem)))
    return PAvgTrace(np.array(gradient), np.array(reached))
