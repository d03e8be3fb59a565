"""A matrix as a heat map."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from fedrl.experiment.files import Array
from fedrl.report.html.numbers import short
from fedrl.report.html.svg import (
    HEIGHT,
    LETTER,
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    drawing,
    element,
    legend_of_colours,
)

FAINTEST = 0.06
DARK = 0.6
"""From this opacity on, text is written in the colour of the page."""
WRITTEN = 6
"""With more columns there is no room for numbers in the cells."""
STEPS = 24
BOTTOM = HEIGHT - 48


@dataclass(frozen=True)
class Matrix:
    """Values by row and column, and what rows and columns are."""

    values: Array
    rows: Sequence[str]
    columns: Sequence[str]
    row_name: str
    column_name: str


def heat_chart(title: str, matrix: Matrix, *, value_name: str, range_: tuple[float, float]) -> Chart:
    """The larger a value, the stronger its colour."""
    count, across = matrix.values.shape
    left = 14.0 + LETTER * max(len(label) for label in matrix.rows)
    width, height = (WIDTH - RIGHT - left) / across, (BOTTOM - TOP) / count
    gap = 1.0 if min(width, height) > 8 else 0.0
    low, high = range_
    parts, stops = [], []
    for i, j in np.ndindex(count, across):
        value = float(matrix.values[i, j])
        share = (value - low) / (high - low) if high > low else 0.5
        opacity = round(FAINTEST + (1 - FAINTEST) * share, 3)
        x, y = left + j * width, TOP + i * height
        parts.append(
            element(
                "rect", class_="heat", x=x, y=y, width=width - gap, height=height - gap,
                fill_opacity=str(opacity),
            )  # fmt: skip
        )
        middle = (round(x + width / 2, 1), round(y + height / 2, 1))
        if across <= WRITTEN:
            on = "cell on" if opacity > DARK else "cell"
            parts.append(
                element(
                    "text", f"{value:.0f}", class_=on, x=middle[0], y=middle[1] + 4,
                    text_anchor="middle",
                )  # fmt: skip
            )
        head = f"{matrix.row_name} {matrix.rows[i]}, {matrix.column_name} {matrix.columns[j]}"
        stops.append([*middle, head, [[0, f"{value:.1f}"]]])
    for i, j_label in _spread(matrix.columns, int((WIDTH - left) / (LETTER * 6))):
        parts.append(
            element("text", j_label, x=left + (i + 0.5) * width, y=BOTTOM + 15,
                    text_anchor="middle")  # fmt: skip
        )
    for i, label in _spread(matrix.rows, 12):
        y = TOP + (i + 0.5) * height + 4
        parts.append(element("text", label, x=left - 7, y=y, text_anchor="end"))
    parts.append(element("text", matrix.row_name, class_="name", x=0.0, y=11.0))
    parts.append(
        element("text", matrix.column_name, class_="name", x=(left + WIDTH - RIGHT) / 2,
                y=BOTTOM + 32, text_anchor="middle")  # fmt: skip
    )
    shades = [f"{FAINTEST + (1 - FAINTEST) * i / (STEPS - 1):.3f}" for i in range(STEPS)]
    parts.append(
        legend_of_colours(
            shades, short(round(low, 1)), short(round(high, 1)), value_name, y=HEIGHT + 2,
            shades=True,
        )  # fmt: skip
    )
    described = (
        f"{title}: {value_name} by {matrix.row_name} (rows) and {matrix.column_name} (columns), "
        f"from {matrix.values.min():.1f} to {matrix.values.max():.1f}"
    )
    svg = drawing(Markup("").join(parts), described, HEIGHT + 16)
    return Chart(title, described, svg, {"names": [["", value_name]], "stops": stops})


def _spread(labels: Sequence[str], most: int) -> list[tuple[int, str]]:
    """Labels that do not run into each other, with their places."""
    every = -(-len(labels) // max(most, 1))
    return [(i, label) for i, label in enumerate(labels) if i % every == 0]
