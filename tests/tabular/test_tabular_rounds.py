"""The federated loop against the obvious NumPy one, and against theory."""

from math import inf

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from tests import obvious_numpy

import fedrl
from conftest import random_problem
from fedrl.strategies import Adam, Median, Momentum, Private, Strategy, TrimmedMean

pytestmark = pytest.mark.usefixtures("kept", "hasty")

VARIANTS = [
    ("qavg", "value", {"update": "value"}),
    ("qavg", "q", {"update": "q"}),
    ("projpavg", "", {}),
    ("softpavg", "natural", {"gradient": "natural"}),
    ("softpavg", "plain", {"gradient": "plain"}),
]


def start_of(algorithm, problem):
    return problem.policy if algorithm == "projpavg" else problem.table


def compare(problem, algorithm, variant, options, **common):
    """Ours for all seeds at once; the reference seed by seed."""
    init = start_of(algorithm, problem)
    ours = fedrl.tabular.run(
        algorithm, problem.P, problem.R, d0=problem.d0, init=init, **common, **options
    )
    reference = obvious_numpy.run_seeds(
        algorithm, problem.P, problem.R, init, d0=problem.d0, variant=variant, **common
    )
    for i, expected in enumerate(reference):
        np.testing.assert_allclose(ours.shared[i], expected.table, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(ours.objective[i], expected.objective, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(ours.policy[i], expected.policy, rtol=1e-9, atol=1e-9)
        if common["E"] == inf:
            np.testing.assert_allclose(ours.baseline[i], expected.baseline, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("E", [1, 3, 8, inf])
@pytest.mark.parametrize(("algorithm", "variant", "options"), VARIANTS)
def test_every_algorithm_agrees_with_the_obvious_implementation(
    rng, algorithm, variant, options, E
):
    problem = random_problem(rng, seeds=2, n=3, S=4, A=3)
    compare(problem, algorithm, variant, options, gamma=0.9, E=E, iterations=24, lr=0.05, decay=0.5)


def test_the_last_round_is_shorter_when_E_does_not_divide_the_iterations(rng):
    problem = random_problem(rng)
    common = {"gamma": 0.9, "E": 7, "iterations": 24, "lr": 0.05, "decay": None}
    for algorithm, variant, options in VARIANTS[:3]:
        compare(problem, algorithm, variant, options, **common)
    result = fedrl.tabular.run("qavg", problem.P, problem.R, gamma=0.9, E=7, iterations=24, lr=0.1)
    assert result.iterations.tolist() == [0, 7, 14, 21, 24]


@given(
    shape=st.tuples(*(st.integers(1, k) for k in (3, 4, 6, 5))),
    variant=st.sampled_from(VARIANTS),
    E=st.one_of(st.integers(1, 12), st.just(inf)),
    decay=st.one_of(st.none(), st.floats(0.1, 1.0)),
    gamma=st.floats(0.0, 0.97),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=12)
def test_agreement_on_random_shapes_and_settings(shape, variant, E, decay, gamma, seed):
    seeds, n, S, A = shape
    problem = random_problem(np.random.default_rng(seed), seeds, n, S, A)
    algorithm, name, options = variant
    common = {"gamma": gamma, "E": E, "iterations": 10, "lr": 0.03, "decay": decay}
    compare(problem, algorithm, name, options, **common)


def test_agreement_beyond_the_unrolled_sizes(rng):
    problem = random_problem(rng, seeds=2, n=2, S=35, A=18)
    for algorithm, variant, options in VARIANTS[:4]:
        common = {"gamma": 0.9, "E": 2, "iterations": 4, "lr": 0.05, "decay": 0.5}
        compare(problem, algorithm, variant, options, **common)


def test_the_windy_cliff_of_the_protocol_gives_the_same_curves_as_the_reference():
    task = fedrl.tabular.WindyCliffs().task(agents=5, seeds=2)
    rng = np.random.default_rng(3)
    table = rng.random((2, 16, 4))
    settings = {"gamma": 0.95, "d0": task.d0, "E": 4, "iterations": 40, "lr": 0.1, "decay": 0.4}
    ours = fedrl.tabular.run("softpavg", task.P, task.R, init=table, **settings)
    reference = obvious_numpy.run_seeds(
        "softpavg", task.P, task.R, table, variant="natural", **settings
    )
    for i, expected in enumerate(reference):
        np.testing.assert_allclose(ours.objective[i], expected.objective, rtol=1e-9)


def value_iteration(P, R, gamma, sweeps=2000):
    Q = np.zeros_like(R)
    for _ in range(sweeps):
        Q = R + gamma * P @ Q.max(axis=1)
    return Q


def test_qavg_with_E_1_is_value_iteration_on_the_imaginary_mdp(rng):
    problem = random_problem(rng, seeds=1, n=4)
    P_bar, R = fedrl.tabular.imaginary(problem.P[0]), problem.R[0]
    Q = problem.table[0]
    for sweeps in (1, 2, 5):
        ours = fedrl.tabular.run(
            *("qavg", problem.P[0], R),
            **{"gamma": 0.9, "E": 1, "iterations": sweeps, "lr": 1.0, "init": Q, "update": "q"},
        )
        expected = Q
        for _ in range(sweeps):
            expected = R + 0.9 * P_bar @ expected.max(axis=1)
        np.testing.assert_allclose(ours.shared, expected, rtol=1e-12)


@pytest.mark.parametrize("E", [1, 2, 8, 32])
def test_the_limit_of_qavg_is_the_same_for_every_finite_E(rng, E):
    # Theorem 2: with steps that go to zero the limit is Q* of the imaginary MDP, whatever E.
    problem = random_problem(rng, seeds=1, n=4)
    ours = fedrl.tabular.run(
        *("qavg", problem.P[0], problem.R[0]),
        **{"gamma": 0.7, "E": E, "iterations": 40_000, "update": "q"},
        lr=lambda t: np.minimum(1.0, 2 / (0.3 * (t + E))),
    )
    limit = value_iteration(fedrl.tabular.imaginary(problem.P[0]), problem.R[0], 0.7)
    bound = 16 * 0.7 * E / (0.3**3 * (40_000 + E))  # from 0.01 at E = 1 to 0.33 at E = 32
    assert np.abs(ours.shared - limit).max() < min(bound, 0.01)


def test_averaging_identical_environments_changes_nothing(rng):
    problem = random_problem(rng, n=1)
    four = np.repeat(problem.P, 4, axis=1)
    for algorithm in ("qavg", "projpavg", "softpavg"):
        settings = {"gamma": 0.9, "E": 2, "iterations": 12, "lr": 0.1}
        alone = fedrl.tabular.run(algorithm, problem.P, problem.R, **settings)
        together = fedrl.tabular.run(algorithm, four, problem.R, **settings)
        np.testing.assert_allclose(together.shared, alone.shared, rtol=1e-12)


def test_projected_policies_stay_on_the_simplex(rng):
    problem = random_problem(rng)
    result = fedrl.tabular.run(
        "projpavg", problem.P, problem.R, gamma=0.9, E=5, iterations=50, lr=5.0
    )
    assert result.policy.min() >= 0
    np.testing.assert_allclose(result.policy.sum(axis=-1), 1.0, rtol=1e-12)


def test_the_order_of_the_agents_does_not_matter(rng):
    problem = random_problem(rng, n=4)
    settings = {"gamma": 0.9, "E": 3, "iterations": 12, "lr": 0.1}
    forwards = fedrl.tabular.run("softpavg", problem.P, problem.R, **settings)
    backwards = fedrl.tabular.run("softpavg", problem.P[:, ::-1], problem.R, **settings)
    np.testing.assert_allclose(backwards.shared, forwards.shared, rtol=1e-12)


SERVERS = {
    "momentum": Strategy(server_optimizer=Momentum()),
    "adam": Strategy(server_optimizer=Adam(lr=0.1)),
    "median": Strategy(aggregator=Median()),
    "trimmed mean": Strategy(aggregator=TrimmedMean(1)),
    "private": Strategy(aggregator=Private(clip=1.0, noise=1.0)),
}


@pytest.mark.parametrize("kind", SERVERS)
def test_whatever_the_server_does_policies_are_policies(rng, kind):
    problem = random_problem(rng, seeds=2, n=3, S=4, A=3)
    result = fedrl.tabular.run(
        *("projpavg", problem.P, problem.R),
        **{"gamma": 0.9, "E": 3, "iterations": 24, "lr": 0.2},
        strategy=SERVERS[kind],
    )
    np.testing.assert_allclose(result.policy.sum(-1), 1.0, rtol=1e-12)
    assert result.policy.min() >= 0
    plain = fedrl.tabular.run(
        *("projpavg", problem.P, problem.R), gamma=0.9, E=3, iterations=24, lr=0.2
    )
    assert np.abs(plain.policy - result.policy).max() > 1e-3
