"""Transitions that cannot happen: what is left out changes no result."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests import obvious_numpy

from conftest import random_problem
from fedrl import FedrlError, tabular
from fedrl.tabular.exact import mdp
from fedrl.tabular.exact.lanes import to_every_agent, to_lanes
from fedrl.tabular.exact.sparsity import sparsity_of
from fedrl.tabular.families import RandomMDPs, WindyCliffs

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
        support=allowed,
        sparsity=sparsity_of(allowed),
    )


def lanes_of(problem):
    seeds, n, S = problem.P.shape[:3]
    spread = lambda x: to_every_agent(jnp.moveaxis(jnp.asarray(x), 0, -1), n)  # noqa: E731
    P = to_lanes(mdp.stored(jnp.asarray(problem.P), problem.sparsity))
    d0 = spread(np.broadcast_to(problem.d0, (seeds, S)))
    mdps = mdp.MDPs(P, spread(problem.R), d0, jnp.float64(0.9), problem.sparsity)
    return mdps, spread(problem.policy)


# A narrow band, one next to the diagonal, one too wide for a window, and the diagonal alone.
@pytest.mark.parametrize(
    ("S", "A", "reach", "most"),
    [(16, 4, 4, 2), (9, 2, 1, 2), (12, 3, 11, 3), (2, 1, 0, 1)],
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


@pytest.mark.parametrize(("width", "height"), [(5, 3), (2, 1), (2, 2), (10, 1)])
def test_support_is_where_transitions_can_be_and_nowhere_else(width, height):
    family = WindyCliffs(width=width, height=height)
    task = family.task(agents=4, seeds=8, kappa=None, held_out=2)
    seen = (task.P > 0).any(axis=(0, 1)) | (task.held_out > 0).any(axis=(0, 1))
    np.testing.assert_array_equal(family.support(), seen)
    for kappa in (0.0, 0.5, 1.0):
        noisy = family.task(agents=3, seeds=4, kappa=kappa)
        assert not (noisy.P[..., ~family.support()] > 0).any()


def test_of_random_transitions_all_are_possible():
    assert RandomMDPs().support().all()
    assert sparsity_of(RandomMDPs().support()) is None


def test_what_is_nearly_everything_is_not_sparse(rng):
    support = np.zeros((6, 2, 6), bool)
    support[..., :3] = True
    assert sparsity_of(support) is not None
    support[0, 0, 3] = True
    assert sparsity_of(support) is None
    # Nor what is solved by a library.
    assert sparsity_of(np.eye(32, dtype=bool)[:, None]) is not None
    assert sparsity_of(np.eye(33, dtype=bool)[:, None]) is None


SETTINGS = {"gamma": 0.9, "iterations": 6, "E": 2, "lr": 0.1}


@pytest.mark.parametrize("algorithm", ["qavg", "softpavg", "projpavg", "sampled-qavg"])
def test_runs_with_a_support_are_runs_without_to_rounding(rng, algorithm):
    problem = sparse_problem(rng, S=8, A=2, reach=2, most=2, seeds=3)
    held_out = np.concatenate([problem.P] * 2, axis=1)
    init = problem.policy if algorithm == "projpavg" else rng.random((3, 8, 2))
    given = {"init": init, "evaluate_on": held_out, "d0": problem.d0, **SETTINGS}
    usual = tabular.run(algorithm, problem.P, problem.R, **given)
    sparse = tabular.run(algorithm, problem.P, problem.R, support=problem.support, **given)
    for name in ("shared", "objective", "evaluation", "baseline"):
        np.testing.assert_allclose(getattr(sparse, name), getattr(usual, name), rtol=1e-10)


def test_a_seed_with_a_support_is_the_same_to_the_last_bit_whatever_else_is_run(rng):
    problem = sparse_problem(rng, S=8, A=2, reach=2, most=2, seeds=70)  # two blocks
    given = {"support": problem.support, "d0": problem.d0, **SETTINGS}
    init = rng.random((70, 8, 2))
    all_of_them = tabular.run("softpavg", problem.P, problem.R, init=init, **given)
    two = tabular.run("softpavg", problem.P[:2], problem.R[:2], init=init[:2], **given)
    np.testing.assert_array_equal(two.objective, all_of_them.objective[:2])


@pytest.mark.parametrize("rounds", [None, 1])
def test_drawn_cliffs_are_given_cliffs(rounds):
    family, common = WindyCliffs(), {"E": 4, "lr": 1e-2}
    drawing = {"kappa": 0.5, "seeds": 3, "first_seed": 2}
    drawn = tabular.run_drawn("projpavg", family, **drawing, iterations=8, rounds=rounds, **common)
    task = family.task(**drawing)
    # Which table a seed begins with follows from its number, and here the first is 0.
    init = tabular.run_drawn("projpavg", family, **drawing, iterations=8, rounds=0, **common).shared
    given = tabular.run(
        *("projpavg", task.P, task.R),
        **{"gamma": task.gamma, "d0": task.d0, "init": init, "evaluate_on": task.centre},
        iterations=8 if rounds is None else 4,
        **common,
    )
    for name in ("shared", "policy", "objective", "evaluation", "iterations", "baseline"):
        np.testing.assert_allclose(getattr(drawn, name), getattr(given, name), rtol=1e-9)


# In the environments of agents, and in those that are only evaluated in.
@pytest.mark.parametrize("where", ["P", "evaluate_on"])
def test_transitions_that_a_support_does_not_know_are_refused(rng, where):
    problem = sparse_problem(rng, S=8, A=2, reach=2, most=2)
    held_out = problem.P[:, :1].copy()
    special = problem.P[1, 1] if where == "P" else held_out[1, 0]
    special[0, 1] = 0.0
    special[0, 1, 7] = 1.0
    with pytest.raises(FedrlError, match=f"action 1 never leads from state 0 to 7, but in {where}"):
        tabular.run(
            "qavg", problem.P, problem.R, evaluate_on=held_out, support=problem.support, **SETTINGS
        )


def test_a_support_has_the_shape_of_an_environment_and_is_of_booleans(rng):
    problem = sparse_problem(rng, S=8, A=2, reach=2, most=2)
    for support in (problem.support[0], problem.support.astype(float)):
        with pytest.raises(FedrlError, match=r"support must be booleans of shape \(S, A, S\)"):
            tabular.run("qavg", problem.P, problem.R, support=support, **SETTINGS)
