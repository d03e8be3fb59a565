"""When a claim holds: one rule for both directions, with a margin and Holm's correction.

A comparison is the mean over seeds of an advantage. It is compared with a margin on both sides of
zero, so that exchanging the two arms exchanges `better` and `worse` and nothing else.
"""

from collections.abc import Sequence
from math import isnan
from typing import Literal, NamedTuple

from scipy.special import stdtr, stdtrit

from fedrl.report.arms import Interval

LEVEL = 0.025
"""Of each one-sided test: what the 95 % interval shows on one of its sides."""

Outcome = Literal["better", "worse", "equivalent", "undecided"]
Verdict = Literal["supported", "contradicted", "no advantage", "undecided"]


class PValues(NamedTuple):
    """Of the three things that a comparison can show."""

    better: float
    """The advantage is larger than the margin."""
    worse: float
    """The disadvantage is larger than the margin."""
    equivalent: float
    """Both are smaller: the larger p-value of the two one-sided tests."""


def p_values(size: Interval, margin: float, seeds: int) -> PValues:
    """Student's one-sided tests of a mean over seeds, known by its 95 % interval."""
    df = seeds - 1
    error = size.half / float(stdtrit(df, 0.975))

    def exceeds(mean: float, bound: float) -> float:
        if error == 0:
            return 0.0 if mean > bound else 1.0
        p = float(stdtr(df, (bound - mean) / error))
        return 1.0 if isnan(p) else p  # a single seed shows nothing

    return PValues(
        better=exceeds(size.mean, margin),
        worse=exceeds(-size.mean, margin),
        equivalent=max(exceeds(size.mean, -margin), exceeds(-size.mean, -margin)),
    )


def outcome(p: PValues) -> Outcome:
    """What a comparison shows by itself: where its 95 % interval lies."""
    shown: dict[Outcome, float] = {"better": p.better, "worse": p.worse, "equivalent": p.equivalent}
    return next((name for name, value in shown.items() if value <= LEVEL), "undecided")


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order of `p`."""
    adjusted, largest = [0.0] * len(p), 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min((len(p) - rank) * p[index], 1.0))
        adjusted[index] = largest
    return adjusted


def verdict(comparisons: Sequence[PValues]) -> Verdict:
    """The verdict on a claim, which says that all of these comparisons are advantages.

    To support it, each has to be shown, and no correction is needed: the chance that all pass is
    at most the chance that the false one does. To reject it, any one will do, which gives chance
    as many tries as there are comparisons: Holm's correction makes up for that.
    """
    if all(p.better <= LEVEL for p in comparisons):
        return "supported"
    adjusted = holm([min(p.worse, p.equivalent) for p in comparisons])
    shown = {outcome(p) for p, a in zip(comparisons, adjusted, strict=True) if a <= LEVEL}
    if "worse" in shown:
        return "contradicted"
    return "no advantage" if shown else "undecided"
