"""Sampled QAvg: it must find what exact QAvg finds, from transitions alone."""

import numpy as np

import fedrl
from conftest import random_problem


def test_sampled_qavg_approaches_exact_qavg(rng):
    problem = random_problem(rng, seeds=4, n=3, S=3, A=2)
    common = {"gamma": 0.6, "E": 10}
    exact = fedrl.tabular.run(
        *("qavg", problem.P, problem.R),
        **{**common, "iterations": 20_000, "update": "q"},
        lr=lambda t: np.minimum(1.0, 2 / (0.4 * (t + 10))),
    )
    # Every agent visits every state and action equally often: a restart from the uniform d0 after
    # each step, random actions. Otherwise the average leans towards the agents that visit more,
    # and its limit is not that of exact QAvg.
    settings = {"epsilon": 1.0, "restart": 1.0, "lr": lambda t: 1.0 / (1.0 + 0.01 * t) ** 0.9}
    error = []
    for iterations in (1_000, 100_000):
        sampled = fedrl.tabular.run(
            "sampled-qavg", problem.P, problem.R, **common, iterations=iterations, **settings
        )
        error.append(np.sqrt(np.mean((sampled.shared - exact.shared) ** 2)))
    # Stochastic approximation: the error goes with the square root of the step size, here 1:7.
    assert error[1] < error[0] / 3
    assert error[1] < 0.03


def test_without_noise_and_with_full_steps_a_visit_is_a_bellman_backup():
    # One action, a cycle of two states: Q-learning with lr = 1 is value iteration along the cycle.
    P = np.array([[[[0.0, 1.0]], [[1.0, 0.0]]]])
    result = fedrl.tabular.run(
        "sampled-qavg", P, [[1.0], [0.0]], gamma=0.5, d0=[1.0, 0.0], iterations=80, lr=1.0
    )
    np.testing.assert_allclose(result.shared, [[4 / 3], [2 / 3]], rtol=1e-12)


def test_agents_of_one_seed_and_seeds_of_one_run_see_different_transitions():
    # Two identical environments: without communication only the random numbers tell them apart.
    P = np.full((1, 2, 3, 2, 3), 1 / 3)
    R = np.arange(6.0).reshape(3, 2)
    start = np.zeros((2, 3, 2))
    run = lambda P: fedrl.tabular.run(  # noqa: E731
        "sampled-qavg", P, R, gamma=0.5, iterations=3, lr=0.5, init=start, E="inf", epsilon=1.0
    )
    both = run(P).shared
    first_alone = run(P[:, :1]).shared
    assert not np.array_equal(both[0], both[1])
    assert not np.array_equal(both[0], first_alone[0])


def test_same_seed_same_result_other_seed_another(rng):
    problem = random_problem(rng)

    def run(seed):
        return fedrl.tabular.run(
            "sampled-qavg", problem.P, problem.R, gamma=0.9, E=5, iterations=50, lr=0.3, seed=seed
        ).shared

    np.testing.assert_array_equal(run(1), run(1))
    assert not np.array_equal(run(1), run(2))
