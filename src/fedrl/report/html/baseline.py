"""Every agent's own model in every environment, as heat maps."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedrl.report.arms import BASELINE, Arm, strict_mean
from fedrl.report.html.environments import PLACE, at_the_end
from fedrl.report.html.numbers import decimal, extremes
from fedrl.report.html.section import Section
from fedrl.report.html.svg import (
    HEIGHT,
    LETTER,
    RIGHT,
    STEPS,
    TOP,
    WIDTH,
    Chart,
    Scale,
    legend_of_colours,
    rect,
    text,
)
from fedrl.report.html.words import PLACES
from fedrl.runs.metrics import HELD_OUT, TRAIN

MOST_CELLS = 40
"""Rows or columns of a heat map; more are taken together."""
FAINTEST = 0.06
DARK = 0.6
"""From this opacity on, text is written in the colour of the page."""
WRITTEN = 6
"""With more columns there is no room for numbers in the cells."""
BOTTOM = HEIGHT - 48


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


def matrix(arm: Arm, split: str) -> pd.DataFrame:
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


def _sorted(frame: pd.DataFrame, order: Sequence[int]) -> pd.DataFrame:
    """The rank of each environment of a seed by theta, and the constant that is written at it."""
    names = [f"t{i}" for i in order]
    places = frame.drop_duplicates(PLACE).sort_values(["seed", *names], kind="stable")
    n = places["environment"].nunique()
    rank = places.groupby("seed").cumcount() * min(n, MOST_CELLS) // n
    return places.assign(rank=rank, shown=places[names[-1]]).set_index(PLACE)[["rank", "shown"]]


def _labels(places: pd.DataFrame, name: str) -> "pd.Index[str]":
    """Means over seeds, and over what is taken together."""
    return pd.Index([f"{x:.3g}" for x in places.groupby("rank")["shown"].mean()], name=name)


def heat_chart(
    title: str, matrix: pd.DataFrame, value_name: str, range_: tuple[float, float]
) -> Chart:
    """The larger a value, the stronger its colour; index and columns are labels, with names."""
    rows, columns = list(map(str, matrix.index)), list(map(str, matrix.columns))
    row_name, column_name = str(matrix.index.name), str(matrix.columns.name)
    left = 14.0 + LETTER * max(map(len, rows))
    across, down = Scale(0, len(columns), left, WIDTH - RIGHT), Scale(0, len(rows), TOP, BOTTOM)
    width, height = across(1) - left, down(1) - TOP
    gap = 1.0 if min(width, height) > 8 else 0.0
    low, high = range_
    marks, stops = [], []
    for (i, j), value in np.ndenumerate(matrix.to_numpy()):
        finite = bool(np.isfinite(value))
        share = (value - low) / (high - low or 1.0)
        opacity = FAINTEST + (1 - FAINTEST) * share if finite else 0.0
        marks.append(rect(across(j), down(i), width - gap, height - gap, **_shade(opacity)))
        x, y = round(across(j + 0.5), 1), round(down(i + 0.5), 1)
        head = f"{row_name} {rows[i]}, {column_name} {columns[j]}"
        stops.append([x, y, head, [[0, decimal(value)]]])
        if len(columns) <= WRITTEN:
            style = "cell on" if opacity > DARK else "cell"
            marks.append(text(x, y + 4, f"{value:.0f}" if finite else "–", "middle", style))
    for i, label in _spread(rows, 12):
        marks.append(text(left - 7, down(i + 0.5) + 4, label, "end"))
    for j, label in _spread(columns, int((WIDTH - left) / (LETTER * 6))):
        marks.append(text(across(j + 0.5), BOTTOM + 15, label, "middle"))
    marks.append(text(0.0, 11.0, row_name))
    marks.append(text((left + WIDTH - RIGHT) / 2, BOTTOM + 32, column_name, "middle"))
    strip = [_shade(opacity) for opacity in np.linspace(FAINTEST, 1, STEPS)]
    marks += legend_of_colours(strip, (round(low, 1), round(high, 1)), value_name, HEIGHT + 2)
    smallest, largest = extremes(matrix.to_numpy())
    described = (
        f"{title}: {value_name} by {row_name} (rows) and {column_name} (columns), "
        f"from {decimal(smallest)} to {decimal(largest)}"
    )
    hover = {"names": [["", value_name]], "stops": stops}
    return Chart(title, described, marks, hover, HEIGHT + 16)


def _shade(opacity: float) -> dict[str, str]:
    return {"class_": "heat", "fill_opacity": f"{opacity:.3f}"}


def _spread(labels: Sequence[str], most: int) -> list[tuple[int, str]]:
    """Labels that do not run into each other, with their places."""
    return list(enumerate(labels))[:: -(-len(labels) // max(most, 1))]
