"""Which arms of several runs are shown beside each other, and which are compared."""

from collections.abc import Sequence
from itertools import combinations, product
from typing import NamedTuple

from fedrl.errors import FedrlError
from fedrl.report.arms import SPLITS, Arm, arms_of, told_apart
from fedrl.runs.metrics import RETURN
from fedrl.runs.run import Run


class SideBySide(NamedTuple):
    """What is shown."""

    arms: list[Arm]
    splits: list[str]
    """Where all of them were evaluated."""


def side_by_side(runs: Sequence[Run], metric: str = RETURN) -> SideBySide:
    """The arms of all runs, each with a label of its own."""
    if len({run.experiment.unit for run in runs}) > 1:
        raise FedrlError("runs that count updates and runs that count episodes cannot be compared")
    arms = told_apart([arm for run in runs for arm in arms_of(run, metric)])
    # Those with communication first, whatever the order of the folders: colours keep their meaning.
    arms.sort(key=lambda arm: not arm.experiment.communicates)
    return SideBySide(arms, [s for s in SPLITS if all(s in arm.curves for arm in arms)])


def pairs(arms: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    """Each arm against those that do less: communicate, personalise; adaptations pair by pair."""
    if all(arm.experiment.evaluation.where == "own" for arm in arms):
        return list(combinations(arms, 2))
    federated = [arm for arm in arms if arm.experiment.communicates]
    others = [arm for arm in arms if not arm.experiment.communicates]
    personal = [arm for arm in federated if arm.experiment.learner.personal]
    plain = [arm for arm in federated if not arm.experiment.learner.personal]
    return [*product(personal, plain), *product(federated, others)]
