"""What runs say about algorithms: curves over training and values at the end, seed by seed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, product
from math import inf, isfinite, sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

from fedrl.counting import count
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.experiment.toml import flat
from fedrl.files import Array
from fedrl.runs import metrics
from fedrl.runs.metrics import AVERAGE, HELD_OUT, RETURN, TRAIN
from fedrl.runs.run import Run
from fedrl.strategies.strategy import PLAIN

if TYPE_CHECKING:
    import pandas as pd

OWN = "own environment"
SPLITS = (TRAIN, HELD_OUT, OWN)
BASELINE = "Baseline"
DIVERGED = "diverged"
"""In place of a mean over seeds of which not all have a finite value."""


@dataclass(frozen=True)
class Arm:
    """One way to get a policy, measured in one run."""

    label: str
    experiment: Experiment
    updates: Array
    """Where in training it was evaluated."""
    curves: dict[str, Array]
    """Mean return over environments by split, (seeds, evaluations)."""
    thetas: tuple[str, ...] = ()
    """The training environments of all seeds."""
    folder: str = ""
    """Name of the run's folder."""
    measured: "dict[str, pd.DataFrame]" = field(default_factory=dict, repr=False, compare=False)
    """The rows of the metrics behind the curves, by split."""
    diverged: int = 0
    """Seeds in which something was not a finite number."""
    clock: Array | None = None
    """Simulated seconds at each evaluation, mean over seeds; None where there is no clock."""

    @property
    def shown(self) -> str:
        """The label, and how many seeds diverged if any did."""
        if not self.diverged:
            return self.label
        return f"{self.label} ({self.diverged} of {self.experiment.seeds} seeds diverged)"


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its 95 % confidence interval."""

    mean: float
    half: float

    @property
    def excludes_zero(self) -> bool:
        return abs(self.mean) > self.half

    def __str__(self) -> str:
        if not isfinite(self.mean):
            return DIVERGED
        # A single seed has no interval.
        return f"{self.mean:.1f}" + (f" ± {self.half:.1f}" if self.half < inf else "")


def interval(values: Array) -> Interval:
    """Student's interval; infinite with a single seed, which says nothing about others."""
    n = len(values)
    half = stdtrit(n - 1, 0.975) * values.std(ddof=1) / sqrt(n) if n > 1 else inf
    return Interval(float(values.mean()), float(half))


def arms_of(run: Run, metric: str = RETURN) -> list[Arm]:
    """The arms that a run measures: one with communication; average and Baseline without."""
    rows = run.metrics()
    frame = rows[rows["metric"] == metric]
    arm = partial(_arm, run=run, rows=rows)
    if frame.empty:
        raise FedrlError(f"{run.path} has no results yet: `fedrl resume {run.path}` goes on")
    experiment = run.experiment
    if experiment.evaluation.where == "own":
        return [arm(experiment.name, frames={OWN: in_own_environment(frame)})]
    personal = "Per" if experiment.learner.personal else ""
    algorithm = f"{personal}{type(experiment.learner).__name__}Avg"
    of_average = frame["agent"] == AVERAGE
    splits = (TRAIN, HELD_OUT) if experiment.held_out else (TRAIN,)
    average = {split: frame[of_average & (frame["split"] == split)] for split in splits}
    # One policy for all: the mean over agents of it in their own environments is the training mean.
    average[OWN] = average[TRAIN]
    if personal and experiment.communicates:
        average[OWN] = in_own_environment(frame)
    if experiment.communicates:
        unit = "" if experiment.unit == "updates" else f" {experiment.unit}"
        words = [f"{algorithm}, E = {int(experiment.E)}{unit}", *beside_averaging(experiment)]
        return [arm(", ".join(words), frames=average)]
    local = {split: frame[~of_average & (frame["split"] == split)] for split in splits}
    local[OWN] = in_own_environment(frame)
    return [arm("E = ∞", frames=average), arm(BASELINE, frames=local)]


def beside_averaging(experiment: Experiment) -> list[str]:
    """What is not plain averaging in rounds that wait: parts of the strategy, arrivals."""
    arrivals, parts = experiment.timing.arrivals, vars(experiment.strategy)
    names = [x.name for part, x in parts.items() if type(x) is not type(getattr(PLAIN, part))]
    return [*names, count(arrivals, "arrivals")] if arrivals else names


def in_own_environment(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Agents' own models where they were trained."""
    training = frame[(frame["split"] == TRAIN) & (frame["agent"] != AVERAGE)]
    return training[training["agent"] == training["environment"].astype(str)]


def thetas_of(frame: "pd.DataFrame") -> "pd.Series[str]":
    """The theta of each environment, seed by seed."""
    places = frame.drop_duplicates(["seed", "environment"])
    return places.sort_values(["seed", "environment"])["theta"]


def told_apart(arms: Sequence[Arm]) -> list[Arm]:
    """The arms, with what tells them apart added to labels that are equal.

    That is the names of the runs; settings that differ, where names do not; folders, where nothing
    in the settings does.
    """

    def settings(places: Sequence[int]) -> list[str]:
        found = [flat(arms[i].experiment) for i in places]
        names = dict.fromkeys(name for one in found for name in one)
        # What an arm lacks is a difference, too.
        differing = [name for name in names if len({one.get(name) for one in found}) > 1]
        return [
            ", ".join(f"{name}={one[name]}" for name in differing if name in one)
            or f"without {', '.join(differing)}"
            for one in found
        ]

    labels: list[tuple[str, ...]] = [(arm.label,) for arm in arms]
    for distinction in (
        lambda places: [arms[i].experiment.name for i in places],
        settings,
        lambda places: [arms[i].folder for i in places],
        lambda places: [str(number) for number in range(1, len(places) + 1)],
    ):
        for label in dict.fromkeys(labels):
            places = [i for i, one in enumerate(labels) if one == label]
            words = distinction(places)
            if len(set(words)) > 1:
                for i, what in zip(places, words, strict=True):
                    labels[i] += (what,)
    return [
        replace(arm, label=f"{arm.label} ({', '.join(more)})") if more else arm
        for arm, (_, *more) in zip(arms, labels, strict=True)
    ]


def _arm(label: str, *, run: Run, frames: "dict[str, pd.DataFrame]", rows: "pd.DataFrame") -> Arm:
    """An arm from the rows of its splits; `rows` are all of the run."""
    events = rows[rows["metric"] == metrics.DIVERGED]
    clock = rows[rows["metric"] == metrics.CLOCK].groupby("updates")["value"].mean()
    # Nobody plays the average of a personalised federation over a network in training environments.
    frames = {split: frame for split, frame in frames.items() if len(frame)}
    curves = {
        split: strict_mean(frame, ["seed", "updates"]).unstack("updates")
        for split, frame in frames.items()
    }
    bad = curves[OWN].isna().any(axis=1)
    diverged = {*bad.index[bad], *events["seed"]}
    stopped = sorted({x for x in events["updates"] if x > curves[OWN].columns[-1]})
    # After the last evaluation: the run has no value at its end.
    curves = {split: curve.reindex(columns=[*curve, *stopped]) for split, curve in curves.items()}
    updates = curves[OWN].columns.to_numpy()
    thetas = thetas_of(frames[OWN]).astype(str)
    values = {split: curve.to_numpy() for split, curve in curves.items()}
    about = (values, tuple(thetas), run.path.name, frames, len(diverged))
    # Where a run stopped, nobody looked at the clock.
    seconds = None if clock.empty else clock.reindex(updates).ffill().to_numpy()
    return Arm(label, run.experiment, updates, *about, seconds)


def along(arms: Sequence[Arm]) -> tuple[str, list[Array]]:
    """What curves are drawn over, and where: simulated seconds if all arms have a clock."""
    clocks = [arm.clock for arm in arms if arm.clock is not None]
    if len(clocks) == len(arms):
        return "simulated seconds", clocks
    return f"{arms[0].experiment.unit} of each agent", [arm.updates for arm in arms]


def strict_mean(frame: "pd.DataFrame", by: list[str]) -> "pd.Series[float]":
    """Means of `value` in groups; not a number where one of a group is not finite."""
    finite = frame.assign(value=frame["value"].where(np.isfinite(frame["value"])))
    grouped = finite.groupby(by)["value"]
    return grouped.mean().where(grouped.count() == grouped.size())


def final(arm: Arm, split: str) -> Array:
    """Value of each seed at the end."""
    return np.asarray(arm.curves[split][:, -1])


def over_training(arm: Arm, split: str) -> Array:
    """Mean value of each seed over the whole training: who learns faster has more."""
    length = arm.updates[-1] - arm.updates[0]
    area = np.trapezoid(arm.curves[split], arm.updates, axis=1)
    return np.asarray(area) / length if length else final(arm, split)


def same_draws(arms: Sequence[Arm]) -> bool:
    """Whether seed k of each arm has the same environments, so that seeds can be paired."""
    shared = ("family", "agents", "held_out", "seed", "seeds")
    draws = {(arm.thetas, *(getattr(arm.experiment, x) for x in shared)) for arm in arms}
    return len(draws) == 1


def difference(
    one: Arm, other: Arm, split: str, value: Callable[[Arm, str], Array] = final
) -> Interval:
    """How much better the first one is, with seeds paired if they can be."""
    a, b = value(one, split), value(other, split)
    if same_draws((one, other)):
        return interval(a - b)
    x, y = interval(a), interval(b)
    return Interval(x.mean - y.mean, sqrt(x.half**2 + y.half**2))


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
