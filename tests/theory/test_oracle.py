"""The oracle against brute force over policies."""

from itertools import product

import numpy as np
import pytest
from tests import obvious_numpy

from conftest import random_problem
from fedrl.tabular.families import Doors, RandomMDPs, WindyCliffs
from fedrl.theory import oracle


@pytest.mark.parametrize("seed", range(4))
def test_on_two_states_and_actions_it_finds_the_best_of_a_fine_grid(seed):
    problem = random_problem(np.random.default_rng(seed), seeds=1, n=3, S=2, A=2)
    P, R, d0 = problem.P[0], problem.R[0], problem.d0
    found = oracle(P, R, 0.9, d0)
    grid = np.linspace(0, 1, 101)
    best = max(
        obvious_numpy.objective(np.array([[p, 1 - p], [q, 1 - q]]), P, R, 0.9, d0)
        for p, q in product(grid, grid)
    )
    assert best <= found.objective + 1e-9
    assert found.objective <= found.upper + 1e-12
    assert found.gap < 1e-4
    assert obvious_numpy.objective(found.policy, P, R, 0.9, d0) == pytest.approx(found.objective)


def test_the_best_deterministic_policy_is_the_best_of_all(rng):
    problem = random_problem(rng, seeds=1, n=3, S=4, A=3)
    P, R, d0 = problem.P[0], problem.R[0], problem.d0
    found = oracle(P, R, 0.9, d0)
    every = product(range(3), repeat=4)
    best = max(obvious_numpy.objective(np.eye(3)[list(a)], P, R, 0.9, d0) for a in every)
    assert found.deterministic_is_exact
    assert found.deterministic == pytest.approx(best)
    assert found.objective >= best - 1e-12


def test_one_environment_has_its_own_optimum(rng):
    problem = random_problem(rng, seeds=1, n=1, S=4, A=3)
    P, R, d0 = problem.P[0], problem.R[0], problem.d0
    V = np.zeros(4)
    for _ in range(600):
        V = (R + 0.9 * P[0] @ V).max(axis=1)
    found = oracle(P, R, 0.9, d0)
    for value in (found.objective, found.upper, found.deterministic, found.own_optima):
        assert value == pytest.approx(d0 @ V, rel=1e-9)


def test_behind_the_doors_the_certificate_closes():
    example = Doors()
    found = oracle(*example.matrices(), 0.9, example.d0())
    assert found.objective == pytest.approx(0.45 * 10 / 0.55)
    assert found.deterministic == pytest.approx(4.5)
    assert found.own_optima == pytest.approx(9.0)
    assert found.gap < 1e-4


def test_no_policy_is_above_the_upper_bound_even_when_it_is_cut_short(rng):
    task = RandomMDPs().task(seeds=1)
    P, R, d0 = task.P[0], task.R[0], task.d0
    sampled = rng.dirichlet(np.ones(5) * 0.3, size=(500, 5))
    reached = max(obvious_numpy.objective(pi, P, R, 0.9, d0) for pi in sampled)
    best = oracle(P, R, 0.9, d0, nodes=3000).objective
    bounds = [oracle(P, R, 0.9, d0, nodes=nodes).upper for nodes in (1, 50, 500)]
    assert max(reached, best) <= bounds[-1]
    assert bounds[0] >= bounds[1] >= bounds[2]


@pytest.mark.parametrize("nodes", [1, 5, 20, 50])
def test_the_upper_bound_is_above_a_fine_grid_wherever_it_is_cut_short(nodes):
    problem = random_problem(np.random.default_rng(nodes), seeds=1, n=3, S=2, A=2)
    P, R, d0 = problem.P[0], problem.R[0], problem.d0
    grid = np.linspace(0, 1, 41)
    best = max(
        obvious_numpy.objective(np.array([[p, 1 - p], [q, 1 - q]]), P, R, 0.9, d0)
        for p, q in product(grid, grid)
    )
    assert oracle(P, R, 0.9, d0, nodes=nodes).upper >= best - 1e-12


def test_windy_cliffs_are_solved_to_a_small_gap():
    # 16 states: too many deterministic policies to look at, but few states where winds disagree.
    task = WindyCliffs().task(seeds=1)
    found = oracle(task.P[0], task.R[0], 0.95, task.d0)
    assert not found.deterministic_is_exact
    assert found.gap < 0.01 * found.objective
    assert found.objective <= found.own_optima
