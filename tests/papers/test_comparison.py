"""Comparison with published numbers, by hand-made numbers."""

from dataclasses import replace
from math import hypot

import pytest

from fedrl.papers.jin2022.cell_runs import Measured
from fedrl.papers.jin2022.cells import TABLE2
from fedrl.papers.jin2022.comparison import Comparison


def comparison(ours, se=0.0, published=10.0, published_se=0.0):
    cell = replace(TABLE2[0], published=published, published_se=published_se)
    return Comparison(cell, Measured(ours, se, 100, curve=None))


def test_z_is_in_combined_standard_errors():
    assert comparison(11.0, 0.3, published_se=0.4).z == pytest.approx(1 / 0.5)


def test_a_published_standard_error_of_zero_counts_as_half_a_digit():
    assert comparison(10.01).z == pytest.approx(2.0)
    assert comparison(10.01, 0.01).z == pytest.approx(0.01 / hypot(0.005, 0.01))


def test_marks_say_within_two_within_three_and_beyond():
    marks = [comparison(10.0 + 0.005 * z).mark for z in (1.9, -2.5, 3.5)]
    assert [mark.split("]")[1][0] for mark in marks] == ["✓", "~", "✗"]
    assert not comparison(10.0 - 0.005 * 3.5).agrees
