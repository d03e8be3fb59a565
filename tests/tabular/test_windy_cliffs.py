"""WindyCliffs, cell by cell, against the protocol."""

import numpy as np
import pytest
from tests import obvious_numpy

import fedrl

UP, DOWN, LEFT, RIGHT = range(4)


def transitions(theta, **settings):
    return fedrl.tabular.WindyCliffs(**settings).transitions(theta)


@pytest.mark.parametrize("theta", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("width", "height"), [(4, 4), (6, 3), (2, 1)])
def test_transitions_and_rewards_match_the_cell_by_cell_description(theta, width, height):
    ours = transitions(theta, width=width, height=height)
    expected = obvious_numpy.windy_cliff(theta, width=width, height=height)
    np.testing.assert_allclose(ours, expected, atol=1e-15)
    task = fedrl.tabular.WindyCliffs(width=width, height=height).task()
    expected_rewards = obvious_numpy.windy_cliff_rewards(width=width, height=height)
    np.testing.assert_array_equal(task.R[0], expected_rewards)


def test_a_few_transitions_by_hand():
    P = transitions(0.6)  # blown down with probability 0.2
    start, above_start, top_left, top_right = 0, 4, 12, 15
    assert P[start, UP, above_start] == pytest.approx(0.8)
    assert P[start, UP, start] == pytest.approx(0.2)
    assert P[above_start, DOWN, start] == 1.0
    assert P[above_start, RIGHT, 5] == pytest.approx(0.8)
    assert P[top_left, LEFT, top_left] == pytest.approx(0.8)  # a wall
    assert P[top_right, UP, 11] == pytest.approx(0.2)  # blown away from the wall
    for fallen_or_arrived in (1, 2, 3):
        assert (P[fallen_or_arrived, :, start] == 1.0).all()


def test_winds_are_uniform_and_the_start_is_the_corner():
    task = fedrl.tabular.WindyCliffs().task(agents=5, seeds=400)
    theta = 3 * (1 - task.P[:, :, 0, UP, 4])
    assert 0 <= theta.min() < 0.01
    assert 0.99 < theta.max() <= 1
    assert theta.mean() == pytest.approx(0.5, abs=4 * np.sqrt(1 / 12 / theta.size))
    assert task.d0.tolist() == [1.0] + [0.0] * 15
    assert task.gamma == 0.95


def test_kappa_mixes_between_the_centre_and_the_noise():
    family = fedrl.tabular.WindyCliffs()
    centre = obvious_numpy.windy_cliff(0.5)
    noise = family.task(agents=3, seeds=2, kappa=1.0).P
    half = family.task(agents=3, seeds=2, kappa=0.5)
    np.testing.assert_allclose(half.centre[:, 0], np.stack([centre, centre]), atol=1e-15)
    np.testing.assert_allclose(half.P[:, 0], half.centre[:, 0], atol=1e-15)
    np.testing.assert_allclose(half.P[:, 1:], 0.5 * noise[:, 1:] + 0.5 * centre, atol=1e-15)
    identical = family.task(agents=3, seeds=1, kappa=0.0).P[0]
    np.testing.assert_allclose(identical, np.stack([centre] * 3), atol=1e-15)


def test_the_optimum_of_the_centre_is_the_published_ceiling():
    # Table 1 publishes 133.97 +- 0.00 at kappa = 0 for both QAvg and SoftPAvg: the optimum of P_0.
    P, R = obvious_numpy.windy_cliff(0.5), obvious_numpy.windy_cliff_rewards()
    V = np.zeros(16)
    for _ in range(3000):
        V = (R + 0.95 * P @ V).max(axis=1)
    assert V[0] == pytest.approx(133.97, abs=0.005)
