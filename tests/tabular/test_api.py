"""The Python interface: shapes, types, and what the fields mean."""

from math import inf

import jax.numpy as jnp
import numpy as np
import pytest
from tests import obvious_numpy

import fedrl
from conftest import random_problem

pytestmark = pytest.mark.usefixtures("hasty")
SETTINGS = {"gamma": 0.9, "E": 2, "iterations": 6, "lr": 0.1}


def test_without_a_seeds_axis_results_have_none(rng):
    problem = random_problem(rng)
    result = fedrl.tabular.run(
        "qavg", problem.P[0], problem.R[0], evaluate_on=problem.P[1], **SETTINGS
    )
    assert result.policy.shape == result.shared.shape == (4, 3)
    assert result.objective.shape == result.evaluation.shape == result.baseline.shape == (4,)
    assert result.iterations.tolist() == [0, 2, 4, 6]


def test_with_a_seeds_axis_it_comes_first(rng):
    problem = random_problem(rng, seeds=3)
    result = fedrl.tabular.run("softpavg", problem.P, problem.R, **SETTINGS)
    assert result.policy.shape == (3, 4, 3)
    assert result.objective.shape == result.baseline.shape == (3, 4)
    assert result.evaluation is None


def test_what_is_given_once_serves_all_seeds(rng):
    problem = random_problem(rng, seeds=3)
    many_starts = fedrl.tabular.run(
        "qavg", problem.P[0], problem.R[0], init=problem.table, **SETTINGS
    )
    for i in range(3):
        one = fedrl.tabular.run(
            "qavg", problem.P[0], problem.R[0], init=problem.table[i], **SETTINGS
        )
        np.testing.assert_array_equal(many_starts.shared[i], one.shared)


def test_numpy_jax_float32_and_lists_are_all_welcome(rng):
    problem = random_problem(rng, seeds=1)
    P, R = problem.P[0], problem.R[0]
    reference = fedrl.tabular.run("qavg", P, R, **SETTINGS)
    as_lists = fedrl.tabular.run("qavg", P.tolist(), R.tolist(), **SETTINGS)
    np.testing.assert_array_equal(as_lists.shared, reference.shared)
    as_jax = fedrl.tabular.run("qavg", jnp.asarray(P), jnp.asarray(R), **SETTINGS)  # float32
    np.testing.assert_allclose(as_jax.shared, reference.shared, rtol=1e-5, atol=1e-5)
    assert as_jax.shared.dtype == np.float64


def test_the_last_entries_belong_to_the_returned_policy(rng):
    problem = random_problem(rng, seeds=2)
    for E in (4, inf):
        result = fedrl.tabular.run(
            *("projpavg", problem.P, problem.R),
            **{"gamma": 0.9, "d0": problem.d0, "E": E, "iterations": 10, "lr": 0.1},
            evaluate_on=problem.P[:, :1],
        )
        for where, record in ((problem.P, result.objective), (problem.P[:, :1], result.evaluation)):
            expected = fedrl.tabular.objective(result.policy, where, problem.R, 0.9, problem.d0)
            np.testing.assert_allclose(record[:, -1], expected, rtol=1e-12)


def test_objective_is_the_mean_over_environments(rng):
    problem = random_problem(rng)
    ours = fedrl.tabular.objective(problem.policy, problem.P, problem.R, 0.9, problem.d0)
    for i in range(2):
        expected = obvious_numpy.objective(
            problem.policy[i], problem.P[i], problem.R[i], 0.9, problem.d0
        )
        assert ours[i] == pytest.approx(expected, rel=1e-12)
    single = fedrl.tabular.objective(problem.policy[0], problem.P[0], problem.R[0], 0.9)
    uniform = obvious_numpy.objective(
        problem.policy[0], problem.P[0], problem.R[0], 0.9, np.full(4, 0.25)
    )
    assert isinstance(single, float)
    assert single == pytest.approx(uniform, rel=1e-12)


def test_imaginary_is_the_mean_environment(rng):
    P = random_problem(rng).P
    np.testing.assert_allclose(fedrl.tabular.imaginary(P), P.mean(axis=1))
    np.testing.assert_allclose(fedrl.tabular.imaginary(P[0]), P[0].mean(axis=0))


def test_baseline_is_taken_at_the_iterations_of_the_rounds(rng):
    problem = random_problem(rng, seeds=1)
    settings = {"gamma": 0.9, "iterations": 10, "lr": 0.1, "init": problem.policy[0]}
    result = fedrl.tabular.run("projpavg", problem.P[0], problem.R[0], E=4, **settings)
    independent = obvious_numpy.federated(
        *("projpavg", problem.P[0], problem.R[0]),
        **{"d0": np.full(4, 0.25), "E": inf, "decay": None, **settings},
    )
    np.testing.assert_allclose(result.baseline, independent.baseline[[0, 4, 8, 10]], rtol=1e-10)


def test_step_sizes_can_be_a_number_an_array_or_a_function(rng):
    problem = random_problem(rng, seeds=1)
    common = {"gamma": 0.9, "E": 2, "iterations": 6}
    results = [
        fedrl.tabular.run("softpavg", problem.P, problem.R, lr=lr, **common).shared
        for lr in (0.1, np.full(6, 0.1), lambda t: 0.1 + 0.0 * t)
    ]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    halving = 0.1 * 0.5 ** np.arange(6)
    ours = fedrl.tabular.run("softpavg", problem.P[0], problem.R[0], lr=halving, **common)
    expected = obvious_numpy.federated(
        *("softpavg", problem.P[0], problem.R[0]),
        **{"d0": np.full(4, 0.25), "lr": halving, "decay": None, "variant": "natural", **common},
        init=fedrl.tabular.run("softpavg", problem.P[0], problem.R[0], **common, lr=1e-300).shared,
    )
    np.testing.assert_allclose(ours.shared, expected.table, rtol=1e-10)


def test_initial_tables_are_drawn_as_the_protocol_says(rng):
    problem = random_problem(rng, seeds=400, n=1)
    tiny = {"gamma": 0.9, "E": 1, "iterations": 1, "lr": 1e-300}
    logits = fedrl.tabular.run("softpavg", problem.P, problem.R, **tiny).shared
    assert 0 <= logits.min() < logits.max() <= 1
    assert logits.mean() == pytest.approx(0.5, abs=4 * np.sqrt(1 / 12 / logits.size))
    other = fedrl.tabular.run("softpavg", problem.P, problem.R, seed=1, **tiny).shared
    assert not np.array_equal(logits, other)
    policies = fedrl.tabular.run("projpavg", problem.P, problem.R, **tiny).shared
    np.testing.assert_allclose(policies.sum(axis=-1), 1.0, rtol=1e-12)


def test_learners_can_be_given_with_their_settings(rng):
    problem = random_problem(rng)
    by_name = fedrl.tabular.run("qavg", problem.P, problem.R, update="q", **SETTINGS)
    by_object = fedrl.tabular.run(fedrl.tabular.QAvg(update="q"), problem.P, problem.R, **SETTINGS)
    np.testing.assert_array_equal(by_name.shared, by_object.shared)
