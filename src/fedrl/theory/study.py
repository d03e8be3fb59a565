"""Everything the theory says about one problem, beside what is measured."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedrl import tabular
from fedrl.errors import FedrlError
from fedrl.theory.bounds import (
    Times,
    lemma2,
    lemma2_sharp,
    theorem2,
    theorem2_schedule,
    theorem3_gradient_mended,
    theorem3_objective,
    theorem3_schedule,
)
from fedrl.theory.lemmas import LemmaCheck, check_lemmas
from fedrl.theory.measures import Kappa2, kappa1, kappa2, smoothness
from fedrl.theory.oracle import Oracle, oracle
from fedrl.theory.policies import Floats, gradients, values
from fedrl.theory.problem import Problem, normalised
from fedrl.theory.trajectories import pavg_trace, qavg_errors

PERIODS = (1, 4, 16)
ITERATIONS = 1000
KAPPAS = (0.0, 0.25, 0.5, 0.75, 1.0)
# Runs of the algorithms whose gap to the oracle is measured, on rewards scaled to [0, 1].
GAP_RUNS = ("qavg", "softpavg", "projpavg")
# Enough for QAvg to take the trap's chain, worth 1 % more than the safe action, also at E = 4.
GAP_ITERATIONS, GAP_E, SEEDS = 8000, 4, 8


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


@dataclass(frozen=True)
class Gap:
    """How far an algorithm ends below the best policy found, in the units of the rewards."""

    kappa: float
    """The environments are kappa P_k + (1 - kappa) P_bar."""
    algorithm: str
    """Name of the algorithm."""
    objective: float
    """Mean over initial tables of what it reaches."""
    gap: float
    """Best policy found minus that."""
    certificate: float
    """How much better than the best policy found any policy may be."""


@dataclass(frozen=True)
class Study:
    """The whole report on one problem."""

    problem: Problem
    """What was studied."""
    kappa1: float
    """Heterogeneity of transitions."""
    kappa2: Kappa2
    """Heterogeneity of gradients with the rewards scaled to [0, 1], from below and above."""
    smoothness: float
    """Lipschitz constant L of the gradient."""
    lemmas: LemmaCheck
    """Lemmas 1 and 2 on sampled policies."""
    lemma2: float
    """Lemma 2's bound, the paper's form."""
    lemma2_sharp: float
    """Lemma 2's bound, the sharp form."""
    curves: list[BoundCurve]
    """Theorems 2 and 3 over local updates, for each E."""
    objective_bound: float
    """Theorem 3's consequence for the objective after ITERATIONS updates at E = 1."""
    oracle: Oracle
    """The best single policy."""
    gaps: list[Gap]
    """How far each algorithm ends below it, for each kappa."""


def study(
    problem: Problem, *, seed: int = 0, step: Callable[[str], None] = lambda _: None
) -> Study:
    """Measure everything; `step` is told what is being done."""
    span = float(np.ptp(problem.R))
    if span == 0 or problem.gamma == 0:
        raise FedrlError(
            "R must not be constant and gamma must be positive: otherwise all policies, or all "
            "environments, are equally good, and the theorems say nothing"
        )
    scaled = normalised(problem)
    step("heterogeneity")
    one = kappa1(problem.P)
    # With the rewards in [0, 1] for which Theorem 3 is stated: kappa_2 changes with a shift of R.
    two = kappa2(*scaled, seed=seed)
    step("lemmas")
    lemmas = check_lemmas(problem, seed=seed)
    rng = np.random.default_rng(seed)
    curves = []
    for E in PERIODS:
        step(f"theorems, E = {E}")
        # To test a bound, the smallest value that kappa_2 can have; to promise one, the largest.
        curves += [_theorem2(problem, E, span, rng), _theorem3(scaled, E, two.lower, span)]
    promised = _theorem3(scaled, 1, two.upper, 1.0).bound[-1:]
    actions = problem.R.shape[1]
    objective_bound = theorem3_objective(promised, problem.d0, problem.gamma, actions, two.upper)
    gaps = []
    best = None
    for kappa in KAPPAS:
        step(f"oracle, kappa = {kappa:g}")
        mixed = kappa * problem.P + (1 - kappa) * problem.P.mean(axis=0)
        best = oracle(mixed, *problem[1:], nodes=2000 if kappa == 1 else 200, seed=seed)
        gaps += _gaps(problem._replace(P=mixed), kappa, best, seed)
    assert best is not None
    return Study(
        problem=problem,
        kappa1=one,
        kappa2=two,
        smoothness=smoothness(problem.R, problem.gamma),
        lemmas=lemmas,
        lemma2=lemma2(one, problem.gamma, span),
        lemma2_sharp=lemma2_sharp(one, problem.gamma, len(problem.P), span),
        curves=curves,
        objective_bound=float(objective_bound[0]) * span,
        oracle=best,
        gaps=gaps,
    )


def _theorem2(problem: Problem, E: int, span: float, rng: np.random.Generator) -> BoundCurve:
    t = np.arange(ITERATIONS + 1)
    # The theorem's initial tables lie between the smallest and the largest possible return.
    low, high = problem.R.min() / (1 - problem.gamma), problem.R.max() / (1 - problem.gamma)
    init = rng.uniform(low, high, size=problem.R.shape)
    lr = theorem2_schedule(t[:-1], E, problem.gamma)
    errors = qavg_errors(problem, E, lr, init)
    return BoundCurve("theorem 2", E, t, errors, theorem2(t, E, problem.gamma, span))


def _theorem3(scaled: Problem, E: int, kappa_2: float, span: float) -> BoundCurve:
    """On rewards in [0, 1], for which the theorem is stated; gradients scale with the span."""
    S, A = scaled.R.shape
    L = smoothness(scaled.R, scaled.gamma)
    lr = theorem3_schedule(np.arange(ITERATIONS), E, L)
    trace = pavg_trace(scaled, E, lr, np.full((S, A), 1 / A))
    t = np.arange(1, ITERATIONS + 1)
    rise = trace.objective[1:] - trace.objective[0]
    bound = theorem3_gradient_mended(t, E, scaled.gamma, A, L, kappa_2, rise)
    smallest = np.minimum.accumulate(trace.gradient)
    return BoundCurve("theorem 3", E, t, smallest * span**2, bound * span**2)


def _gaps(problem: Problem, kappa: float, best: Oracle, seed: int) -> list[Gap]:
    scaled = normalised(problem)
    P = np.repeat(scaled.P[None], SEEDS, axis=0)
    # QAvg by Theorem 2; the policy gradients with constant steps that move the uniform policy by at
    # most a tenth, and equal logits by at most a half, in the first update.
    A = scaled.R.shape[1]
    uniform = np.full(scaled.R.shape, 1 / A)
    slopes = gradients(uniform, *scaled)
    tangent = np.abs(slopes - slopes.mean(axis=-1, keepdims=True)).max()
    V = values(uniform, *scaled[:3])
    Q = scaled.R + scaled.gamma * np.einsum("nsat,nt->nsa", scaled.P, V)
    advantage = np.abs(Q - V[..., None]).max() / (1 - scaled.gamma)
    constant = np.ones(GAP_ITERATIONS)
    steps: dict[str, Floats] = {
        "qavg": theorem2_schedule(np.arange(GAP_ITERATIONS), GAP_E, problem.gamma),
        "softpavg": constant * 0.5 / max(advantage, 1e-9),
        "projpavg": constant * 0.1 / max(tangent, 1e-9),
    }
    gaps = []
    for algorithm in GAP_RUNS:
        result = tabular.run(
            algorithm,
            P,
            scaled.R,
            gamma=problem.gamma,
            d0=problem.d0,
            E=GAP_E,
            iterations=GAP_ITERATIONS,
            lr=steps[algorithm],
            update="q",
            seed=seed,
        )
        reached = tabular.objective(result.policy, problem.P, problem.R, problem.gamma, problem.d0)
        mean = float(np.mean(reached))
        gaps.append(Gap(kappa, algorithm, mean, best.objective - mean, best.gap))
    return gaps
