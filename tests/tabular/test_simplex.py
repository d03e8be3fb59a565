"""Projection onto the simplex against an optimiser and against its defining property."""

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import minimize
from tests.obvious_numpy import project_row

from fedrl.tabular.exact.simplex import project

compiled = jax.jit(project)


def project_rows(v):
    """Rows of v (S, A) through the lane-last implementation."""
    with jax.enable_x64(True):
        return np.asarray(compiled(np.asarray(v)[..., None]))[..., 0]


# Up to 16 actions neighbours are compared, beyond that rows are sorted by a library.
@pytest.mark.parametrize("A", [1, 2, 4, 16, 17, 40])
def test_projected_rows_are_the_nearest_probability_vectors(rng, A):
    rows = rng.normal(scale=2.0, size=(50, A))
    projected = project_rows(rows)
    assert (projected >= 0).all()
    np.testing.assert_allclose(projected.sum(axis=1), 1.0, rtol=1e-12)
    # Optimality on the simplex: no vertex lies on the far side of the projection.
    towards_vertices = rows - projected - ((rows - projected) * projected).sum(1, keepdims=True)
    assert towards_vertices.max() < 1e-11
    np.testing.assert_allclose(projected, [project_row(row) for row in rows], atol=1e-12)


@pytest.mark.parametrize("size", [1e3, 1e9, 1e18])
def test_projection_survives_large_entries(size):
    rows = np.array([[size, size, -size], [size, 0.0, 0.0]])
    np.testing.assert_allclose(project_rows(rows), [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], atol=1e-12)


def test_projection_matches_a_general_optimiser(rng):
    for row in rng.normal(size=(10, 4)):
        best = minimize(
            lambda x, row=row: ((x - row) ** 2).sum(),
            np.full(4, 0.25),
            bounds=[(0, 1)] * 4,
            constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-14},
        )
        np.testing.assert_allclose(project_rows(row[None])[0], best.x, atol=1e-6)


@given(st.lists(st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0, 3.0]), min_size=3, max_size=3))
@settings(max_examples=60)
def test_projection_is_right_when_entries_tie(row):
    np.testing.assert_allclose(project_rows([row])[0], project_row(np.array(row)), atol=1e-12)


def test_a_lane_that_is_no_number_spoils_no_other(rng):
    v = rng.normal(size=(3, 4, 8))
    spoilt = v.copy()
    spoilt[0, 0, 0] = np.nan
    with jax.enable_x64(True):
        one, other = np.asarray(compiled(v)), np.asarray(compiled(spoilt))
    assert np.isnan(other[0, :, 0]).all()
    np.testing.assert_array_equal(one[..., 1:], other[..., 1:])
