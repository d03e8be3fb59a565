"""RandomMDPs: both generators, by their support and their distribution."""

import numpy as np
import pytest

import fedrl


@pytest.fixture(scope="module")
def family():
    return fedrl.tabular.RandomMDPs()


def binomial_tolerance(p, count):
    return 4 * np.sqrt(p * (1 - p) / count)


def test_independent_environments_have_sparse_rows_that_sum_to_one(family):
    P = family.task(agents=5, seeds=200).P
    assert P.shape == (200, 5, 5, 5, 5)
    np.testing.assert_allclose(P.sum(axis=-1), 1.0, rtol=1e-12)
    support = (P > 0).sum(axis=-1).ravel()
    assert support.min() == 1
    # Rows of k > 1 entries are untouched binomial draws; an empty row (0.8 ** 5) gets one entry.
    for k, p in ((2, 10 * 0.2**2 * 0.8**3), (1, 5 * 0.2 * 0.8**4 + 0.8**5), (5, 0.2**5)):
        assert np.mean(support == k) == pytest.approx(p, abs=binomial_tolerance(p, support.size))


def test_sparsity_is_a_setting():
    dense = fedrl.tabular.RandomMDPs(states=6, actions=2, sparsity=1.0).task(agents=2, seeds=3).P
    assert dense.shape == (3, 2, 6, 2, 6)
    assert (dense > 0).all()


def test_an_empty_row_gets_any_state_with_equal_probability():
    P = fedrl.tabular.RandomMDPs(sparsity=0.0).task(agents=5, seeds=200).P
    assert ((P > 0).sum(axis=-1) == 1).all()
    shares = P.reshape(-1, 5).mean(axis=0)
    np.testing.assert_allclose(shares, 0.2, atol=binomial_tolerance(0.2, P.size / 5))


def test_the_noise_lives_where_the_centre_does_not(family):
    task = family.task(agents=5, seeds=200, kappa=1.0)
    centre, noise = task.centre > 0, task.P[:, 1:] > 0
    assert not (centre & noise).any()
    # Entries of the complement are positive almost surely: together the two fill every row.
    assert (centre | noise).all()
    sizes = centre.sum(axis=-1).ravel()
    assert sizes.min() == 1
    assert sizes.max() == 4
    for k, p in ((2, 10 / 32), (1, 6 / 32), (4, 6 / 32)):  # empty and full rows become 1 and 4
        assert np.mean(sizes == k) == pytest.approx(p, abs=binomial_tolerance(p, sizes.size))


def test_the_first_environment_is_the_centre_and_kappa_moves_the_others(family):
    whole = family.task(agents=4, seeds=3, kappa=1.0)
    part = family.task(agents=4, seeds=3, kappa=0.2)
    np.testing.assert_array_equal(part.P[:, :1], part.centre)
    np.testing.assert_array_equal(part.centre, whole.centre)
    np.testing.assert_allclose(part.P[:, 1:], 0.2 * whole.P[:, 1:] + 0.8 * whole.centre, rtol=1e-14)


def test_rewards_are_uniform_fresh_per_seed_and_common_to_all_environments(family):
    R = family.task(seeds=400).R
    assert R.shape == (400, 5, 5)
    assert R.mean() == pytest.approx(0.5, abs=4 * np.sqrt(1 / 12 / R.size))
    assert not np.array_equal(R[0], R[1])


def test_entries_are_uniform_before_normalisation(family):
    # In a row of two entries u, v ~ U(0, 1): u / (u + v) has distribution function x / (2 (1 - x))
    # on [0, 1/2], so a quarter of the mass lies below 1/3.
    P = family.task(agents=5, seeds=400).P.reshape(-1, 5)
    pairs = P[(P > 0).sum(axis=1) == 2]
    first = pairs[pairs > 0].reshape(-1, 2)[:, 0]
    assert np.mean(first < 1 / 3) == pytest.approx(0.25, abs=binomial_tolerance(0.25, first.size))


def test_held_out_environments_are_new_and_of_the_independent_kind(family):
    task = family.task(agents=5, seeds=50, kappa=0.4, held_out=20)
    assert task.held_out.shape == (50, 20, 5, 5, 5)
    assert np.mean((task.held_out > 0).sum(-1) == 5) < 0.01
    without = family.task(agents=5, seeds=50, kappa=0.4)
    np.testing.assert_array_equal(without.P, task.P)


def test_a_seed_is_the_same_whoever_else_is_drawn(family):
    many = family.task(agents=3, seeds=20)
    tail = family.task(agents=3, seeds=4, first_seed=16)
    np.testing.assert_array_equal(many.P[16:], tail.P)
    np.testing.assert_array_equal(many.R[16:], tail.R)
    other = family.task(agents=3, seeds=20, seed=1)
    assert not np.array_equal(many.P, other.P)
