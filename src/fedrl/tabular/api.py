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
from fedrl.tabular.families import TabularFamily
from fedrl.tabular.learners import ProjPAvg, QAvg, SampledQAvg, SoftPAvg, TabularLearner
from fedrl.tabular.problems import (
    Floats,
    Table,
    checked_arrays,
    drawn_problems,
    floats,
    given_problems,
    transitions,
)
from fedrl.tabular.replicates import Schedule, lay_out, run_replicates
from fedrl.tabular.rounds import Trained, mean_objective

LearningRate = float | ArrayLike | Callable[[np.ndarray], ArrayLike]

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
    _independent: Callable[[], Trained] = field(repr=False)

    @cached_property
    def baseline(self) -> Floats:
        """The Baseline at the same iterations: independent learners, never averaged.

        The mean over agents i and environments j of agent i's policy in environment j. The
        independent run takes place when this is first asked for; with `decay`, its step size
        follows the objective of the averaged table after every update, as at E = inf.
        """
        record: Floats = self._independent().baseline[:, self.iterations]
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
    lr: LearningRate,
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
    table = None if init is None else Table("init", init, isinstance(learner, ProjPAvg))
    arrays, seed_axis = checked_arrays(P, R, d0, evaluate_on=evaluate_on, table=table)
    work = partial(
        run_replicates,
        *(learner, given_problems(arrays, support)),
        gamma=arguments.discount(gamma),
        seed=arguments.whole("seed", seed, smallest=0, largest=2**32 - 1),
    )
    return _carried_out(
        work, learner, _schedule(lr, iterations, E, decay), arrays.P.shape[1], strategy, seed_axis
    )


def run_drawn(
    algorithm: str | TabularLearner,
    family: TabularFamily,
    *,
    agents: int | None = None,
    kappa: float | None = None,
    seeds: int = 1,
    first_seed: int = 0,
    E: float | Literal["inf"] = 1,
    iterations: int,
    lr: LearningRate,
    decay: float | None = None,
    rounds: int | None = None,
    strategy: Strategy = PLAIN,
    seed: int = 0,
    **options: Any,
) -> Result:
    """Learn in environments of a family, which are drawn when it is their turn.

    The same as `run` on what `family.task(agents=..., kappa=..., ...)` draws, for any number of
    seeds: never are all of them in memory. Number `first_seed` + i begins with the table of that
    number, and not, as in `run`, of number i. The other arguments are those of `run`, but for
    `rounds`: stop after so many. With `kappa`, `Result.evaluation` is in the environment that the
    others are noisy copies of.
    """
    learner = _learner(algorithm, options)
    arguments.of_kind("family", family, TabularFamily)
    drawing = family.checked_drawing(agents, kappa, seeds, first_seed, seed)
    problems = drawn_problems(family, drawing)
    work = partial(run_replicates, learner, problems, gamma=family.gamma, seed=drawing.seed)
    schedule = _schedule(lr, iterations, E, decay)
    if rounds is not None:
        most = arguments.whole("rounds", rounds, smallest=0)
        schedule = replace(schedule, most_rounds=most)
    return _carried_out(work, learner, schedule, drawing.agents, strategy, seed_axis=True)


def _schedule(
    lr: LearningRate, iterations: int, E: float | Literal["inf"], decay: float | None
) -> Schedule:
    if decay is not None:
        decay = arguments.number("decay", decay, "a number in (0, 1] or None", lambda x: 0 < x <= 1)
    return Schedule(
        lr=_step_sizes(lr, arguments.whole("iterations", iterations)),
        E=arguments.whole_or_inf("E", E),
        decay=decay,
    )


def _carried_out(
    work: Callable[..., Trained],
    learner: TabularLearner,
    schedule: Schedule,
    agents: int,
    strategy: Strategy,
    seed_axis: bool,
) -> Result:
    arguments.of_kind("strategy", strategy, Strategy)
    strategy.check(agents, agents)
    if isinf(schedule.E):
        strategy.check_without_communication()
    trained = work(schedule, strategy)
    # At E = inf every update is a round.
    alone = replace(schedule, E=inf, most_rounds=int(schedule.recorded_at[-1]))
    if not seed_axis:
        trained = jax.tree.map(lambda x: x[0], trained)
    return Result(
        policy=trained.policy,
        shared=trained.table,
        objective=trained.objective,
        evaluation=trained.evaluation,
        iterations=schedule.recorded_at,
        algorithm=learner,
        _independent=partial(work, alone, with_baseline=True),
    )


def _step_sizes(lr: LearningRate, iterations: int) -> Floats:
    """The step size of each local update, from a number, an array or a function of t."""
    if callable(lr):
        try:
            lr = lr(np.arange(iterations))
        except Exception as error:
            raise FedrlError(
                f"lr as a function is called once with the array 0, 1, ..., {iterations - 1} and "
                f"must return as many step sizes; it raised {type(error).__name__}: {error}"
            ) from error
    array = floats("lr", lr)
    if array.ndim == 0:
        array = np.full(iterations, array)
    if array.shape != (iterations,):
        raise FedrlError(
            f"lr must be a number, an array of one step size per iteration ({iterations},) or a "
            f"function that makes one from t = 0, 1, ..., got shape {array.shape}"
        )
    if (array < 0).any() or not (array > 0).any():
        raise FedrlError(f"lr must be positive, got a smallest step size of {array.min():g}")
    return array


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
            takes = ", ".join(settings) or "none"
            raise FedrlError(
                f"unknown argument {name!r}: the settings of {algorithm!r} are {takes}"
            )
    learner: TabularLearner = kind(**options)
    return learner


@jax.jit
def _mean_objective(
    policy: jax.Array, P: jax.Array, R: jax.Array, d0: jax.Array, gamma: jax.Array
) -> jax.Array:
    return mean_objective(lay_out(P, R, d0, gamma, sparsity=None), jnp.moveaxis(policy, 0, -1))


def objective(
    policy: ArrayLike, P: ArrayLike, R: ArrayLike, gamma: float, d0: ArrayLike | None = None
) -> float | Floats:
    """Mean over environments of the discounted return of `policy` from d0 (eq. 1 of the paper).

    A number, or one per seed if any argument has a seeds axis.
    """
    table = Table("policy", policy, probabilities=True)
    arrays, seed_axis = checked_arrays(P, R, d0, table=table)
    gamma = arguments.discount(gamma)
    with jax.enable_x64(True):
        values = np.asarray(_mean_objective(arrays.init, *arrays[:3], jnp.float64(gamma)))
    return values if seed_axis else float(values[0])


def imaginary(P: ArrayLike) -> Floats:
    """The imaginary environment: the mean of the agents' transition probabilities.

    (n, S, A, S) -> (S, A, S), or with a seeds axis in front of both.
    """
    mean: Floats = transitions("P", P).mean(axis=1)
    return mean if np.ndim(P) == 5 else mean[0]
