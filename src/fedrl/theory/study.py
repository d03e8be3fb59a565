"""Everything the theory says about one problem, beside what is measured."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedrl import tabular
from fedrl.errors import FedrlError
from fedrl.theory.bounds import lemma2, lemma2_sharp, theorem2_schedule, theorem3_objective
from fedrl.theory.measures import Kappa2, LemmaCheck, check_lemmas, kappa1, kappa2, smoothness
from fedrl.theory.oracle import Oracle, oracle
from fedrl.theory.policies import Problem, gradients, normalised, q_values, values
from fedrl.theory.trajectories import BoundCurve, theorem2_curve, theorem3_curves

PERIODS = (1, 4, 16)
ITERATIONS = 1000
KAPPAS = (0.0, 0.25, 0.5, 0.75, 1.0)
# Algorithms whose gap to the oracle is measured.
GAP_RUNS = ("qavg", "softpavg", "projpavg")
# Enough for QAvg to take the trap's chain, worth 1 % more than the safe action, also at E = 4.
GAP_ITERATIONS, GAP_E, SEEDS = 8000, 4, 8


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
    P, R, gamma, d0 = problem
    span = float(np.ptp(R))
    if span == 0 or gamma == 0:
        raise FedrlError(
            "R must not be constant and gamma must be positive: otherwise all policies, or all "
            "environments, are equally good, and the theorems say nothing"
        )
    scaled = normalised(problem)
    step("heterogeneity")
    one = kappa1(P)
    # With the rewards in [0, 1] for which Theorem 3 is stated: kappa_2 changes with a shift of R.
    two = kappa2(*scaled, seed=seed)
    step("lemmas")
    lemmas = check_lemmas(problem, seed=seed)
    rng = np.random.default_rng(seed)
    # The initial tables of Theorem 2 lie between the smallest and the largest possible return.
    low, high = R.min() / (1 - gamma), R.max() / (1 - gamma)
    curves = []
    for E in PERIODS:
        step(f"theorems, E = {E}")
        init = rng.uniform(low, high, size=R.shape)
        curves.append(theorem2_curve(problem, E, ITERATIONS, init, span=span))
        # To test a bound, the smallest value that kappa_2 can have; to promise one, the largest.
        curves.append(theorem3_curves(scaled, E, ITERATIONS, two.lower, span=span)["mended"])
    promised = theorem3_curves(scaled, 1, ITERATIONS, two.upper)["mended"].bound[-1:]
    objective_bound = theorem3_objective(promised, d0, gamma, R.shape[1], two.upper)
    gaps = []
    for kappa in KAPPAS:
        step(f"oracle, kappa = {kappa:g}")
        mixed = problem._replace(P=kappa * P + (1 - kappa) * P.mean(axis=0))
        best = oracle(*mixed, nodes=2000 if kappa == 1 else 200, seed=seed)
        gaps += _gaps(mixed, kappa, best, seed)
    return Study(
        kappa1=one,
        kappa2=two,
        smoothness=smoothness(R, gamma),
        lemmas=lemmas,
        lemma2=lemma2(one, gamma, span),
        lemma2_sharp=lemma2_sharp(one, gamma, len(P), span),
        curves=curves,
        objective_bound=float(objective_bound[0]) * span,
        oracle=best,
        gaps=gaps,
    )


def _gaps(problem: Problem, kappa: float, best: Oracle, seed: int) -> list[Gap]:
    """Runs on rewards scaled to [0, 1], whose step sizes are easy to say."""
    scaled = normalised(problem)
    # QAvg by Theorem 2; the policy gradients with constant steps that move the uniform policy by at
    # most a tenth, and equal logits by at most a half, in the first update.
    uniform = np.full(scaled.R.shape, 1 / scaled.R.shape[1])
    slopes = gradients(uniform, *scaled)
    tangent = np.abs(slopes - slopes.mean(axis=-1, keepdims=True)).max()
    V = values(uniform, *scaled[:3])
    advantage = np.abs(q_values(V, *scaled[:3]) - V[..., None]).max() / (1 - scaled.gamma)
    steps = {
        "qavg": theorem2_schedule(np.arange(GAP_ITERATIONS), GAP_E, problem.gamma),
        "softpavg": 0.5 / max(advantage, 1e-9),
        "projpavg": 0.1 / max(tangent, 1e-9),
    }
    gaps = []
    for algorithm in GAP_RUNS:
        result = tabular.run(
            algorithm,
            np.repeat(scaled.P[None], SEEDS, axis=0),
            scaled.R,
            gamma=problem.gamma,
            d0=problem.d0,
            E=GAP_E,
            iterations=GAP_ITERATIONS,
            lr=steps[algorithm],
            update="q",
            seed=seed,
        )
        reached = float(np.mean(tabular.objective(result.policy, *problem)))
        gaps.append(Gap(kappa, algorithm, reached, best.objective - reached, best.gap))
    return gaps
