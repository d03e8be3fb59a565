"""Returns of single environments at the end: against theta, and of every agent in each."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fedrl.report.arms import BASELINE, OWN, Arm, strict_mean
from fedrl.report.html.heat import heat_chart
from fedrl.report.html.numbers import decimal, extremes
from fedrl.report.html.points import Cloud, Point, cloud_chart, coloured_chart
from fedrl.report.html.section import Section, style_of
from fedrl.report.html.svg import Chart
from fedrl.report.html.words import PLACES
from fedrl.runs.metrics import HELD_OUT, TRAIN

if TYPE_CHECKING:
    import pandas as pd

Frames = Mapping[str, Sequence["pd.DataFrame"]]
"""The last evaluation of each arm, by split."""
MOST_POINTS = 1000
"""In a chart; the lines are made of all."""
MOST_CELLS = 40
"""Rows or columns of a heat map; more are taken together."""
PLACE = ["seed", "environment"]


def at_the_end(arm: Arm, split: str) -> "pd.DataFrame":
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
    values = np.concatenate([frame["value"] for found in measured.values() for frame in found])
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
    frames = [frame for found in measured.values() for frame in found]
    if any(len(frame.drop_duplicates(PLACE)) > MOST_POINTS // len(arms) for frame in frames):
        words.append("Of many environments, only the first ones are drawn as points.")
    if len(varied) == 2:
        return section(words, charts=_maps(arms, measured, metric, extremes(values)))
    charts = _clouds(arms, measured, metric, extremes(values))
    legend = [(style_of(number), arm.shown) for number, arm in enumerate(arms)]
    return section(words, charts=charts, legend=legend)


def _clouds(
    arms: Sequence[Arm], frames: Frames, metric: str, ys: tuple[float, float]
) -> list[Chart]:
    """Returns against each constant, for each split; a line only where nothing else varies."""
    family = arms[0].experiment.family
    charts = []
    for i, varied in enumerate(family.varied):
        for split, found in frames.items():
            clouds = [
                Cloud(arm.shown, style_of(number), points, MOST_POINTS // len(arms))
                for number, (arm, frame) in enumerate(zip(arms, found, strict=True))
                if (points := _points(frame, {varied.name: f"t{i}"}))
            ]
            if clouds:
                title, labels = f"{_place(split)}, by {varied.name}", (varied.name, metric)
                only = len(family.varied) == 1
                charts.append(cloud_chart(title, clouds, labels, ys, trends=only))
    return charts


def _maps(
    arms: Sequence[Arm], frames: Frames, metric: str, values: tuple[float, float]
) -> list[Chart]:
    """For two constants: where in their plane returns are high, for each split and arm."""
    x, y = (varied.name for varied in arms[0].experiment.family.varied)
    return [
        coloured_chart(
            _place(split) + (f", {arm.shown}" if len(arms) > 1 else ""),
            points[: MOST_POINTS // len(arms)],
            (x, y),
            metric,
            values,
        )
        for split, found in frames.items()
        for arm, frame in zip(arms, found, strict=True)
        if (points := _points(frame, {x: "t0", y: "t1"}))
    ]


def _place(split: str) -> str:
    return PLACES[TRAIN if split == OWN else split]


def _points(frame: "pd.DataFrame", constants: Mapping[str, str]) -> list[Point]:
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


def baseline_matrices(arms: Sequence[Arm], metric: str) -> Section | None:
    """Every agent's own model in every environment; adaptations have nothing of the kind."""
    key, title = "baseline", "Baseline: every agent in every environment"
    everywhere = [arm for arm in arms if TRAIN in arm.measured]
    if not everywhere:
        return None
    alone = [
        arm for arm in everywhere if arm.label.startswith(BASELINE) and len(at_the_end(arm, TRAIN))
    ]
    if not alone:
        why = (
            "Not shown: none of the runs has agents that learnt alone and were evaluated "
            "everywhere. `fedrl run PRESET --baseline` adds one."
        )
        return Section(key, title, notes=[why])
    charts = []
    for arm in alone:
        splits = [split for split in (TRAIN, HELD_OUT) if split in arm.measured]
        matrices = {split: matrix(arm, split) for split in splits}
        range_ = extremes(np.concatenate([one.to_numpy().ravel() for one in matrices.values()]))
        which = f", {arm.label}" if len(alone) > 1 else ""
        charts += [
            heat_chart(f"{PLACES[split].capitalize()}{which}", one, metric, range_)
            for split, one in matrices.items()
        ]
    varied = alone[0].experiment.family.varied
    names = ", then ".join(varied[i].name for i in _order(alone[0]))
    words = [
        "Agents that never communicate, each with the model it learnt alone: a row is an agent, a "
        f"column an environment. Both are sorted by {names} within a seed, "
        "and cells and labels are means over seeds; the diagonal of the training environments is "
        "where agents are at home."
    ]
    return Section(key, title, words, charts=charts)


def _order(arm: Arm) -> list[int]:
    """The constants that environments are sorted by: those that make groups, then another one."""
    frame = at_the_end(arm, TRAIN)
    distinct = [frame[f"t{i}"].nunique() for i in range(len(arm.experiment.family.varied))]
    groups = [i for i, values in enumerate(distinct) if values < max(distinct)]
    return [*groups, distinct.index(max(distinct))]


def matrix(arm: Arm, split: str) -> "pd.DataFrame":
    """Mean over seeds of the returns, rows (agents) and columns (environments) sorted by theta."""
    order = _order(arm)
    frame = at_the_end(arm, split)
    homes, places = _sorted(at_the_end(arm, TRAIN), order), _sorted(frame, order)
    ranked = (
        frame.astype({"agent": int})
        .join(homes["rank"].rename("row"), on=["seed", "agent"])  # each has its home's number
        .join(places["rank"].rename("column"), on=PLACE)
    )
    grid = strict_mean(ranked, ["row", "column"]).unstack("column")
    name = arm.experiment.family.varied[order[-1]].name
    rows, columns = _labels(homes, f"agent’s {name}"), _labels(places, f"environment’s {name}")
    return grid.set_axis(rows, axis=0).set_axis(columns, axis=1)


def _sorted(frame: "pd.DataFrame", order: Sequence[int]) -> "pd.DataFrame":
    """The rank of each environment of a seed by theta, and the constant that is written at it."""
    names = [f"t{i}" for i in order]
    places = frame.drop_duplicates(PLACE).sort_values(["seed", *names], kind="stable")
    n = places["environment"].nunique()
    rank = places.groupby("seed").cumcount() * min(n, MOST_CELLS) // n
    return places.assign(rank=rank, shown=places[names[-1]]).set_index(PLACE)[["rank", "shown"]]


def _labels(places: "pd.DataFrame", name: str) -> "pd.Index[str]":
    """Means over seeds, and over what is taken together."""
    import pandas as pd

    return pd.Index([f"{x:.3g}" for x in places.groupby("rank")["shown"].mean()], name=name)
