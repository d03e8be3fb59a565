"""`fedrl.tabular.run` and its relatives: the Python interface to the exact algorithms."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from math import inf, isinf
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrl import arguments
from fedrl.errors import FedrlError, unknown_name
from fedrl.strategies.strategy import PLAIN, Strategy
from fedrl.tabular import checks
from fedrl.tabular.learners import ProjPAvg, QAvg, SampledQAvg, SoftPAvg, TabularLearner
from fedrl.tabular.problems import Floats, GivenProblems
from fedrl.tabular.replicates import Outcome, Schedule, lay_out, run_replicates
from fedrl.tabular.rounds import mean_objective

ALGORITHMS: dict[str, type] = {
    learner.name: learner for learner in (QAvg, ProjPAvg, SoftPAvg, SampledQAvg)
}
"""Learners by name; each is a dataclass of its settings."""


@dataclass(frozen=True, eq=False)
class Result:
    """What a federated run learned. With a seeds axis in the input, arrays have it in front."""

    policy: Floats
    """Policy of the averaged table, (S, A): probabilities of actions."""
    shared: Floats
    """The averaged table, (S, A): Q values, action probabilities or logits."""
    objective: Floats
    """Mean return of the averaged policy over the agents' environments, after 0, 1, ... rounds."""
    evaluation: Floats | None
    """The same in the environments of `evaluate_on`; None without."""
    iterations: NDArray[np.int64]
    """Local updates done at each entry of `objective`."""
    algorithm: TabularLearner
    """The learner and its settings."""
    _independent: Callable[[], Outcome] = field(repr=False)

    @cached_property
    def baseline(self) -> Floats:
        """The Baseline at the same iterations: independent learners, never averaged.

        The mean over agents i and environments j of agent i's policy in environment j. The
        independent run takes place when this is first asked for; with `decay`, its step size
        follows the objective of the averaged table after every update, as at E = inf.
        """
        record = self._independent().baseline[:, self.iterations]
        return record if self.objective.ndim == 2 else record[0]


def run(
    algorithm: str | TabularLearner,
    P: ArrayLike,
    R: ArrayLike,
    *,
    gamma: float,
    d0: ArrayLike | None = None,
    E: float | Literal["inf"] = 1,
    iterations: int,
    lr: checks.LearningRate,
    decay: float | None = None,
    init: ArrayLike | None = None,
    update: Literal["value", "q"] | None = None,
    evaluate_on: ArrayLike | None = None,
    support: ArrayLike | None = None,
    strategy: Strategy = PLAIN,
    seed: int = 0,
    **options: Any,
) -> Result:
    """Learn one policy for n environments that differ in their dynamics.

    Args:
        algorithm: `"qavg"`, `"projpavg"`, `"softpavg"` or `"sampled-qavg"`, or a learner.
        P: transition probabilities P(s' | s, a), (n, S, A, S) or (seeds, n, S, A, S).
        R: rewards, (S, A) or (seeds, S, A).
        gamma: discount factor in [0, 1).
        d0: initial state distribution, (S,) or (seeds, S); uniform if None.
        E: local updates between two communications; `inf`: never, the average is only evaluated.
        iterations: local updates of each agent; the last round is shorter if E does not divide it.
        lr: step size; a number, one number per iteration, or a function that is called once with
            the array t = 0, 1, ... and returns them.
        decay: factor on the step size of a seed at the start of each round r >= 3 for which
            objective[r-1] - objective[r-2] < 0.001 objective[r-2]; None: constant steps.
        init: initial table shared by all agents, (S, A) or (seeds, S, A); None draws the table of
            the paper's experiments from `seed`.
        update: QAvg's local update: `"value"` (default), damped value iteration and then one backup
            to Q, as in the released experiments, or `"q"`, Q <- (1 - lr) Q + lr T_k Q, as in the
            paper; the other algorithms have only one.
        evaluate_on: further environments to evaluate in, (m, S, A, S) or (seeds, m, S, A, S).
        support: which transitions are possible, booleans (S, A, S), for instance a family's
            `support()`: what is impossible is left out, which is faster where it is most of P. A
            program is compiled for each. None: anything is possible.
        strategy: how the agents' tables become one: `fedrl.strategies.Strategy` with a correction,
            an aggregator and a server optimizer; plain averaging unless given.
        seed: root of all random numbers.
        options: further settings of the learner: `gradient="natural" | "plain"` for softpavg,
            `epsilon` and `restart` for sampled-qavg.

    >>> import numpy as np
    >>> P = np.array([[[[0.9, 0.1]], [[0.2, 0.8]]], [[[0.5, 0.5]], [[0.2, 0.8]]]])
    >>> result = run("qavg", P, [[1.0], [0.0]], gamma=0.5, iterations=60, lr=1.0, update="q")
    >>> result.shared.round(3).tolist()  # value iteration in the mean environment
    [[1.6], [0.267]]

    """
    if update is not None:
        arguments.choice("update", update, ("value", "q"))
        if not isinstance(algorithm, str) or algorithm == QAvg.name:
            options = {"update": update, **options}
    learner = _learner(algorithm, options)
    table = None if init is None else checks.Table("init", init, isinstance(learner, ProjPAvg))
    arrays, seed_axis = checks.problems(P, R, d0, evaluate_on=evaluate_on, table=table)
    problems = GivenProblems(arrays, checks.possible(support, arrays))
    if decay is not None:
        decay = arguments.number("decay", decay, "a number in (0, 1] or None", lambda x: 0 < x <= 1)
    work = partial(
        run_replicates,
        *(learner, problems),
        gamma=arguments.discount(gamma),
        seed=arguments.whole("seed", seed, smallest=0, largest=2**32 - 1),
    )
    schedule = Schedule(
        lr=checks.step_sizes(lr, arguments.whole("iterations", iterations)),
        E=arguments.whole_or_inf("E", E),
        decay=decay,
    )
    arguments.of_kind("strategy", strategy, Strategy)
    agents = problems.size[0]
    strategy.check(agents, agents)
    if isinf(schedule.E):
        strategy.check_without_communication()
    outcome = work(schedule, strategy)

    def squeeze(x: Floats) -> Floats:
        return x if seed_axis else x[0]

    return Result(
        policy=squeeze(outcome.policy),
        shared=squeeze(outcome.table),
        objective=squeeze(outcome.objective),
        evaluation=None if evaluate_on is None else squeeze(outcome.evaluation),
        iterations=schedule.recorded_at,
        algorithm=learner,
        _independent=partial(work, replace(schedule, E=inf), with_baseline=True),
    )


def _learner(algorithm: str | TabularLearner, options: dict[str, Any]) -> TabularLearner:
    """A learner from its name and settings; an instance passes through."""
    if isinstance(algorithm, TabularLearner):
        if options:
            raise FedrlError(
                f"{next(iter(options))} belongs to the learner: set it where the learner is made"
            )
        return algorithm
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise unknown_name("algorithm", algorithm, ALGORITHMS)
    kind = ALGORITHMS[algorithm]
    settings = [field.name for field in fields(kind)]
    for name in options:
        if name not in settings:
            takes = ", ".join(settings) if settings else "none"
            raise FedrlError(
                f"unknown argument {name!r}: the settings of {algorithm!r} are {takes}"
            )
    learner: TabularLearner = kind(**options)
    return learner


@jax.jit
def _mean_objective(
    policy: jax.Array, P: jax.Array, R: jax.Array, gamma: jax.Array, d0: jax.Array
) -> jax.Array:
    mdps = lay_out(P, R, d0, gamma, sparsity=None)
    return mean_objective(mdps, jnp.moveaxis(policy, 0, -1))


def objective(
    policy: ArrayLike, P: ArrayLike, R: ArrayLike, gamma: float, d0: ArrayLike | None = None
) -> float | Floats:
    """Mean over environments of the discounted return of `policy` from d0 (eq. 1 of the paper).

    A number, or one per seed if any argument has a seeds axis.
    """
    table = checks.Table("policy", policy, probabilities=True)
    arrays, seed_axis = checks.problems(P, R, d0, table=table)
    checked_gamma = arguments.discount(gamma)
    with jax.enable_x64(True):
        result = _mean_objective(
            jnp.asarray(arrays.init),
            jnp.asarray(arrays.P),
            jnp.asarray(arrays.R),
            jnp.float64(checked_gamma),
            jnp.asarray(arrays.d0),
        )
    values = np.asarray(result)
    return values if seed_axis else float(values[0])


def imaginary(P: ArrayLike) -> Floats:
    """The imaginary environment: the mean of the agents' transition probabilities.

    (n, S, A, S) -> (S, A, S), or with a seeds axis in front of both.
    """
    mean: Floats = checks.transitions("P", P).mean(axis=1)
    return mean if np.ndim(P) == 5 else mean[0]
