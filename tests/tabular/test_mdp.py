"""Policy evaluation against NumPy, automatic differentiation and simulation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests import obvious_numpy

from conftest import random_problem
from fedrl.tabular.exact import mdp
from fedrl.tabular.exact.lanes import mean_over_agents, to_every_agent, to_lanes

pytestmark = pytest.mark.usefixtures("hasty")


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


def lanes_of(problem):
    """The problem lane-last: MDPs and a policy for every lane."""
    seeds, n, S = problem.P.shape[:3]
    spread = lambda x: to_every_agent(jnp.moveaxis(jnp.asarray(x), 0, -1), n)  # noqa: E731
    d0 = np.broadcast_to(problem.d0, (seeds, S))
    mdps = mdp.MDPs(
        to_lanes(jnp.asarray(problem.P)), spread(problem.R), spread(d0), jnp.float64(0.9)
    )
    return mdps, spread(problem.policy)


# Both routes: unrolled elimination up to 32 states, LAPACK beyond.
@pytest.mark.parametrize(("S", "A"), [(1, 1), (5, 5), (16, 4), (40, 2)])
def test_values_visits_and_objective_match_numpys_solve(rng, S, A):
    problem = random_problem(rng, seeds=2, n=3, S=S, A=A)
    mdps, policy = lanes_of(problem)
    V, visits = map(np.asarray, jax.jit(mdp.values_and_visits)(mdps, policy))
    only_V = np.asarray(jax.jit(mdp.values)(mdps, policy))
    objective = np.asarray(jax.jit(mdp.objective)(mdps, policy))
    for k in range(3):
        for b in range(2):
            lane = k * 2 + b
            arguments = (problem.policy[b], problem.P[b, k])
            expected_V = obvious_numpy.evaluate(*arguments, problem.R[b], 0.9)
            expected_visits = obvious_numpy.visits(*arguments, 0.9, problem.d0)
            np.testing.assert_allclose(V[:, lane], expected_V, rtol=1e-11, atol=1e-11)
            np.testing.assert_allclose(only_V[:, lane], expected_V, rtol=1e-11, atol=1e-11)
            np.testing.assert_allclose(visits[:, lane], expected_visits, rtol=1e-11)
            assert objective[lane] == pytest.approx(problem.d0 @ expected_V, rel=1e-11, abs=1e-11)


def test_values_match_monte_carlo_rollouts(rng):
    problem = random_problem(rng, seeds=1, n=1, S=4, A=3)
    mdps, policy = lanes_of(problem)
    expected = float(jax.jit(mdp.objective)(mdps, policy)[0])
    episodes, steps = 20_000, 120  # 0.9 ** 120 < 4e-6
    pick = lambda p: (p.cumsum(-1) < rng.random((len(p), 1))).sum(-1).clip(max=p.shape[-1] - 1)  # noqa: E731
    s = pick(np.broadcast_to(problem.d0, (episodes, 4)))
    returns = np.zeros(episodes)
    for t in range(steps):
        a = pick(problem.policy[0, s])
        returns += 0.9**t * problem.R[0, s, a]
        s = pick(problem.P[0, 0, s, a])
    standard_error = returns.std() / np.sqrt(episodes)
    assert abs(returns.mean() - expected) < 4 * standard_error


def test_visits_sum_to_one_over_one_minus_gamma(rng):
    mdps, policy = lanes_of(random_problem(rng))
    _, visits = jax.jit(mdp.values_and_visits)(mdps, policy)
    np.testing.assert_allclose(np.asarray(visits).sum(axis=0), 10.0, rtol=1e-12)


@pytest.mark.parametrize("S", [6, 40])
def test_q_values_are_one_backup(rng, S):
    problem = random_problem(rng, S=S)
    mdps, _ = lanes_of(problem)
    V = rng.normal(size=(S, mdps.P.shape[-1]))
    Q = np.asarray(mdp.q_values(mdps, jnp.asarray(V)))
    P = np.asarray(mdps.P)
    expected = np.asarray(mdps.R) + 0.9 * np.einsum("satl,tl->sal", P, V)
    np.testing.assert_allclose(Q, expected, rtol=1e-12, atol=1e-12)


def test_lanes_are_agent_major_and_averages_undo_them(rng):
    x = rng.normal(size=(4, 3, 2, 5))  # (replicates, agents, ...)
    lanes = to_lanes(jnp.asarray(x))
    assert lanes.shape == (2, 5, 12)
    np.testing.assert_array_equal(lanes[..., 1 * 4 + 2], x[2, 1])
    np.testing.assert_allclose(np.moveaxis(mean_over_agents(lanes, 3), -1, 0), x.mean(axis=1))
