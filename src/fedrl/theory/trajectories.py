"""What the theorems bound, measured at every local update of a run, beside the bounds."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedrl.theory import bounds
from fedrl.theory.bounds import Times
from fedrl.theory.measures import smoothness
from fedrl.theory.policies import (
    Floats,
    Problem,
    gradients,
    objectives,
    optimal,
    project,
    q_values,
)


def qavg_errors(problem: Problem, E: int, lr: Floats, init: Floats) -> Floats:
    """||Q_bar_t - Q_I*||_inf for t = 0, 1, ..., len(lr), of QAvg with the paper's Q update."""
    P, R, gamma, _ = problem
    limit = optimal(P.mean(axis=0), R, gamma)
    Q = np.repeat(init[None], len(P), axis=0)
    errors = [np.abs(init - limit).max()]
    for t, eta in enumerate(lr, start=1):
        Q = (1 - eta) * Q + eta * q_values(Q.max(axis=2), P, R, gamma)
        mean = Q.mean(axis=0)
        if t % E == 0:
            Q = np.repeat(mean[None], len(P), axis=0)
        errors.append(np.abs(mean - limit).max())
    return np.array(errors)


class PAvgTrace(NamedTuple):
    """Entry t belongs to the average of the policies after t local updates."""

    gradient: Floats  # ||G^eta_t(pi_bar_t)||^2, for t < T
    objective: Floats  # g_d0(pi_bar_t), for t <= T


def pavg_trace(problem: Problem, E: int, lr: Floats, init: Floats) -> PAvgTrace:
    """The gradient mapping of Theorem 3 along ProjPAvg."""
    n = len(problem.P)
    policies = np.repeat(init[None], n, axis=0)
    gradient, reached = [], [float(objectives(init, *problem))]
    for t, eta in enumerate(lr, start=1):
        mean = policies.mean(axis=0)
        slope = gradients(mean, *problem).mean(axis=0)
        gradient.append(float((((project(mean + eta * slope) - mean) / eta) ** 2).sum()))
        # Each agent's, in its own environment.
        slopes = [gradients(policies[i], problem.P[[i]], *problem[1:])[0] for i in range(n)]
        policies = project(policies + eta * np.stack(slopes))
        if t % E == 0:
            policies = np.repeat(policies.mean(axis=0)[None], n, axis=0)
        reached.append(float(objectives(policies.mean(axis=0), *problem)))
    return PAvgTrace(np.array(gradient), np.array(reached))


@dataclass(frozen=True)
class BoundCurve:
    """A measured quantity and its bound, over local updates."""

    theorem: str
    """`theorem 2` or `theorem 3`."""
    E: int
    """Local updates between communications."""
    t: Times
    """Local updates done."""
    measured: Floats
    """What was measured."""
    bound: Floats
    """What the theorem promises."""

    @property
    def holds(self) -> bool:
        return bool((self.measured <= self.bound).all())

    @property
    def slack(self) -> float:
        """The smallest ratio of bound and measurement; what is exactly zero does not count."""
        seen = self.measured > 0
        return float((self.bound[seen] / self.measured[seen]).min()) if seen.any() else np.inf


def theorem2_curve(
    problem: Problem, E: int, iterations: int, init: Floats, *, span: float = 1.0, clip: bool = True
) -> BoundCurve:
    """Errors of QAvg with the theorem's step sizes, from a table of returns that are possible."""
    t = np.arange(iterations + 1)
    lr = bounds.theorem2_schedule(t[:-1], E, problem.gamma, clip=clip)
    errors = qavg_errors(problem, E, lr, init)
    return BoundCurve("theorem 2", E, t, errors, bounds.theorem2(t, E, problem.gamma, span))


def theorem3_curves(
    problem: Problem, E: int, iterations: int, kappa2: float, *, span: float = 1.0
) -> dict[str, BoundCurve]:
    """The smallest gradient mapping so far and its bound, as the appendix has it and mended.

    From the uniform policy, on rewards in [0, 1]; gradients scale with the span.
    """
    S, A = problem.R.shape
    L = smoothness(problem.R, problem.gamma)
    t = np.arange(1, iterations + 1)
    lr = bounds.theorem3_schedule(t - 1, E, L)
    trace = pavg_trace(problem, E, lr, np.full((S, A), 1 / A))
    rise = trace.objective[1:] - trace.objective[0]
    smallest = np.minimum.accumulate(trace.gradient) * span**2
    forms = {"appendix": bounds.theorem3_gradient, "mended": bounds.theorem3_gradient_mended}
    curves = {}
    for form, bound in forms.items():
        promised = bound(t, E, problem.gamma, A, L, kappa2, rise) * span**2
        curves[form] = BoundCurve("theorem 3", E, t, smallest, promised)
    return curves
