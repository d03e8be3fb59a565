"""Returns of single environments at the end: against theta, and of every agent in each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedrl.experiment.files import Array
from fedrl.experiment.metrics import HELD_OUT, TRAIN
from fedrl.report.arms import BASELINE, OWN, Arm, strict_mean
from fedrl.report.html.heat import Matrix, heat_chart
from fedrl.report.html.numbers import decimal, extremes
from fedrl.report.html.points import Cloud, Point, cloud_chart
from fedrl.report.html.section import Key, Section, style_of
from fedrl.report.html.words import PLACES

if TYPE_CHECKING:
    import pandas as pd

MOST_POINTS = 1000
"""In a chart; the lines are made of all."""
MOST_CELLS = 40
"""Rows or columns of a heat map; more are taken together."""


def at_the_end(arm: Arm, split: str) -> "pd.DataFrame":
    """The last evaluation, with a column for each constant of theta: seed, environment, t0, ...

    Empty where theta is not known: agents of a federation over a network keep it to themselves.
    """
    measured = arm.measured[split]
    last = measured["updates"] == measured["updates"].max()
    frame: pd.DataFrame = measured[last & measured["theta"].notna()].copy()
    size = len(arm.experiment.family.varied)
    parts = frame["theta"].astype(str).str.split(" ", expand=True)
    if parts.shape[1] != size:
        return frame.head(0)
    for i in range(size):
        frame[f"t{i}"] = parts[i].astype(float)
    return frame


def returns_against_theta(arms: Sequence[Arm], metric: str) -> Section:
    """A chart for each varied constant and split."""
    key, title = "environments", "Returns in single environments"
    families = {arm.experiment.family for arm in arms}
    if len({family.varied for family in families}) > 1:
        why = (
            "The runs are of families that vary in different constants; each has a page of its own."
        )
        return Section(key, title, notes=[why])
    splits = [s for s in (OWN, HELD_OUT) if all(s in arm.measured for arm in arms)]
    measured = {split: [at_the_end(arm, split) for arm in arms] for split in splits}
    frames = {
        split: found
        for split, found in measured.items()
        if any(np.isfinite(frame["value"]).any() for frame in found)
    }
    if not frames:
        why = (
            "Not shown: no return is a finite number."
            if any(len(frame) for found in measured.values() for frame in found)
            else "Not shown: theta is not among the measurements, since agents that learn over a "
            "network tell nobody about their environments."
        )
        return Section(key, title, notes=[why])
    values = np.concatenate([frame["value"] for found in frames.values() for frame in found])
    missing = not np.isfinite(values).all()
    values = values[np.isfinite(values)]
    ys = float(values.min()), float(values.max())
    charts, thinned = [], False
    for i, varied in enumerate(arms[0].experiment.family.varied):
        for split, found in frames.items():
            clouds = [
                Cloud(arm.shown, style_of(number), points)
                for number, (arm, frame) in enumerate(zip(arms, found, strict=True))
                if len(frame) and (points := _points(frame, i, varied.name))
            ]
            if not clouds:
                continue
            shown = MOST_POINTS // len(clouds)
            thinned |= any(len(cloud.points) > shown for cloud in clouds)
            charts.append(
                cloud_chart(
                    f"{PLACES[TRAIN if split == OWN else split]}, by {varied.name}",
                    clouds,
                    x_label=varied.name,
                    y_label=metric,
                    ys=ys,
                    shown=shown,
                )
            )
    words = [
        "Each point is one environment of one seed at the end of training; the lines are means of "
        "neighbours. In training environments plays the model of the agent that lives there, in "
        "held-out ones the average (Baseline: the mean over all agents’ models)."
    ]
    if missing:
        words.append(
            "Where a return is not a finite number there is no point, and the lines lack it."
        )
    if thinned:
        words.append("Of many seeds, only the first ones are drawn as points; the lines know all.")
    return Section(key, title, words, legend=legend_of(arms), charts=charts)


def legend_of(arms: Sequence[Arm]) -> list[Key]:
    """An entry for each arm."""
    return [Key(style_of(number), arm.shown) for number, arm in enumerate(arms)]


def _points(frame: "pd.DataFrame", i: int, name: str) -> list[Point]:
    """An environment's value is the mean over the models that were played in it."""
    rows = strict_mean(frame, ["seed", "environment", f"t{i}"]).dropna().reset_index()
    return [
        Point(float(theta), float(value), f"seed {seed} · {name} {theta:.4g}", decimal(value))
        for seed, theta, value in zip(rows["seed"], rows[f"t{i}"], rows["value"], strict=True)
    ]


def baseline_matrices(arms: Sequence[Arm], metric: str) -> Section | None:
    """Every agent's own model in every environment; adaptations have nothing of the kind."""
    key, title = "baseline", "Baseline: every agent in every environment"
    if all(TRAIN not in arm.measured for arm in arms):
        return None
    alone = [arm for arm in arms if _learnt_alone(arm) and len(at_the_end(arm, TRAIN))]
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
        values = np.concatenate([one.values.ravel() for one in matrices.values()])
        low, high = extremes(values)
        which = f", {arm.label}" if len(alone) > 1 else ""
        charts += [
            heat_chart(
                f"{PLACES[split].capitalize()}{which}", one, value_name=metric, range_=(low, high)
            )
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


def _learnt_alone(arm: Arm) -> bool:
    return TRAIN in arm.measured and arm.label.startswith(BASELINE)


def _order(arm: Arm) -> list[int]:
    """The constants that environments are sorted by: those that make groups, then another one."""
    frame = at_the_end(arm, TRAIN)
    distinct = [frame[f"t{i}"].nunique() for i in range(len(arm.experiment.family.varied))]
    groups = [i for i, values in enumerate(distinct) if values < max(distinct)]
    return [*groups, distinct.index(max(distinct))]


def matrix(arm: Arm, split: str) -> Matrix:
    """Mean over seeds of the returns, rows (agents) and columns (environments) sorted by theta."""
    order = _order(arm)
    frame, homes = at_the_end(arm, split), at_the_end(arm, TRAIN)
    seeds = sorted(frame["seed"].unique())
    values, rows, columns = [], [], []
    for seed in seeds:
        of_seed = frame[frame["seed"] == seed].assign(agent=lambda f: f["agent"].astype(int))
        agents = _sorted(homes[homes["seed"] == seed], order)
        places = _sorted(of_seed, order)
        grid = strict_mean(of_seed, ["agent", "environment"]).unstack("environment")
        values.append(grid.loc[agents.index, places.index].to_numpy())
        rows.append(agents.to_numpy())
        columns.append(places.to_numpy())
    name = arm.experiment.family.varied[order[-1]].name
    groups = [np.array_split(np.arange(n), min(n, MOST_CELLS)) for n in values[0].shape]
    mean = np.mean(values, axis=0)
    cells = np.array([[mean[np.ix_(r, c)].mean() for c in groups[1]] for r in groups[0]])
    return Matrix(
        cells,
        _labels(np.mean(rows, axis=0), groups[0]),
        _labels(np.mean(columns, axis=0), groups[1]),
        f"agent’s {name}",
        f"environment’s {name}",
    )


def _sorted(frame: "pd.DataFrame", order: Sequence[int]) -> "pd.Series[float]":
    """Environments in order of theta, with the constant that is written at them."""
    names = [f"t{i}" for i in order]
    places = frame.drop_duplicates("environment").set_index("environment")
    return places.sort_values(names, kind="stable")[names[-1]]


def _labels(thetas: Array, groups: Sequence[Array]) -> list[str]:
    return [f"{thetas[group].mean():.3g}" for group in groups]
