"""The rule behind the verdicts: where it draws lines, how often it errs, and that it is fair."""

from math import inf, nan, sqrt

import numpy as np
import pytest
import scipy.stats

from fedrl.papers.jin2022.verdicts import PValues, holm, outcome, p_values, verdict
from fedrl.report.arms import Interval, interval

MARGIN, SEEDS = 1.0, 12
EXCHANGED = {"better": "worse", "worse": "better"}
DRAWS = 8000


@pytest.mark.parametrize(
    ("mean", "half", "expected"),
    [
        (5.0, 3.9, "better"),
        (5.0, 4.1, "undecided"),  # reaches below the margin
        (0.1, 0.05, "equivalent"),  # there, and too small to count
        (0.0, 0.9, "equivalent"),
        (0.0, 1.1, "undecided"),  # reaches above it
        (-0.5, 0.4, "equivalent"),
        (-5.0, 3.9, "worse"),
        (-5.0, 4.1, "undecided"),
        (-3.0, 3.9, "undecided"),  # no advantage, but it may be a disadvantage
        (5.0, inf, "undecided"),
        (nan, nan, "undecided"),
        (0.0, 0.0, "equivalent"),
        (2.0, 0.0, "better"),
    ],
)
def test_a_comparison_is_where_its_interval_lies_seen_from_the_margins(mean, half, expected):
    assert outcome(p_values(Interval(mean, half), MARGIN, SEEDS)) == expected
    exchanged = outcome(p_values(Interval(-mean, half), MARGIN, SEEDS))
    assert exchanged == EXCHANGED.get(expected, expected)


def test_a_single_seed_decides_nothing():
    p = p_values(interval(np.array([99.0])), MARGIN, 1)
    assert (outcome(p), verdict([p])) == ("undecided", "undecided")


def test_p_values_are_those_of_scipys_one_sided_tests(rng):
    for values in rng.normal(0.5, 2, size=(20, 7)):
        p = p_values(interval(values), MARGIN, 7)
        above = [scipy.stats.ttest_1samp(values, x, alternative="greater").pvalue for x in (-1, 1)]
        below = [scipy.stats.ttest_1samp(values, x, alternative="less").pvalue for x in (-1, 1)]
        assert p == pytest.approx((above[1], below[0], max(above[0], below[1])))


def test_holm_multiplies_the_smallest_most_and_keeps_the_order():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.5]) == [1.0, 1.0]


GOOD, BAD, SAME, OPEN = (
    PValues(1e-9, 1.0, 1.0),
    PValues(1.0, 1e-9, 1.0),
    PValues(1.0, 1.0, 1e-9),
    PValues(0.5, 0.5, 0.5),
)


@pytest.mark.parametrize(
    ("comparisons", "expected"),
    [
        ([GOOD, GOOD], "supported"),
        ([GOOD, OPEN], "undecided"),
        ([OPEN], "undecided"),
        ([GOOD, BAD, OPEN], "contradicted"),
        ([GOOD, SAME, OPEN], "no advantage"),
        ([SAME, BAD], "contradicted"),
        # All have to hold: no correction of 0.02, where 4 x 0.02 would fail.
        ([PValues(0.02, 1.0, 1.0)] * 4, "supported"),
        # Any one will do: 0.02 is not enough of four, and is of one.
        ([PValues(1.0, 0.02, 1.0), GOOD, GOOD, GOOD], "undecided"),
        ([PValues(1.0, 1.0, 0.02), GOOD, GOOD, GOOD], "undecided"),
        ([PValues(1.0, 0.02, 1.0)], "contradicted"),
        ([PValues(1.0, 1.0, 0.02)], "no advantage"),
        ([PValues(1.0, 0.006, 1.0), GOOD, GOOD, GOOD], "contradicted"),
    ],
)
def test_a_claim_needs_all_of_its_comparisons_and_is_rejected_by_any(comparisons, expected):
    assert verdict(comparisons) == expected


def drawn(rng, truths, sigma=1.0):
    """The p-values of many studies whose comparisons have these true advantages."""
    values = rng.normal(np.asarray(truths)[:, None], sigma, size=(DRAWS, len(truths), SEEDS))
    return [[p_values(interval(one), MARGIN, SEEDS) for one in study] for study in values]


def share(found, *wanted):
    return np.mean([one in wanted for one in found])


def near(rate, count=DRAWS):
    return pytest.approx(rate, abs=4 * sqrt(rate * (1 - rate) / count))


@pytest.mark.parametrize(
    ("truth", "wrong"),
    [
        (MARGIN, "better"),
        (MARGIN, "equivalent"),
        (-MARGIN, "worse"),
        (-MARGIN, "equivalent"),
    ],
)
def test_a_comparison_errs_at_the_level_where_it_is_hardest(rng, truth, wrong):
    found = [outcome(p) for (p,) in drawn(rng, [truth], sigma=0.5)]
    assert share(found, wrong) == near(0.025)


def test_a_claim_whose_weakest_advantage_is_the_margin_is_supported_at_the_level(rng):
    found = [verdict(p) for p in drawn(rng, [MARGIN, 9, 9, 9])]
    assert share(found, "supported") == near(0.025)


@pytest.mark.parametrize("sigma", [0.2, 3.0])
def test_a_claim_that_just_holds_is_rejected_no_more_often_than_the_level(rng, sigma):
    studies = drawn(rng, [MARGIN] * 4, sigma)
    rejected = share(map(verdict, studies), "contradicted", "no advantage")
    assert rejected <= 0.025 + 4 * sqrt(0.025 * 0.975 / DRAWS)
    if sigma == 0.2:  # precise enough to call it equivalent
        # Of independent comparisons: one try in four at a quarter of the level each.
        assert rejected == near(1 - (1 - 0.025 / 4) ** 4)
        # Without correction it would happen four times as often.
        tries = [any(outcome(p) in ("worse", "equivalent") for p in one) for one in studies]
        assert np.mean(tries) == near(1 - 0.975**4)


@pytest.mark.parametrize("sigma", [0.5, 3.0, 30.0])
def test_where_there_is_no_difference_neither_arm_is_favoured(rng, sigma):
    found = [outcome(p) for (p,) in drawn(rng, [0.0], sigma)]
    better, worse = share(found, "better"), share(found, "worse")
    assert max(better, worse) <= 0.025 + 4 * sqrt(0.025 * 0.975 / DRAWS)
    assert better == pytest.approx(worse, abs=4 * sqrt(2 * 0.025 / DRAWS))


def test_exchanging_the_arms_exchanges_better_and_worse_and_nothing_else(rng):
    seen = set()
    for truth, sigma in ((0.0, 1.0), (1.5, 1.0), (-1.5, 1.0)):
        for values in rng.normal(truth, sigma, size=(300, SEEDS)):
            there, back = (p_values(interval(x), MARGIN, SEEDS) for x in (values, -values))
            assert back == pytest.approx((there.worse, there.better, there.equivalent))
            assert outcome(back) == EXCHANGED.get(outcome(there), outcome(there))
            seen.add(outcome(there))
            claim = {"supported": "contradicted", "contradicted": "supported"}
            assert verdict([back]) == claim.get(verdict([there]), verdict([there]))
    assert seen == {"better", "worse", "equivalent", "undecided"}
