"""The paper's statements, each with the instance that decides it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedrl import tabular
from fedrl.tabular.families import Doors, ImaginaryIsBetter, QAvgTrap, RandomMDPs, StartMatters
from fedrl.tabular.families.counterexamples import Counterexample
from fedrl.theory.bounds import lemma2, lemma2_sharp, theorem2, theorem2_schedule
from fedrl.theory.measures import LemmaCheck, check_lemmas, kappa1, kappa2
from fedrl.theory.oracle import oracle
from fedrl.theory.policies import Problem, checked, normalised, project, values
from fedrl.theory.trajectories import theorem2_curve, theorem3_curves


class Statement(NamedTuple):
    """A statement of the paper and what we find."""

    name: str
    says: str
    holds: bool | None  # None: neither proven nor refuted
    evidence: str


def _problem(example: Counterexample, d0: ArrayLike | None = None) -> Problem:
    return checked(*example.matrices(), example.gamma, example.d0() if d0 is None else d0)


def theorem1(leak: float = 0.0) -> Statement:
    """The policy that is best from s0 is not the best from s1."""
    example = StartMatters(leak=leak)
    from_s0, from_s1 = _problem(example), _problem(example, [0.0, 1.0])
    best_0, best_1 = oracle(*from_s0), oracle(*from_s1)
    # The maximiser from s0 is not unique: give it its best chance from s1 by fixing only what s0
    # decides, its choice in s1.
    with_that_choice = [np.array([[p, 1 - p], best_0.policy[1]]) for p in np.linspace(0, 1, 201)]
    reached = max(float(tabular.objective(pi, *from_s1)) for pi in with_that_choice)
    return Statement(
        "Theorem 1" if leak == 0 else f"Theorem 1, leak {leak:g}",
        "no policy is best for every d0",
        reached < best_1.objective - 1e-6,
        f"best from s1: {best_1.objective:.1f}; with the choice in s1 that is best from s0: "
        f"{reached + 0.0:.1f}",
    )


def lemma1(sampled: Sequence[LemmaCheck]) -> list[Statement]:
    """mean_i V_i >= V_I, in the example and in random problems."""
    P, R, gamma, _ = _problem(ImaginaryIsBetter())
    only = np.ones((4, 1))
    real = values(only, P, R, gamma).mean(axis=0)[0]
    imaginary = values(only, P.mean(axis=0)[None], R, gamma)[0, 0]
    rates = [seen.violations_of_lemma1 for seen in sampled]
    says = "mean_i V_i(s) >= V_I(s)"
    return [
        Statement(
            "Lemma 1",
            says,
            bool(real >= imaginary),
            f"{ImaginaryIsBetter.name}: mean V(s0) = {real:g}, V_I(s0) = {imaginary:g}",
        ),
        Statement(
            "Lemma 1, random",
            says,
            max(rates) == 0,
            f"violated by {np.mean(rates):.0%} of policies in {len(sampled)} RandomMDPs",
        ),
    ]


def qavg_trap() -> Statement:
    """QAvg's limit is the optimum of the imaginary environment; is that good for the real ones?"""
    P, R, gamma, d0 = problem = _problem(QAvgTrap())
    result = tabular.run("qavg", P, R, gamma=gamma, d0=d0, iterations=400, lr=1.0, update="q")
    reached, best = result.objective[-1], oracle(*problem).objective
    return Statement(
        "QAvg trap",
        "the optimum of the imaginary environment is good in the real ones",
        bool(reached >= best - 1e-9),
        f"{QAvgTrap.name}: QAvg earns {reached + 0.0:g}, {best:g} is possible",
    )


def lemma2_statement(problems: Sequence[Problem], sampled: Sequence[LemmaCheck]) -> Statement:
    """Both bounds on random problems."""
    slack, sharp = [], []
    for (P, R, gamma, _), seen in zip(problems, sampled, strict=True):
        span, one = float(np.ptp(R)), kappa1(P)
        slack.append(lemma2(one, gamma, span) / seen.largest_difference)
        sharp.append(lemma2_sharp(one, gamma, len(P), span) / seen.largest_difference)
    return Statement(
        "Lemma 2",
        "|mean_i V_i - V_I| <= gamma kappa_1 / (1 - gamma)^2",
        min(sharp) >= 1,
        f"{len(problems)} RandomMDPs: bound / seen >= {min(slack):.0f}; in the sharp form "
        f">= {min(sharp):.1f}",
    )


def theorem2_statements(problems: Sequence[Problem], iterations: int = 100) -> list[Statement]:
    """The bound at every t, with eta clipped at 1 and without, and for a small gamma."""
    rng = np.random.default_rng(0)

    def worst(problem: Problem, E: int, *, clip: bool) -> float:
        init = rng.uniform(0, problem.R.max() / (1 - problem.gamma), size=problem.R.shape)
        return 1 / theorem2_curve(problem, E, iterations, init, clip=clip).slack

    clipped = max(worst(problem, E, clip=True) for problem in problems for E in range(1, 33))
    unclipped = max(worst(problem, 1, clip=False) for problem in problems)
    t = np.zeros(1, np.int64)
    first_step = theorem2_schedule(t, 1, problems[0].gamma, clip=False)[0]
    # One absorbing state that pays 1, from Q = 0, at gamma 0.05.
    start, promise = 1 / (1 - 0.05), float(theorem2(t, 1, 0.05)[0])
    says = "||Q_t - Q_I*|| <= 16 gamma E / ((1 - gamma)^3 (t + E))"
    return [
        Statement(
            "Theorem 2, eta <= 1",
            says,
            clipped <= 1,
            f"{len(problems)} RandomMDPs, E = 1, 2, ..., 32: error / bound at most {clipped:.2g}",
        ),
        Statement(
            "Theorem 2, unclipped",
            says,
            unclipped <= 1,
            f"E = 1, first step {first_step:.0f}: error / bound up to {unclipped:.0f}",
        ),
        Statement(
            "Theorem 2, small gamma",
            says,
            start <= promise,
            f"a state that pays 1 for ever, gamma 0.05, from Q = 0: error {start:.3f}, bound "
            f"{promise:.3f}; 16 gamma >= (1 - gamma)^2 is needed",
        ),
    ]


def gradient_mapping() -> Statement:
    """The step of Theorem 3's proof that takes G for as smooth as the objective."""
    # A linear objective (L = 0) on one state and two actions: a single environment, gamma 0.
    eta, slope = 0.1, np.array([1.0, 0.0])
    policies = np.eye(2)
    each = (project(policies + eta * slope) - policies) / eta
    mean = policies.mean(axis=0)
    of_mean = (project(mean + eta * slope) - mean) / eta
    distance = float(np.linalg.norm(each.mean(axis=0) - of_mean))
    return Statement(
        "Theorem 3, its proof",
        "||mean_k G(pi_k) - G(mean pi)|| <= L mean_k ||pi_k - mean pi||",
        distance <= 1e-12,
        f"linear objective, L = 0, two deterministic policies: {distance:.3f} > 0. The bound is "
        "proven for E = 1, where all pi_k are equal",
    )


def theorem3_statements(problems: Sequence[Problem], iterations: int = 300) -> list[Statement]:
    """The bound on the gradient mapping, as the appendix has it and mended, and its consequence."""
    slack = {"appendix": np.inf, "mended": np.inf}
    for problem in map(normalised, problems):
        lower = kappa2(*problem).lower
        for E in (1, 4, 16):
            for form, curve in theorem3_curves(problem, E, iterations, lower).items():
                slack[form] = min(slack[form], curve.slack)
    where = f"{len(problems)} RandomMDPs, E = 1, 4, 16: measured / bound at most"
    says = "min_t ||G||^2 = O(kappa_2 + T^-1/2)"
    return [
        *(
            Statement(f"Theorem 3, {form}", says, least >= 1, f"{where} {1 / least:.2g}")
            for form, least in slack.items()
        ),
        Statement(
            "Theorem 3, objective",
            "the gap is O(kappa_2 + T^-1/2)",
            None,
            "the appendix bounds ||G||^2, and the gap by ||G||: what follows is "
            "sqrt(kappa_2) + T^-1/4",
        ),
        gradient_mapping(),
    ]


def stochastic_optimum() -> Statement:
    """Is the best single policy deterministic, as in one MDP?"""
    found = {doors: oracle(*_problem(Doors(doors=doors)), nodes=1) for doors in (2, 4)}
    return Statement(
        "Optimum",
        "the best single policy can be taken deterministic",
        all(best.objective <= best.deterministic + 1e-9 for best in found.values()),
        "; ".join(
            f"{doors} {Doors.name}: deterministic {best.deterministic:.3f}, "
            f"stochastic {best.objective:.3f}"
            for doors, best in found.items()
        ),
    )


def all_statements() -> list[Statement]:
    """Every statement that an example or random problems decide."""
    task = RandomMDPs().task(agents=5, seeds=20)
    pairs = zip(task.P, task.R, strict=True)
    problems = [checked(P, R, task.gamma, task.d0) for P, R in pairs]
    sampled = [check_lemmas(problem) for problem in problems]
    return [
        theorem1(),
        # The leak must be small: at 0.01 it pays to leave s1 also for those who start in s0.
        theorem1(leak=1e-5),
        *lemma1(sampled),
        qavg_trap(),
        lemma2_statement(problems, sampled),
        *theorem2_statements(problems),
        *theorem3_statements(problems[:3]),
        stochastic_optimum(),
    ]
