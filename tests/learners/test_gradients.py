"""The local policy-gradient updates against automatic differentiation and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import random_problem
from fedrl.tabular.exact.mdp import MDPs
from fedrl.tabular.learners import ProjPAvg, SoftPAvg

pytestmark = pytest.mark.usefixtures("hasty")
GAMMA = 0.8
LR = 1e-3


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def problem(rng):
    return random_problem(rng, seeds=1, n=1, S=4, A=3)


def one_update(learner, problem, table):
    mdps = MDPs(
        jnp.asarray(problem.P[0, 0])[..., None],
        jnp.asarray(problem.R[0])[..., None],
        jnp.asarray(problem.d0)[:, None],
        jnp.float64(GAMMA),
    )
    table = jnp.asarray(table)[..., None]
    (direction,), _ = learner.directions((table,), (), mdps, jnp.array([]), jnp.array(0))
    return np.asarray(learner.move(table, LR * direction))[..., 0]


def objective(problem, policy):
    """By a general solver, so that JAX can differentiate it."""
    P_pi = jnp.einsum("sa,sat->st", policy, problem.P[0, 0])
    R_pi = (policy * problem.R[0]).sum(axis=1)
    return problem.d0 @ jnp.linalg.solve(jnp.eye(len(R_pi)) - GAMMA * P_pi, R_pi)


def finite_differences(f, x, step=1e-6):
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        offset = np.zeros_like(x)
        offset[index] = step
        gradient[index] = (f(x + offset) - f(x - offset)) / (2 * step)
    return gradient


def test_plain_softmax_update_follows_the_gradient_of_the_objective(problem):
    logits = problem.table[0]
    of_logits = lambda x: objective(problem, jax.nn.softmax(x, axis=1))  # noqa: E731
    moved = one_update(SoftPAvg(gradient="plain"), problem, logits) - logits
    np.testing.assert_allclose(moved / LR, jax.grad(of_logits)(logits), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(moved / LR, finite_differences(of_logits, logits), atol=1e-7)


def test_projected_update_follows_the_gradient_of_the_objective(problem):
    policy = problem.policy[0]
    assert policy.min() > 0.01  # interior: a small step is not cut off at the border
    gradient = np.asarray(jax.grad(lambda x: objective(problem, x))(policy))
    np.testing.assert_allclose(
        gradient, finite_differences(lambda x: objective(problem, x), policy), atol=1e-7
    )
    moved = one_update(ProjPAvg(), problem, policy) - policy
    # In the interior the projection removes exactly the part that leaves the simplex.
    expected = gradient - gradient.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(moved / LR, expected, rtol=1e-9, atol=1e-11)


def test_natural_update_is_the_softmax_gradient_preconditioned_by_the_fisher_matrix(problem):
    logits = problem.table[0]
    S = len(logits)
    policy = jax.nn.softmax(logits, axis=1)
    gradient = np.asarray(jax.grad(lambda x: objective(problem, jax.nn.softmax(x, axis=1)))(logits))
    P_pi = np.einsum("sa,sat->st", policy, problem.P[0, 0])
    d_pi = (1 - GAMMA) * np.linalg.solve((np.eye(S) - GAMMA * P_pi).T, problem.d0)
    moved = one_update(SoftPAvg(gradient="natural"), problem, logits) - logits
    for s in range(S):
        pi = np.asarray(policy[s])
        fisher = d_pi[s] * (np.diag(pi) - np.outer(pi, pi))
        # F x natural = gradient; the natural direction is unique up to a constant per state.
        np.testing.assert_allclose(fisher @ (moved[s] / LR), gradient[s], rtol=1e-9, atol=1e-11)
        assert pi @ moved[s] == pytest.approx(0.0, abs=1e-12)
