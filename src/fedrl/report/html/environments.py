"""Returns of single environments at the end: against theta, and of every agent in each."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrl.files import Array
from fedrl.report.arms import BASELINE, OWN, Arm, strict_mean
from fedrl.report.html.heat import Matrix, heat_chart
from fedrl.report.html.numbers import decimal, extremes
from fedrl.report.html.points import Cloud, Coloured, Point, cloud_chart, coloured_chart
from fedrl.report.html.section import Key, Section, style_of
from fedrl.report.html.svg import Chart
from fedrl.report.html.words import PLACES
from fedrl.runs.metrics import HELD_OUT, TRAIN

if TYPE_CHECKING:
    import pandas as pd

Frames = Mapping[str, Sequence["pd.DataFrame"]]
"""The last evaluation of each arm, by split."""
Charts = list[Chart]
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
    """Charts for each split: against the constant that varies, or in the plane of two."""
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
    finite = np.isfinite(values)
    missing, values = not finite.all(), values[finite]
    extent = float(values.min()), float(values.max())
    draw = _maps if len(arms[0].experiment.family.varied) == 2 else _clouds
    charts = draw(arms, frames, metric, extent)
    words = [
        "Each point is one environment of one seed at the end of training. In training "
        "environments plays the model of the agent that lives there, in held-out ones the average "
        "(Baseline: the mean over all agents’ models)."
    ]
    if len(arms[0].experiment.family.varied) == 1:
        words.append("The lines are means of neighbours.")
    if missing:
        words.append("Where a return is not a finite number nothing is drawn.")
    drawn = [frame[["seed", "environment"]] for found in frames.values() for frame in found]
    if any(len(places.drop_duplicates()) > _shown(arms) for places in drawn):
        words.append("Of many environments, only the first ones are drawn as points.")
    legend = legend_of(arms) if draw is _clouds else []
    return Section(key, title, words, legend=legend, charts=charts)


def _shown(arms: Sequence[Arm]) -> int:
    """Points that are drawn of each arm."""
    return MOST_POINTS // len(arms)


def _clouds(arms: Sequence[Arm], frames: Frames, metric: str, ys: tuple[float, float]) -> Charts:
    """Returns against each constant, for each split; a line only where nothing else varies."""
    family = arms[0].experiment.family
    charts = []
    for i, varied in enumerate(family.varied):
        for split, found in frames.items():
            clouds = [
                Cloud(arm.shown, style_of(number), points)
                for number, (arm, frame) in enumerate(zip(arms, found, strict=True))
                if len(frame) and (points := _points(frame, i, varied.name))
            ]
            if not clouds:
                continue
            charts.append(
                cloud_chart(
                    f"{_place(split)}, by {varied.name}",
                    clouds,
                    x_label=varied.name,
                    y_label=metric,
                    ys=ys,
                    shown=_shown(arms),
                    trends=len(family.varied) == 1,
                )
            )
    return charts


def _maps(arms: Sequence[Arm], frames: Frames, metric: str, values: tuple[float, float]) -> Charts:
    """For two constants: where in their plane returns are high, for each split and arm."""
    x, y = (varied.name for varied in arms[0].experiment.family.varied)
    charts = []
    for split, found in frames.items():
        for arm, frame in zip(arms, found, strict=True):
            places = [
                Coloured(
                    Point(x_, y_, f"seed {seed} · {x} {x_:.4g} · {y} {y_:.4g}", decimal(value)),
                    value,
                )
                for seed, x_, y_, value in _by_environment(frame, ("t0", "t1"))
            ]
            if places:
                which = f", {arm.shown}" if len(arms) > 1 else ""
                charts.append(
                    coloured_chart(
                        f"{_place(split)}{which}",
                        places[: _shown(arms)],
                        x_label=x,
                        y_label=y,
                        colour_label=metric,
                        values=values,
                    )
                )
    return charts


def _place(split: str) -> str:
    return PLACES[TRAIN if split == OWN else split]


def legend_of(arms: Sequence[Arm]) -> list[Key]:
    """An entry for each arm."""
    return [Key(style_of(number), arm.shown) for number, arm in enumerate(arms)]


def _by_environment(frame: "pd.DataFrame", columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """(seed, constants, value); a value is the mean over the models that were played there.

    Environments in which one of them has no finite value are left out.
    """
    rows = strict_mean(frame, ["seed", "environment", *columns]).dropna().reset_index()
    return list(rows[["seed", *columns, "value"]].itertuples(index=False, name=None))


def _points(frame: "pd.DataFrame", i: int, name: str) -> list[Point]:
    return [
        Point(theta, value, f"seed {seed} · {name} {theta:.4g}", decimal(value))
        for seed, theta, value in _by_environment(frame, (f"t{i}",))
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
