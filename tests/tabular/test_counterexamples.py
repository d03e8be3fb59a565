"""Each example against numbers worked out by hand, or by brute force over policies."""

import numpy as np
import pytest
from tests import obvious_numpy

import fedrl
from fedrl.tabular.families import Doors, ImaginaryIsBetter, QAvgTrap, StartMatters


def brute_force(P, R, gamma, d0, points=101):
    """Best (p, q), the probabilities of the first action in two states, on a grid."""
    grid = np.linspace(0, 1, points)
    policies = [np.array([[p, 1 - p], [q, 1 - q]]) for p in grid for q in grid]
    reached = [obvious_numpy.objective(pi, P, R, gamma, np.array(d0)) for pi in policies]
    return policies[int(np.argmax(reached))], max(reached)


@pytest.mark.parametrize("leak", [0.0, 1e-5])
def test_theorem_1_the_best_choice_in_s1_depends_on_where_one_starts(leak):
    example = StartMatters(leak=leak)
    P, R = example.matrices()
    np.testing.assert_allclose(P.sum(axis=-1), 1.0)
    from_s0, _ = brute_force(P, R, 0.9, [1.0, 0.0], points=21)
    from_s1, _ = brute_force(P, R, 0.9, [0.0, 1.0], points=21)
    assert from_s0[1, 0] == 1.0  # in s1 stay: leaving costs 1 and brings nothing in environment 1
    assert from_s1[1, 0] < 1.0  # leave: in environment 2 it leads to 1000 a step


def test_theorem_1_needs_a_small_leak():
    P, R = StartMatters(leak=0.01).matrices()
    from_s0, _ = brute_force(P, R, 0.9, [1.0, 0.0], points=21)
    assert from_s0[1, 0] < 1.0


def test_lemma_1_the_imaginary_value_is_2_025_and_the_real_one_0():
    example = ImaginaryIsBetter()
    P, R = example.matrices()
    policy = np.ones((4, 1))
    assert obvious_numpy.objective(policy, P, R, 0.9, example.d0()) == 0.0
    V_I = obvious_numpy.evaluate(policy, P.mean(axis=0), R, 0.9)
    assert V_I[0] == pytest.approx(0.9 * 0.5 * 0.9 * 0.5 * 10)
    assert V_I[0] == pytest.approx(2.025)


def test_the_trap_qavg_earns_0_where_2_is_possible():
    example = QAvgTrap()
    P, R = example.matrices()
    for E in (1, 4):
        result = fedrl.tabular.run(
            *("qavg", P, R),
            **{"gamma": 0.9, "d0": example.d0(), "E": E, "iterations": 4000, "update": "q"},
            lr=lambda t, E=E: np.minimum(1.0, 2 / (0.1 * (t + E))),
        )
        assert result.objective[-1] == pytest.approx(0.0, abs=1e-12)
    safe = np.tile([0.0, 1.0], (4, 1))
    assert fedrl.tabular.objective(safe, P, R, 0.9, example.d0()) == pytest.approx(2.0)


@pytest.mark.parametrize("doors", [2, 3])
def test_behind_the_doors_a_random_policy_earns_more_than_any_deterministic_one(doors):
    example = Doors(doors=doors)
    P, R = example.matrices()
    corners = np.eye(doors)
    deterministic = max(
        obvious_numpy.objective(np.stack([c, c]), P, R, 0.9, example.d0()) for c in corners
    )
    uniform = obvious_numpy.objective(np.full((2, doors), 1 / doors), P, R, 0.9, example.d0())
    # One door of n is found, after one step, and then 1 a step: 9 / n.
    assert deterministic == pytest.approx(9 / doors)
    # V = gamma (V_room / n + (1 - 1/n) V).
    assert uniform == pytest.approx(0.9 / doors * 10 / (1 - 0.9 * (1 - 1 / doors)))
    if doors == 2:
        _, best = brute_force(P, R, 0.9, example.d0())
        assert uniform == pytest.approx(best)


@pytest.mark.parametrize("kind", [StartMatters, ImaginaryIsBetter, QAvgTrap, Doors])
def test_examples_are_families_like_the_others(kind):
    example = kind()
    task = example.task(seeds=3)
    P, R = example.matrices()
    np.testing.assert_array_equal(task.P[2], P)
    np.testing.assert_array_equal(task.R[1], R)
    assert fedrl.tabular.FAMILIES[example.name] is kind
    assert example.draw() is not None
    with pytest.raises(fedrl.FedrlError, match="so agents cannot be 7"):
        example.task(agents=7)
    with pytest.raises(fedrl.FedrlError, match="leave kappa out"):
        example.task(kappa=0.5)


def test_settings_of_examples_are_checked():
    with pytest.raises(fedrl.FedrlError, match="leak"):
        StartMatters(leak=0.7)
    with pytest.raises(fedrl.FedrlError, match="doors"):
        Doors(doors=1)
