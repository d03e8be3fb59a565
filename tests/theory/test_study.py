"""The study of one problem, where the right numbers are known."""

import warnings

import numpy as np
import pytest

from fedrl import theory
from fedrl.tabular.families import ImaginaryIsBetter, QAvgTrap
from fedrl.theory.study import study


def study_of(example):
    return study(theory.checked(*example.matrices(), example.gamma, example.d0()))


def test_in_the_trap_qavg_ends_2_below_the_best_policy():
    found = study_of(QAvgTrap())
    at_one = {gap.algorithm: gap.gap for gap in found.gaps if gap.kappa == 1}
    assert at_one["qavg"] == pytest.approx(2.0)
    # Without heterogeneity the imaginary environment is the real one.
    same = {gap.algorithm: gap.gap for gap in found.gaps if gap.kappa == 0}
    assert same["qavg"] == pytest.approx(0.0, abs=1e-9)


def test_a_gradient_that_is_exactly_zero_is_no_trouble():
    # One action: nothing to learn, nothing to move.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = study_of(ImaginaryIsBetter())
        slack = {curve.slack for curve in found.curves if curve.theorem == "theorem 3"}
    assert slack == {np.inf}
    assert all(curve.holds for curve in found.curves)
