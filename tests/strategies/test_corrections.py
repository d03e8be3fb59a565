"""Corrections: where they must change nothing, how much a weak pull can, and what is refused."""

from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedrl
from conftest import random_problem
from fedrl.engine.local_engine import LocalEngine
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Evaluation
from fedrl.experiment.timing import Timing
from fedrl.experiment.toml import to_toml
from fedrl.network.experiments import read_experiment
from fedrl.network.init import for_network
from fedrl.strategies import (
    Adam,
    Broadcast,
    ControlVariates,
    Krum,
    Mean,
    Median,
    Momentum,
    Private,
    Prox,
    Replace,
    Step,
    Strategy,
    TrimmedMean,
    Yogi,
)
from fedrl.strategies.corrections import NoCorrection
from fedrl.tabular.experiment import TabularExperiment
from fedrl.tabular.families import WindyCliffs
from tiny import TINY, begin

pytestmark = pytest.mark.usefixtures("kept", "hasty")

ALGORITHMS = {
    "qavg": ("qavg", {"update": "value"}),
    "qavg of the paper": ("qavg", {"update": "q"}),
    "projpavg": ("projpavg", {}),
    "softpavg": ("softpavg", {"gradient": "natural"}),
    "plain softpavg": ("softpavg", {"gradient": "plain"}),
    "sampled-qavg": ("sampled-qavg", {"epsilon": 0.5}),
}
VARIATES = {"path": ControlVariates(), "model": ControlVariates(refresh="model")}
TABLES = TabularExperiment("t", WindyCliffs(), agents=3, E=4, updates=14, lr=0.5)
NETWORKS = replace(TINY, agents=3, updates=40, seeds=1, evaluation=Evaluation(20, 1))


def tree(rng):
    shapes = {"w": (3, 2), "b": (2,)}
    return {k: jnp.asarray(rng.normal(size=s), jnp.float32) for k, s in shapes.items()}


def on_tables(problem, algorithm, correction=None, **common):
    name, options = ALGORITHMS[algorithm]
    init = problem.policy if name == "projpavg" else problem.table
    settings = {"gamma": 0.9, "E": 3, "iterations": 11, "lr": 0.2, "decay": 0.5} | common
    strategy = Strategy() if correction is None else Strategy(correction)
    return fedrl.tabular.run(
        name,
        problem.P,
        problem.R,
        d0=problem.d0,
        init=init,
        strategy=strategy,
        **settings,
        **options,
    )


def assert_same_run(one, other):
    for name in ("shared", "policy", "objective"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def models_of(experiment, out):
    run = fedrl.train(experiment, out=out, progress=False)
    with np.load(run.path / "models.npz") as arrays:
        return dict(arrays)


def assert_same_models(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def test_a_pull_goes_from_where_an_agent_is_to_what_it_was_sent(rng):
    direction, own, sent = tree(rng), tree(rng), tree(rng)
    bent, memory = Prox(mu=0.3).correct(Step(direction, own, Broadcast(sent)), ())
    assert memory == ()
    for name in direction:
        expected = np.float64(direction[name]) - 0.3 * (np.float64(own[name]) - sent[name])
        np.testing.assert_allclose(bent[name], expected, rtol=1e-5, atol=1e-6)
    unmoved, _ = Prox(mu=0.3).correct(Step(direction, sent, Broadcast(sent)), ())
    jax.tree.map(np.testing.assert_array_equal, unmoved, direction)


# Another program, whose products and sums a hasty compiler contracts elsewhere. Of a size of its
# own, because programs that hasty tests have compiled are not compiled again.
@pytest.mark.usefixtures("thorough")
@pytest.mark.parametrize("algorithm", ["qavg of the paper", "softpavg"])
def test_tables_do_not_change_by_a_pull_of_nothing(rng, algorithm):
    problem = random_problem(rng)
    pulled, plain = (on_tables(problem, algorithm, c, iterations=12) for c in (Prox(mu=0.0), None))
    assert_same_run(pulled, plain)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_not_even_in_a_hurry_but_for_rounding(rng, algorithm):
    problem = random_problem(rng)
    pulled, plain = (on_tables(problem, algorithm, c) for c in (Prox(mu=0.0), None))
    np.testing.assert_allclose(pulled.shared, plain.shared, rtol=0, atol=1e-12)


def test_networks_do_not_change_by_a_pull_of_nothing(tmp_path):
    pulled = models_of(replace(NETWORKS, correction=Prox(mu=0.0)), tmp_path / "pulled")
    assert_same_models(pulled, models_of(NETWORKS, tmp_path / "plain"))


def test_tables_move_by_at_most_as_much_as_a_pull_is_strong(rng):
    """Q <- (1 - lr (1 + mu)) Q + lr T Q + lr mu Q_sent lies between the three, none of which is
    larger than B = max(|Q_0|, |R| / (1 - gamma)). It contracts, and so does the average; hence each
    update adds at most lr mu |Q - Q_sent|, and all of them at most iterations * lr * mu * 2 B.
    """
    problem = random_problem(rng)
    common = {"iterations": 30, "lr": 0.2, "decay": None}
    plain = on_tables(problem, "qavg of the paper", **common).shared
    bound = max(np.abs(problem.table).max(), np.abs(problem.R).max() / (1 - 0.9))
    moved = []
    for mu in (1.0, 1e-3, 1e-6, 1e-9):
        pulled = on_tables(problem, "qavg of the paper", Prox(mu), **common).shared
        moved.append(np.abs(pulled - plain).max())
        assert moved[-1] <= 30 * 0.2 * mu * 2 * bound
    assert moved[0] > 1e-3


def test_tables_that_are_sent_after_every_update_are_not_pulled(rng):
    """At E = 1 an agent is where the server's model is when it takes its only step."""
    problem = random_problem(rng)
    for algorithm in ALGORITHMS:
        pulled, plain = (on_tables(problem, algorithm, c, E=1) for c in (Prox(mu=5.0), None))
        np.testing.assert_allclose(pulled.shared, plain.shared, rtol=0, atol=1e-12)


def test_a_strong_pull_keeps_an_agent_near_what_it_was_sent(rng):
    """With lr mu = 1 every step begins again from the model that was sent: E of them move a table
    by lr times the last direction, and not by the sum of E.
    """
    problem = random_problem(rng, seeds=1, n=1)
    P, R, Q = problem.P[0, 0], problem.R[0], problem.table[0]
    common = {"iterations": 3, "E": 3, "lr": 0.1, "decay": None}
    pulled = on_tables(problem, "qavg of the paper", Prox(mu=10.0), **common).shared[0]
    at = Q
    for _ in range(3):
        direction = R + 0.9 * P @ at.max(axis=1) - at
        at = Q + 0.1 * direction
    np.testing.assert_allclose(pulled, at, rtol=1e-12)


def test_the_weakest_pull_is_lost_in_the_rounding_of_networks(tmp_path):
    pulled = models_of(replace(NETWORKS, correction=Prox(mu=1e-30)), tmp_path / "pulled")
    assert_same_models(pulled, models_of(NETWORKS, tmp_path / "plain"))


@pytest.mark.parametrize("refresh", VARIATES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_table_of_one_agent_has_no_drift_to_correct(rng, algorithm, refresh):
    problem = random_problem(rng, n=1)
    corrected = on_tables(problem, algorithm, VARIATES[refresh])
    assert_same_run(corrected, on_tables(problem, algorithm))


@pytest.mark.usefixtures("thorough")
def test_nor_has_a_network(tmp_path):
    alone = replace(NETWORKS, agents=1)
    plain = models_of(alone, tmp_path / "plain")
    for refresh, correction in VARIATES.items():
        corrected = models_of(replace(alone, correction=correction), tmp_path / refresh)
        assert_same_models(corrected, plain)


@pytest.mark.parametrize("refresh", VARIATES)
def test_in_a_first_round_nothing_is_known_and_nothing_is_corrected(rng, refresh):
    problem = random_problem(rng)
    for algorithm in ALGORITHMS:
        corrected = on_tables(problem, algorithm, VARIATES[refresh], iterations=3)
        assert_same_run(corrected, on_tables(problem, algorithm, iterations=3))


def test_agents_of_equal_environments_have_no_drift_to_correct(rng):
    problem = random_problem(rng, n=1)
    equal = problem._replace(P=np.repeat(problem.P, 4, axis=1))
    for algorithm in ("qavg", "projpavg", "softpavg"):
        corrected, plain = (on_tables(equal, algorithm, c) for c in (ControlVariates(), None))
        np.testing.assert_allclose(corrected.shared, plain.shared, rtol=1e-12)


@pytest.mark.parametrize("refresh", VARIATES)
def test_control_variates_are_those_of_scaffold(rng, refresh):
    """By hand: options I and II of Karimireddy et al. (2020), on QAvg, in NumPy."""
    problem = random_problem(rng, seeds=1)
    (P,), (R,), (Q,) = problem.P, problem.R, problem.table
    n, E, lr = len(P), 4, 0.2
    ours = on_tables(
        problem, "qavg of the paper", VARIATES[refresh], E=E, iterations=3 * E, lr=lr, decay=None
    )

    def direction(k, Q):
        return R + 0.9 * P[k] @ Q.max(axis=1) - Q

    c, own = np.zeros_like(Q), np.zeros((n, *Q.shape))
    for _ in range(3):
        agents, changes = [], []
        for k in range(n):
            y, along = Q, []
            for _ in range(E):
                along.append(direction(k, y))
                y = y + lr * (along[-1] - own[k] + c)
            # Option II: (x - y) / (E lr) without the correction is the mean along the path.
            fresh = np.mean(along, axis=0) if refresh == "path" else direction(k, Q)
            agents.append(y)
            changes.append(fresh - own[k])
            own[k] = fresh
        Q = np.mean(agents, axis=0)
        c = c + np.mean(changes, axis=0)
    np.testing.assert_allclose(ours.shared[0], Q, rtol=1e-10)


NOT_LINEAR = {
    "median": Median(),
    "krum": Krum(byzantine=0),
    "trimmed-mean": TrimmedMean(),
    "private": Private(),
}
NOT_AVERAGED = (
    "^correction 'control-variates' sends more than the model, and that must be averaged, which "
    "the {} aggregator does not do: choose aggregator 'mean', or a correction that sends nothing"
)


@pytest.mark.parametrize("kind", NOT_LINEAR)
def test_control_variates_need_an_average_in_one_process(kind):
    with pytest.raises(FedrlError, match=NOT_AVERAGED.format(kind)):
        replace(NETWORKS, correction=ControlVariates(), aggregator=NOT_LINEAR[kind])


@pytest.mark.parametrize("kind", NOT_LINEAR)
def test_and_on_tables(rng, kind):
    with pytest.raises(FedrlError, match=NOT_AVERAGED.format(kind)):
        replace(TABLES, correction=ControlVariates(), aggregator=NOT_LINEAR[kind])
    problem = random_problem(rng, n=5)
    with pytest.raises(FedrlError, match=NOT_AVERAGED.format(kind)):
        fedrl.tabular.run(
            *("qavg", problem.P, problem.R),
            **{"gamma": 0.9, "iterations": 2, "lr": 0.1},
            strategy=Strategy(ControlVariates(), NOT_LINEAR[kind]),
        )


@pytest.mark.parametrize("experiment", [NETWORKS, TABLES], ids=["networks", "tables"])
@pytest.mark.parametrize("kind", NOT_LINEAR)
def test_and_in_the_file_of_a_federation(tmp_path, kind, experiment):
    file = tmp_path / "experiment.toml"
    text = to_toml(replace(experiment, aggregator=NOT_LINEAR[kind]))
    assert 'kind = "none"' in text
    file.write_text(text)
    assert read_experiment(file).aggregator == NOT_LINEAR[kind]
    file.write_text(text.replace('kind = "none"', 'kind = "control-variates"'))
    with pytest.raises(FedrlError, match=NOT_AVERAGED.format(kind).removeprefix("^")):
        read_experiment(file)


def test_weights_are_an_average_and_a_pull_goes_with_every_aggregator():
    weighted = replace(TABLES, correction=ControlVariates(), aggregator=Mean((1.0, 2.0, 3.0)))
    assert for_network(weighted, None) == weighted
    for aggregator in NOT_LINEAR.values():
        assert replace(NETWORKS, correction=Prox(), aggregator=aggregator).aggregator == aggregator


@pytest.mark.parametrize(
    "some",
    [{}, {"participation": 0.5}, {"timing": Timing(arrivals=2, seconds=(1.0, 2.0, 3.0, 4.0))}],
)
@pytest.mark.parametrize("weights", [(), (1.0, 2.0, 3.0, 10.0)])
def test_the_servers_c_is_the_average_of_the_agents_whoever_takes_part(some, weights):
    experiment = replace(
        TINY, agents=4, E=10, updates=200, correction=ControlVariates(), aggregator=Mean(weights)
    )
    engine = LocalEngine(replace(experiment, **some))
    federation, number = begin(engine, jnp.int32(0)), jnp.int32(0)
    environments = engine.environments(number, engine.thetas(number))
    advance = jax.jit(engine.advance)
    for _ in range(6):
        federation = advance(federation, environments, 1, 10)
    c = federation.server.sent.correction["all"]
    own = federation.agents.learned.memory["all"].own
    for mean, each in zip(*map(jax.tree.leaves, (c, own)), strict=True):
        expected = np.average(each, axis=0, weights=weights or None)
        np.testing.assert_allclose(mean, expected, rtol=1e-4, atol=1e-5)
    assert max(np.abs(leaf).max(initial=0.0) for leaf in jax.tree.leaves(c)) > 0.1


@dataclass(frozen=True)
class Forgets(NoCorrection):
    """Offers more than the model, and does not say that it shares anything."""

    name: ClassVar[str] = "forgets"

    def offer(self, memory):
        return jnp.ones(3)


def test_what_a_correction_adds_to_offers_is_declared(rng, tmp_path):
    said = "^correction 'forgets' offers or broadcasts .* give its class shares = True"
    with pytest.raises(FedrlError, match=said):
        on_tables(random_problem(rng), "qavg", Forgets())
    with pytest.raises(FedrlError, match=said):
        fedrl.train(replace(NETWORKS, correction=Forgets()), out=tmp_path, progress=False)


ABOUT_ROUNDS = {
    "prox": ({"correction": Prox()}, "correction 'prox'"),
    "a pull of nothing": ({"correction": Prox(mu=0.0)}, "correction 'prox'"),
    "control variates": ({"correction": ControlVariates()}, "correction 'control-variates'"),
    "momentum": ({"server_optimizer": Momentum()}, "server optimizer 'momentum'"),
    "adam": ({"server_optimizer": Adam()}, "server optimizer 'adam'"),
    "yogi": ({"server_optimizer": Yogi()}, "server optimizer 'yogi'"),
}
NONE = "{} is about communications, and with E = inf there are none: leave it out$"


@pytest.mark.parametrize("kind", ABOUT_ROUNDS)
def test_parts_that_are_about_rounds_are_refused_where_there_are_none(rng, kind):
    parts, said = ABOUT_ROUNDS[kind]
    with pytest.raises(FedrlError, match=f"^{NONE.format(said)}"):
        replace(NETWORKS, E=inf, **parts)
    problem = random_problem(rng)
    with pytest.raises(FedrlError, match=f"^{NONE.format(said)}"):
        fedrl.tabular.run(
            *("qavg", problem.P, problem.R),
            **{"gamma": 0.9, "iterations": 2, "lr": 0.1, "E": inf},
            strategy=Strategy(**parts),
        )


def test_the_plain_parts_say_nothing_and_are_welcome_there(rng):
    assert not replace(NETWORKS, E=inf, server_optimizer=Replace()).communicates
    on_tables(random_problem(rng), "qavg", E=inf)


@pytest.mark.parametrize("mu", [-1e-9, 1e31, np.nan, np.inf, "1", None, True])
def test_the_strength_of_a_pull_is_a_number(mu):
    with pytest.raises(FedrlError, match=r"^correction\.mu must be a number from 0 to 1e30, got"):
        Prox(mu)


def test_there_are_two_ways_to_refresh():
    with pytest.raises(FedrlError, match=r"unknown correction\.refresh 'paths': did you mean"):
        ControlVariates(refresh="paths")
