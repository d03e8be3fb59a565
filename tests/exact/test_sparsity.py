"""Transitions that cannot happen: what is left out changes no result."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests import obvious_numpy

from conftest import random_problem
from fedrl import tabular
from fedrl.exact import mdp
from fedrl.exact.lanes import to_every_agent, to_lanes
from fedrl.exact.sparsity import sparsity_of
from fedrl.families import RandomMDPs, WindyCliffs

pytestmark = pytest.mark.usefixtures("hasty")


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


def sparse_problem(rng, S, A, reach, most, seeds=2, n=3):
    """States lead to at most `most` others, at most `reach` away; never to all they might."""
    problem = random_problem(rng, seeds=seeds, n=n, S=S, A=A)
    allowed = np.zeros((S, A, S), bool)
    for s in range(S):
        near = np.arange(max(0, s - reach), min(S, s + reach + 1))
        for a in range(A):
            allowed[s, a, rng.choice(near, rng.integers(1, most + 1), replace=False)] = True
    P = problem.P * allowed
    return SimpleNamespace(
        P=P / P.sum(-1, keepdims=True),
        R=problem.R,
        d0=problem.d0,
        policy=problem.policy,
        sparsity=sparsity_of(allowed),
    )


def lanes_of(problem):
    seeds, n, S = problem.P.shape[:3]
    spread = lambda x: to_every_agent(jnp.moveaxis(jnp.asarray(x), 0, -1), n)  # noqa: E731
    P = to_lanes(mdp.stored(jnp.asarray(problem.P), problem.sparsity))
    d0 = spread(np.broadcast_to(problem.d0, (seeds, S)))
    mdps = mdp.MDPs(P, spread(problem.R), d0, jnp.float64(0.9), problem.sparsity)
    return mdps, spread(problem.policy)


# A narrow band, one too wide for a window, one state, and more than is unrolled.
@pytest.mark.parametrize(
    ("S", "A", "reach", "most"),
    [(16, 4, 4, 2), (9, 2, 1, 2), (12, 3, 11, 3), (2, 1, 0, 1), (40, 2, 3, 2)],
)
def test_values_visits_and_objective_match_numpys_solve(rng, S, A, reach, most):
    problem = sparse_problem(rng, S, A, reach, most)
    assert problem.sparsity is not None
    mdps, policy = lanes_of(problem)
    assert mdps.P.shape[2] <= most
    V, visits = map(np.asarray, jax.jit(mdp.values_and_visits)(mdps, policy))
    only_V = np.asarray(jax.jit(mdp.values)(mdps, policy))
    objective = np.asarray(jax.jit(mdp.objective)(mdps, policy))
    Q = np.asarray(jax.jit(mdp.q_values)(mdps, V))
    for k in range(3):
        for b in range(2):
            lane, P, R = k * 2 + b, problem.P[b, k], problem.R[b]
            expected = obvious_numpy.evaluate(problem.policy[b], P, R, 0.9)
            expected_visits = obvious_numpy.visits(problem.policy[b], P, 0.9, problem.d0)
            np.testing.assert_allclose(V[:, lane], expected, rtol=1e-11, atol=1e-11)
            np.testing.assert_allclose(only_V[:, lane], expected, rtol=1e-11, atol=1e-11)
            np.testing.assert_allclose(visits[:, lane], expected_visits, rtol=1e-11)
            assert objective[lane] == pytest.approx(problem.d0 @ expected, rel=1e-11, abs=1e-11)
            backup = obvious_numpy.action_values(expected, P, R, 0.9)
            np.testing.assert_allclose(Q[..., lane], backup, rtol=1e-11, atol=1e-11)


def test_of_cliffs_a_tenth_is_kept_and_matrices_have_four_diagonals_on_a_side():
    sparsity = sparsity_of(WindyCliffs().support())
    # From 13 cells three moves go where they should or down, and down goes down; 3 lead to the
    # start. Against a wall they may be the same.
    assert sparsity.next_states.shape == (16, 4, 2)
    assert (~sparsity.missing).sum() <= 13 * 7 + 3 * 4
    assert sparsity.bandwidth == 4


def test_support_is_where_transitions_can_be_and_nowhere_else():
    family = WindyCliffs(width=5, height=3)
    task = family.task(agents=4, seeds=8, kappa=None, held_out=2)
    seen = (task.P > 0).any(axis=(0, 1)) | (task.held_out > 0).any(axis=(0, 1))
    np.testing.assert_array_equal(family.support(), seen)
    noisy = family.task(agents=3, seeds=4, kappa=0.5)
    assert not (noisy.P[..., ~family.support()] > 0).any()
    assert sparsity_of(RandomMDPs().support()) is None


def test_what_is_nearly_everything_is_not_sparse(rng):
    support = np.zeros((6, 2, 6), bool)
    support[..., :3] = True
    assert sparsity_of(support) is not None
    support[0, 0, 3] = True
    assert sparsity_of(support) is None


# A transition that only one seed, or only a held-out environment, has is not forgotten.
@pytest.mark.parametrize("where", ["a seed", "held out"])
def test_runs_with_given_matrices_see_every_transition(rng, where):
    problem = sparse_problem(rng, S=8, A=2, reach=2, most=2)
    held_out = problem.P[:, :1].copy()
    special = problem.P[1:2, 1:2] if where == "a seed" else held_out[1:2]
    special[..., 0, 0, :] = 0.0
    special[..., 0, 0, 7] = 1.0
    init = rng.random((2, 8, 2))
    settings = {"gamma": 0.9, "d0": problem.d0, "iterations": 6, "E": 2, "lr": 0.1}
    run = tabular.run("softpavg", problem.P, problem.R, init=init, evaluate_on=held_out, **settings)
    expected = obvious_numpy.run_seeds(
        "softpavg", problem.P, problem.R, init, variant="natural", decay=None, **settings
    )
    np.testing.assert_allclose(run.objective, [one.objective for one in expected], rtol=1e-10)
    final = [
        obvious_numpy.objective(run.policy[b], held_out[b], problem.R[b], 0.9, problem.d0)
        for b in range(2)
    ]
    np.testing.assert_allclose(run.evaluation[:, -1], final, rtol=1e-10)
