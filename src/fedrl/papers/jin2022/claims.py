"""The four empirical claims of the paper, as differences with intervals over seeds."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedrl.files import Array
from fedrl.papers.jin2022.studies import METHODS, Study
from fedrl.papers.jin2022.verdicts import Outcome, PValues, Verdict, outcome, p_values, verdict
from fedrl.report.arms import (
    OWN,
    Arm,
    Interval,
    arms_of,
    difference,
    final,
    interval,
    over_training,
)
from fedrl.runs.adaptation import Method
from fedrl.runs.metrics import HELD_OUT, RETURN, TRAIN
from fedrl.runs.run import Run

CLAIMS = {
    "C1": "communication speeds up local training",
    "C2": "averaging beats E = inf and Baseline",
    "C3": "personalisation beats the single policy in own environments",
    "C4": "E-Update adapts fast and stably, better than E&N- and Phi-Update",
}
MARGIN = 0.01
"""A difference of less than this share of what there is to learn is none, in either direction."""


@dataclass(frozen=True)
class Measured:
    """The arms of a family's study, by what they are."""

    study: Study
    plain: Arm
    average_at_the_end: Arm
    """E = inf: independent agents whose networks are averaged for the evaluation."""
    baseline: Arm
    personal: Arm
    adapted: Mapping[Method, Arm]
    """By method, in the held-out environments."""
    falls: Mapping[Method, Array]
    """By method: how far an adapting agent falls below its own best, mean over environments."""

    @property
    def range(self) -> float:
        """What there is to learn: from the untrained networks to the best arm."""
        arms = (self.plain, self.baseline, self.personal)
        # NumPy's: where an arm has diverged, nothing is known of the range either.
        untrained = np.min([arm.curves[OWN][:, 0].mean() for arm in arms])
        best = np.max([final(arm, OWN).mean() for arm in arms])
        return float(np.maximum(best - untrained, 0.0))


@dataclass(frozen=True)
class Effect:
    """How much of a claim there is in one family, seen in one way."""

    claim: str
    family: str
    what: str
    size: Interval
    margin: float
    """Smaller differences count as none, in either direction."""
    seeds: int

    @property
    def p(self) -> PValues:
        return p_values(self.size, self.margin, self.seeds)

    @property
    def outcome(self) -> Outcome:
        return outcome(self.p)


def measured(study: Study, runs: list[Run], adapted: Mapping[Method, Run]) -> Measured:
    """What the finished runs of a study say."""
    (plain,), (average, baseline), (personal,) = (arms_of(run) for run in runs)
    arms = {method: arms_of(adapted[method])[0] for method in METHODS}
    falls = {method: _falls(adapted[method]) for method in METHODS}
    return Measured(study, plain, average, baseline, personal, arms, falls)


def effects(found: Measured) -> list[Effect]:
    """Every difference that the claims speak of."""
    plain, average, baseline = found.plain, found.average_at_the_end, found.baseline
    personal, (e, en, phi) = found.personal, (found.adapted[method] for method in METHODS)
    avg = plain.label.partition(",")[0]
    per = f"Per{avg} − {avg}"
    sizes = [
        ("C1", f"{avg} − alone, own, over the training", plain, baseline, OWN, over_training),
        ("C1", f"{avg} − alone, own, at the end", plain, baseline, OWN, final),
        ("C2", f"{avg} − E = ∞, training", plain, average, TRAIN, final),
        ("C2", f"{avg} − Baseline, training", plain, baseline, TRAIN, final),
        ("C2", f"{avg} − E = ∞, held-out", plain, average, HELD_OUT, final),
        ("C2", f"{avg} − Baseline, held-out", plain, baseline, HELD_OUT, final),
        ("C3", f"{per}, over the training", personal, plain, OWN, over_training),
        ("C3", f"{per}, at the end", personal, plain, OWN, final),
        ("C4", "E − E&N, over the adaptation (fast)", e, en, OWN, over_training),
        ("C4", "E − E&N, at the end", e, en, OWN, final),
        ("C4", "E − Phi, at the end", e, phi, OWN, final),
    ]
    falls = interval(found.falls["en-update"] - found.falls["e-update"])
    margin, seeds, family = MARGIN * found.range, plain.experiment.seeds, found.study.family
    return [
        *(
            Effect(claim, family, what, difference(one, other, split, value), margin, seeds)
            for claim, what, one, other, split, value in sizes
        ),
        Effect("C4", family, "falls of E&N − falls of E (stable)", falls, margin, seeds),
    ]


def of_claim(found: list[Effect]) -> Verdict:
    """The verdict on a claim from all of its comparisons."""
    return verdict([effect.p for effect in found])


def _falls(run: Run) -> Array:
    """For each seed, how far an agent falls below its own best return, at worst."""
    frame = run.metrics()
    frame = frame[(frame["metric"] == RETURN) & (frame["split"] == TRAIN)]
    table = frame.set_index(["seed", "agent", "updates"])["value"].unstack("updates")
    curves = table.to_numpy().reshape(run.experiment.seeds, run.experiment.agents, -1)
    below = np.maximum.accumulate(curves, -1) - curves
    falls: Array = below.max(-1).mean(-1)
    return falls
