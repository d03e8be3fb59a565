"""Returns of single environments at the end, against theta."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from fedrl.report.arms import OWN, Arm, strict_mean
from fedrl.report.html.numbers import decimal, extremes
from fedrl.report.html.points import Cloud, Point, cloud_chart, coloured_chart
from fedrl.report.html.section import Section, style_of
from fedrl.report.html.svg import Chart
from fedrl.report.html.words import PLACES
from fedrl.runs.metrics import HELD_OUT, TRAIN

Frames = Mapping[str, Sequence[pd.DataFrame]]
"""The last evaluation of each arm, by split."""
MOST_POINTS = 1000
"""In a chart; the lines are made of all."""
PLACE = ["seed", "environment"]


def at_the_end(arm: Arm, split: str) -> pd.DataFrame:
    """The last evaluation, with a column for each constant of theta: seed, environment, t0, ...

    Empty where theta is not known: agents of a federation over a network keep it to themselves.
    """
    measured = arm.measured[split]
    last = measured["updates"] == measured["updates"].max()
    frame: pd.DataFrame = measured[last & measured["theta"].notna()]
    parts = frame["theta"].astype(str).str.split(" ", expand=True).add_prefix("t")
    if parts.shape[1] != len(arm.experiment.family.varied):
        return frame.head(0)
    return frame.join(parts.astype(float))


def returns_against_theta(arms: Sequence[Arm], metric: str) -> Section:
    """Charts for each split: against the constant that varies, or in the plane of two."""
    section = partial(Section, "environments", "Returns in single environments")
    varied = arms[0].experiment.family.varied
    if any(arm.experiment.family.varied != varied for arm in arms):
        why = (
            "The runs are of families that vary in different constants; each has a page of its own."
        )
        return section(notes=[why])
    splits = [s for s in (OWN, HELD_OUT) if all(s in arm.measured for arm in arms)]
    measured = {split: [at_the_end(arm, split) for arm in arms] for split in splits}
    frames = [frame for found in measured.values() for frame in found]
    values = np.concatenate([frame["value"] for frame in frames])
    finite = np.isfinite(values)
    if not finite.any():
        why = (
            "Not shown: no return is a finite number."
            if len(values)
            else "Not shown: theta is not among the measurements, since agents that learn over a "
            "network tell nobody about their environments."
        )
        return section(notes=[why])
    words = [
        "Each point is one environment of one seed at the end of training. In training "
        "environments plays the model of the agent that lives there, in held-out ones the average "
        "(Baseline: the mean over all agents’ models)."
    ]
    if len(varied) == 1:
        words.append("The lines are means of neighbours.")
    if not finite.all():
        words.append("Where a return is not a finite number nothing is drawn.")
    if any(len(frame.drop_duplicates(PLACE)) > MOST_POINTS // len(arms) for frame in frames):
        words.append("Of many environments, only the first ones are drawn as points.")
    if len(varied) == 2:
        return section(words, charts=[*_maps(arms, measured, metric, extremes(values))])
    charts = [*_clouds(arms, measured, metric, extremes(values))]
    legend = [(style_of(number), arm.shown) for number, arm in enumerate(arms)]
    return section(words, charts=charts, legend=legend)


def _clouds(
    arms: Sequence[Arm], frames: Frames, metric: str, ys: tuple[float, float]
) -> Iterator[Chart]:
    """Returns against each constant, for each split; a line only where nothing else varies."""
    varied = arms[0].experiment.family.varied
    most, trends = MOST_POINTS // len(arms), len(varied) == 1
    for i, name in enumerate(constant.name for constant in varied):
        for split, found in frames.items():
            clouds = [
                Cloud(arm.shown, style_of(number), points)
                for number, (arm, frame) in enumerate(zip(arms, found, strict=True))
                if (points := _points(frame, {name: f"t{i}"}))
            ]
            if clouds:
                title, labels = f"{_place(split)}, by {name}", (name, metric)
                yield cloud_chart(title, clouds, labels, ys, most=most, trends=trends)


def _maps(
    arms: Sequence[Arm], frames: Frames, metric: str, values: tuple[float, float]
) -> Iterator[Chart]:
    """For two constants: where in their plane returns are high, for each split and arm."""
    x, y = (varied.name for varied in arms[0].experiment.family.varied)
    for split, found in frames.items():
        for arm, frame in zip(arms, found, strict=True):
            points = _points(frame, {x: "t0", y: "t1"})[: MOST_POINTS // len(arms)]
            if points:
                title = _place(split) + (f", {arm.shown}" if len(arms) > 1 else "")
                yield coloured_chart(title, points, (x, y), metric, values)


def _place(split: str) -> str:
    return PLACES[TRAIN if split == OWN else split]


def _points(frame: pd.DataFrame, constants: Mapping[str, str]) -> list[Point]:
    """A point for each environment, at its constants: of one, the other axis is the return.

    That is the mean over the models that were played there; environments in which one of them has
    no finite return are left out.
    """
    if frame.empty:
        return []
    columns = list(constants.values())
    found = strict_mean(frame, [*PLACE, *columns]).dropna()
    points = []
    for (seed, _, *theta), value in zip(found.index, found.tolist(), strict=True):
        said = [f"{name} {x:.4g}" for name, x in zip(constants, theta, strict=True)]
        x, y = [*theta, value][:2]
        points.append(Point(x, y, " · ".join([f"seed {seed}", *said]), decimal(value), value))
    return points
