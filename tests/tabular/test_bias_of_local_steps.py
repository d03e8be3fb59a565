"""What averaging after many local steps costs, where nothing is random, and that control variates
remove it.

Agent i solves A_i theta = b_i by steps theta <- theta + eta (b_i - A_i theta). With E of them
between two averages the limit is not theta_star, which solves mean(A_i) theta = mean(b_i): with
G_i = I - (I - eta A_i)^E it is off by (mean G_i)^-1 mean(G_i (theta_i* - theta_star)).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

from fedrl import tabular
from fedrl.strategies import ControlVariates, Strategy

with np.load(Path(__file__).with_name("garnet_10.npz")) as system:
    A, B, SOLUTION = system["A"], system["b"], system["theta_star"]
AGENTS, SIZE = B.shape
# A problem so large that a block of replicates is small: a table has more rows than are used.
STATES = 20

# The published squared norms.
BIAS = {
    (0.1, 10): 5.759e-5,
    (0.1, 100): 6.608e-3,
    (0.1, 1000): 0.3789,
    (0.1, 10_000): 1.506,
    (0.01, 10): 5.779e-7,
    (0.01, 100): 6.956e-5,
    (0.01, 1000): 6.717e-3,
    (0.01, 10_000): 0.3791,
}
# A hundred times as many steps take a minute.
CASES = [
    pytest.param(eta, E, marks=[pytest.mark.slow] if eta < 0.1 else [], id=f"{eta}-{E}")
    for eta, E in BIAS
]


@dataclass(frozen=True)
class Linear(tabular.TabularLearner):
    """Steps towards the solution of the agent's own linear equations."""

    name: ClassVar[str] = "linear"

    def start(self, mdps, keys):
        agent = jnp.argmax(mdps.P[0, 0], axis=0)  # an agent's world is the state it leads to
        return jnp.moveaxis(jnp.asarray(A)[agent], 0, -1), jnp.asarray(B)[agent].T

    def directions(self, points, private, mdps, keys, t):
        matrix, right = private

        def direction(table):
            x = table[:SIZE, 0]
            return jnp.zeros_like(table).at[:SIZE, 0].set(right - jnp.sum(matrix * x, axis=1))

        return tuple(map(direction, points)), private

    def policy(self, table):
        return jnp.ones_like(table)


def solved(eta, E, steps, strategy):
    """Where the agents are after so many local steps each."""
    P = np.zeros((AGENTS, STATES, 1, STATES))
    for agent in range(AGENTS):
        P[agent, :, 0, agent] = 1.0
    result = tabular.run(
        Linear(),
        P,
        np.zeros((STATES, 1)),
        gamma=0.5,
        E=E,
        iterations=steps,
        lr=eta,
        init=np.zeros((STATES, 1)),
        strategy=strategy,
    )
    return result.shared[:SIZE, 0]


def squared_distance(x):
    return np.sum((x - SOLUTION) ** 2)


def steps_until(eta, E, rounds):
    """What is left of an error after 15,000 units of step size is 1e-8 of it."""
    return max(round(15_000 / eta / E), rounds) * E


def limit(eta, E):
    """The formula above, with NumPy."""
    identity = np.eye(SIZE)
    G = identity - np.linalg.matrix_power(identity - eta * A, E)
    own = np.linalg.solve(A, B[..., None])[..., 0]
    off = np.einsum("nij,nj->ni", G, own - SOLUTION).mean(0)
    return SOLUTION + np.linalg.solve(G.mean(0), off)


@pytest.mark.parametrize(("eta", "E"), CASES)
def test_averaging_ends_at_the_published_distance(eta, E):
    found = solved(eta, E, steps_until(eta, E, 20), Strategy())
    np.testing.assert_allclose(found, limit(eta, E), rtol=0, atol=1e-6)
    assert squared_distance(found) == pytest.approx(BIAS[eta, E], rel=5e-4)


@pytest.mark.parametrize("refresh", ["path", "model"])
@pytest.mark.parametrize(("eta", "E"), CASES)
def test_control_variates_remove_the_bias(eta, E, refresh):
    strategy = Strategy(correction=ControlVariates(refresh=refresh))
    found = solved(eta, E, steps_until(eta, E, 100), strategy)
    assert squared_distance(found) < 1e-3 * BIAS[eta, E]


def scaffold(eta, E, rounds, refresh):
    """SCAFFOLD as its authors write it, in loops."""
    sent, c, own = np.zeros(SIZE), np.zeros(SIZE), np.zeros((AGENTS, SIZE))
    for _ in range(rounds):
        after = np.zeros_like(own)
        models = []
        for i in range(AGENTS):
            x = sent.copy()
            for _ in range(E):
                x += eta * (B[i] - A[i] @ x - own[i] + c)
            if refresh == "path":  # option II
                after[i] = own[i] - c + (x - sent) / (E * eta)
            else:  # option I
                after[i] = B[i] - A[i] @ sent
            models.append(x)
        sent, c, own = np.mean(models, 0), c + np.mean(after - own, 0), after
    return sent


@pytest.mark.parametrize("refresh", ["path", "model"])
def test_round_by_round_it_is_scaffold(refresh):
    for rounds in (1, 2, 7):
        strategy = Strategy(correction=ControlVariates(refresh=refresh))
        found = solved(0.1, 50, 50 * rounds, strategy)
        expected = scaffold(0.1, 50, rounds, refresh)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
