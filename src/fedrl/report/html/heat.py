"""A matrix as a heat map."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrl.report.html.numbers import decimal, extremes, short
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
    mark,
    text,
)

if TYPE_CHECKING:
    import pandas as pd

FAINTEST = 0.06
DARK = 0.6
"""From this opacity on, text is written in the colour of the page."""
WRITTEN = 6
"""With more columns there is no room for numbers in the cells."""
BOTTOM = HEIGHT - 48


def heat_chart(
    title: str, matrix: "pd.DataFrame", value_name: str, range_: tuple[float, float]
) -> Chart:
    """The larger a value, the stronger its colour; index and columns are labels, with names."""
    rows, columns = list(map(str, matrix.index)), list(map(str, matrix.columns))
    row_name, column_name = str(matrix.index.name), str(matrix.columns.name)
    left = 14.0 + LETTER * max(map(len, rows))
    across, down = Scale(0, len(columns), left, WIDTH - RIGHT), Scale(0, len(rows), TOP, BOTTOM)
    width, height = across(1) - left, down(1) - TOP
    gap = 1.0 if min(width, height) > 8 else 0.0
    size: dict[str, Any] = {"width": width - gap, "height": height - gap}
    low, high = range_
    marks, stops = [], []
    for (i, j), value in np.ndenumerate(matrix.to_numpy()):
        finite = bool(np.isfinite(value))
        share = (value - low) / (high - low or 1.0)
        opacity = FAINTEST + (1 - FAINTEST) * share if finite else 0.0
        marks.append(mark("rect", x=across(j), y=down(i), **size, **_shade(opacity)))
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
    ends = short(round(low, 1)), short(round(high, 1))
    marks += legend_of_colours(strip, ends, value_name, HEIGHT + 2)
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
