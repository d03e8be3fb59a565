"""Which arms of several runs are shown beside each other, and which are compared."""

from collections.abc import Iterator, Sequence
from itertools import combinations, product

from fedrl.errors import FedrlError
from fedrl.report.arms import (
    Arm,
    Interval,
    arms_of,
    difference,
    final,
    over_training,
    told_apart,
)
from fedrl.runs.run import Run


def side_by_side(runs: Sequence[Run], metric: str) -> list[Arm]:
    """The arms of all runs, each with a label of its own."""
    if len({run.experiment.unit for run in runs}) > 1:
        raise FedrlError("runs that count updates and runs that count episodes cannot be compared")
    arms = told_apart([arm for run in runs for arm in arms_of(run, metric)])
    # Those with communication first, whatever the order of the folders: colours keep their meaning.
    return sorted(arms, key=lambda arm: not arm.experiment.communicates)


def pairs(arms: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    """Each arm against those that do less: communicate, personalise; adaptations pair by pair."""
    if all(arm.experiment.evaluation.where == "own" for arm in arms):
        return list(combinations(arms, 2))
    federated = [arm for arm in arms if arm.experiment.communicates]
    others = [arm for arm in arms if not arm.experiment.communicates]
    personal = [arm for arm in federated if arm.experiment.learner.personal]
    plain = [arm for arm in federated if not arm.experiment.learner.personal]
    return [*product(personal, plain), *product(federated, others)]


def differences(
    arms: Sequence[Arm], splits: Sequence[str]
) -> Iterator[tuple[str, str, list[Interval]]]:
    """(whose, when, how much in each split) of what is compared."""
    for one, other in pairs(arms):
        for when, value in (("end", final), ("training", over_training)):
            gains = [difference(one, other, split, value) for split in splits]
            yield f"{one.label} − {other.label}", when, gains
