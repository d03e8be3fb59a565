"""Measures, bounds and lemmas against brute force, finite differences and the paper's numbers."""

from itertools import product

import numpy as np
import pytest
from tests import obvious_numpy

import fedrl
from conftest import random_problem
from fedrl import theory
from fedrl.tabular.families import RandomMDPs
from fedrl.theory import policies


def small(rng, n=3, S=3, A=2):
    problem = random_problem(rng, seeds=1, n=n, S=S, A=A)
    return problem.P[0], problem.R[0], 0.8, problem.d0


def random_policies(rng, count, S, A):
    return rng.dirichlet(np.ones(A) * 0.5, size=(count, S))


def test_values_objectives_and_gradients_match_the_obvious_ones(rng):
    P, R, gamma, d0 = small(rng)
    batch = random_policies(rng, 4, 3, 2)
    V = policies.values(batch, P, R, gamma)
    for b, pi in enumerate(batch):
        for i in range(3):
            np.testing.assert_allclose(V[b, i], obvious_numpy.evaluate(pi, P[i], R, gamma))
    f = lambda pi: d0 @ obvious_numpy.evaluate(pi, P[1], R, gamma)  # noqa: E731
    ours = policies.gradients(batch[0], P, R, gamma, d0)[1]
    for index in np.ndindex(3, 2):
        step = np.zeros((3, 2))
        step[index] = 1e-6
        assert ours[index] == pytest.approx(
            (f(batch[0] + step) - f(batch[0] - step)) / 2e-6, abs=1e-6
        )


def test_projection_matches_the_obvious_one(rng):
    rows = rng.normal(size=(40, 4))
    expected = [obvious_numpy.project_row(row) for row in rows]
    np.testing.assert_allclose(policies.project(rows), expected, atol=1e-12)


def test_optimal_is_what_value_iteration_converges_to(rng):
    P, R, gamma, _ = small(rng)
    Q = np.zeros_like(R)
    for _ in range(400):
        Q = R + gamma * P[0] @ Q.max(axis=1)
    np.testing.assert_allclose(policies.optimal(P[0], R, gamma), Q, rtol=1e-10)


def test_kappa1_is_the_largest_over_policies_too(rng):
    P, _, _, _ = small(rng)
    exact = theory.kappa1(P)

    def at(pi):
        flow = np.einsum("sa,nsat->nst", pi, P)
        return np.abs(flow - flow.mean(axis=0)).sum(axis=(0, 2)).max()

    assert max(at(pi) for pi in random_policies(rng, 300, 3, 2)) <= exact + 1e-12
    corners = [np.eye(2)[list(actions)] for actions in product(range(2), repeat=3)]
    assert max(at(pi) for pi in corners) == pytest.approx(exact)


def test_kappa2_lies_between_its_bounds_and_no_sampled_policy_is_above(rng):
    P, R, gamma, d0 = small(rng)
    found = theory.kappa2(P, R, gamma, d0)

    def at(pi):
        each = policies.gradients(pi, P, R, gamma, d0)
        return np.mean([np.linalg.norm(g - each.mean(axis=0)) for g in each])

    assert at(found.policy) == pytest.approx(found.lower)  # certified: it is attained
    assert found.lower <= found.upper
    assert max(at(pi) for pi in random_policies(rng, 3000, 3, 2)) <= found.lower + 1e-9
    corners = [np.eye(2)[list(actions)] for actions in product(range(2), repeat=3)]
    assert max(map(at, corners)) <= found.lower + 1e-9


def test_identical_environments_have_no_heterogeneity(rng):
    P, R, gamma, d0 = small(rng, n=1)
    same = np.repeat(P, 3, axis=0)
    assert theory.kappa1(same) == pytest.approx(0.0, abs=1e-12)
    assert theory.kappa2(same, R, gamma, d0)[:2] == pytest.approx((0.0, 0.0), abs=1e-9)


def test_the_gradient_is_lipschitz_with_constant_L(rng):
    P, R, gamma, d0 = small(rng)
    L = theory.smoothness(R, gamma)
    a, b = random_policies(rng, 200, 3, 2), random_policies(rng, 200, 3, 2)
    # Between policies, only the parts along the simplex count.
    slope = [policies.gradients(x, P, R, gamma, d0).mean(axis=1) for x in (a, b)]
    along = [g - g.mean(axis=-1, keepdims=True) for g in slope]
    change = np.sqrt(((along[0] - along[1]) ** 2).sum(axis=(1, 2)))
    assert (change <= L * np.sqrt(((a - b) ** 2).sum(axis=(1, 2)))).all()


def test_lemma_2_holds_in_both_forms_and_lemma_1_does_not():
    rates = []
    for seed in range(10):
        task = RandomMDPs().task(seeds=1, first_seed=seed)
        problem = theory.checked(task.P[0], task.R[0], 0.9, task.d0)
        seen = theory.check_lemmas(problem)
        one = theory.kappa1(problem.P)
        sharp = theory.lemma2_sharp(one, 0.9, 5, span=np.ptp(problem.R))
        assert seen.largest_difference <= sharp < theory.lemma2(one, 0.9, span=np.ptp(problem.R))
        rates.append(seen.violations_of_lemma1)
        # The worst violation is one: recomputed by the obvious code.
        real = np.mean(
            [obvious_numpy.evaluate(seen.policy, P, problem.R, 0.9)[seen.state] for P in problem.P]
        )
        P_bar = problem.P.mean(axis=0)
        imaginary = obvious_numpy.evaluate(seen.policy, P_bar, problem.R, 0.9)[seen.state]
        assert imaginary - real == pytest.approx(seen.worst_violation, abs=1e-9)
    assert 0.4 < np.mean(rates) < 0.9  # "about 60 % of random instances"


def test_theorem_2_is_never_violated_with_the_clip_over_20_problems():
    rng = np.random.default_rng(1)
    t = np.arange(129)
    for seed in range(20):
        task = RandomMDPs().task(seeds=1, first_seed=seed)
        problem = theory.checked(task.P[0], task.R[0], 0.9, task.d0)
        init = rng.uniform(0, 10, size=(5, 5))
        for E in range(1, 33):
            lr = theory.theorem2_schedule(t[:-1], E, 0.9)
            assert lr.max() <= 1
            errors = theory.qavg_errors(problem, E, lr, init)
            assert (errors <= theory.theorem2(t, E, 0.9)).all()


def test_theorem_2_is_violated_without_the_clip_at_E_1():
    task = RandomMDPs().task(seeds=1)
    problem = theory.checked(task.P[0], task.R[0], 0.9, task.d0)
    t = np.arange(101)
    lr = theory.theorem2_schedule(t[:-1], 1, 0.9, clip=False)
    assert lr[0] == pytest.approx(20.0)
    errors = theory.qavg_errors(problem, 1, lr, np.full((5, 5), 5.0))
    assert (errors > theory.theorem2(t, 1, 0.9)).any()


def test_qavg_errors_are_those_of_the_tables_that_run_returns():
    task = RandomMDPs().task(seeds=1)
    problem = theory.checked(task.P[0], task.R[0], 0.9, task.d0)
    init, lr = np.full((5, 5), 5.0), theory.theorem2_schedule(np.arange(12), 4, 0.9)
    errors = theory.qavg_errors(problem, 4, lr, init)
    result = fedrl.tabular.run(
        *("qavg", task.P[0], task.R[0]),
        **{"gamma": 0.9, "E": 4, "iterations": 12, "lr": lr, "init": init, "update": "q"},
    )
    limit = policies.optimal(fedrl.tabular.imaginary(task.P[0]), task.R[0], 0.9)
    assert errors[12] == pytest.approx(np.abs(result.shared - limit).max())


@pytest.mark.parametrize("E", [1, 4])
def test_theorem_3_holds_for_the_gradient_mapping(rng, E):
    P, R, gamma, d0 = small(rng)
    problem = theory.normalised(theory.checked(P, R, gamma, d0))
    L = theory.smoothness(problem.R, gamma)
    lr = theory.theorem3_schedule(np.arange(300), E, L)
    assert lr.max() <= 1 / (2 * L) + 1e-15
    trace = theory.pavg_trace(problem, E, lr, np.full((3, 2), 0.5))
    two = theory.kappa2(*problem)
    T = np.arange(1, 301)
    rise = trace.objective[1:] - trace.objective[0]
    seen = np.minimum.accumulate(trace.gradient)
    mended = theory.theorem3_gradient_mended(T, E, gamma, 2, L, two.lower, rise)
    assert (seen <= mended).all()
    best = theory.oracle(*problem)
    gap = best.objective - np.maximum.accumulate(trace.objective)[1:]
    assert (gap <= theory.theorem3_objective(mended, problem.d0, gamma, 2, two.lower)).all()


def test_theorem_3_in_numbers_worked_out_by_hand():
    # gamma 1/2, four actions, L = 1, kappa_2 = 1/4, E = 3: eta_t = 1 / (2 sqrt(t + 1)).
    eta = theory.theorem3_schedule(np.arange(2), 3, 1.0)
    assert eta == pytest.approx([0.5, 0.5 / np.sqrt(2)])
    drift = 2 * 3 * 2 * 4 * 16 + 2 / 16
    paper = theory.theorem3_gradient(np.array([4]), 3, 0.5, 4, 1.0, 0.25, np.array([2.0]))
    expected = 2 * 0.25 * 2 * 4 + np.sqrt(8) * 2 / 2 + np.sqrt(0.5) * drift * np.log(5) / 2
    assert paper == pytest.approx([expected])
    mended = theory.theorem3_gradient_mended(np.array([1, 2]), 3, 0.5, 4, 1.0, 0.25, np.ones(2))
    total, squares = np.array([0.5, 0.5 + 0.5 / np.sqrt(2)]), np.array([0.25, 0.375])
    assert mended == pytest.approx(4 + 2 / total + 2 * drift * squares / total)
    objective = theory.theorem3_objective(np.array([9.0]), np.array([0.25, 0.75]), 0.5, 4, 0.25)
    assert objective == pytest.approx([4 * 8 * np.sqrt(2) * 3.25])


def test_the_objective_bound_survives_a_small_gamma():
    # One state, rewards 1 and 0, pi = (0.9, 0.1): the appendix's factor of 4 would be violated.
    P, R, d0, pi, gamma = np.ones((1, 1, 2, 1)), np.array([[1.0, 0.0]]), np.ones(1), 0.9, 0.01
    L = theory.smoothness(R, gamma)
    policy = np.array([[pi, 1 - pi]])
    slope = policies.gradients(policy, P, R, gamma, d0)[0]
    eta = 1 / (2 * L)
    mapping = (policies.project(policy + eta * slope) - policy) / eta
    gap = (1 - pi) / (1 - gamma)
    squared = np.array([(mapping**2).sum()])
    assert gap <= theory.theorem3_objective(squared, d0, gamma, 2, 0.0)[0]
    assert gap > 4 / (1 - gamma) * np.sqrt(squared[0])


def test_theorem_2_needs_a_gamma_that_is_not_small():
    problem = theory.checked(np.ones((1, 1, 1, 1)), [[1.0]], 0.05)
    errors = theory.qavg_errors(problem, 1, np.ones(1), np.zeros((1, 1)))
    assert errors[0] > theory.theorem2(np.zeros(1, int), 1, 0.05)[0]


def test_kappa2_upper_holds_where_environments_are_close(rng):
    # Close enough that the bound by distance is the smaller one.
    P, R, gamma, d0 = small(rng)
    close = P.mean(axis=0) + 0.01 * (P - P.mean(axis=0))
    found = theory.kappa2(close, R, gamma, d0)
    by_length = np.sqrt(2) * np.abs(R).max() / (1 - gamma) ** 2
    assert found.lower <= found.upper < by_length


def test_lemma_2_in_numbers_worked_out_by_hand():
    example = fedrl.tabular.ImaginaryIsBetter()
    P, R = example.matrices()
    assert theory.kappa1(P) == pytest.approx(2.0)  # two environments, each 1 from the mean
    assert theory.lemma2(2.0, 0.9) == pytest.approx(180.0)
    assert theory.lemma2_sharp(2.0, 0.9, 2) == pytest.approx(45.0)
    seen = theory.check_lemmas(theory.checked(P, R, 0.9))
    assert seen.largest_difference == pytest.approx(2.025)
    assert seen.state == 0
    assert seen.violations_of_lemma1 == 1.0


def test_own_optima_in_windy_cliffs_are_at_the_known_ceiling():
    # Known from an independent computation on 300 seeds: 140.6.
    family = fedrl.tabular.WindyCliffs()
    task = family.task(agents=5, seeds=60)
    own = [
        np.mean([policies.optimal(P, R, 0.95)[0].max() for P in environments])
        for environments, R in zip(task.P, task.R, strict=True)
    ]
    noise = np.std(own) * np.sqrt(1 / 60 + 1 / 300)
    assert np.mean(own) == pytest.approx(140.6, abs=4 * noise)


def test_pavg_trace_is_what_run_does(rng):
    P, R, gamma, d0 = small(rng)
    problem = theory.checked(P, R, gamma, d0)
    lr, init = np.full(8, 0.05), np.full((3, 2), 0.5)
    trace = theory.pavg_trace(problem, 4, lr, init)
    result = fedrl.tabular.run(
        "projpavg", P, R, gamma=gamma, d0=d0, E=4, iterations=8, lr=0.05, init=init
    )
    np.testing.assert_allclose(trace.objective[[0, 4, 8]], result.objective)


def test_no_bound_on_the_objective_where_a_state_has_no_initial_probability():
    assert theory.theorem3_objective(np.ones(1), np.array([1.0, 0.0]), 0.9, 2, 0.1)[0] == np.inf


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"P": np.ones((2, 2, 2, 2))}, "P must sum to 1 over the next state"),
        ({"P": np.ones((2, 2, 2))}, "P must have shape"),
        ({"R": np.full((2, 2), np.nan)}, "R must be finite"),
        ({"gamma": 1.0}, "gamma must be a number in"),
        ({"P": np.full((3, 2, 2, 2, 2), 0.5)}, "must not have a seeds axis"),
    ],
)
def test_bad_matrices_get_the_same_errors_as_in_tabular(change, message):
    good = {"P": np.full((2, 2, 2, 2), 0.5), "R": np.ones((2, 2)), "gamma": 0.9}
    for function in (theory.checked, theory.kappa2, theory.oracle):
        with pytest.raises(fedrl.FedrlError, match=message):
            function(**{**good, **change})
