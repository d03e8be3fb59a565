"""A matrix as a heat map."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from fedrl.files import Array
from fedrl.report.html.numbers import decimal, extremes, short
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
    text,
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


@dataclass(frozen=True)
class Grid:
    """Where the cells of a matrix lie."""

    left: float
    width: float
    height: float

    @classmethod
    def of(cls, matrix: Matrix) -> "Grid":
        count, across = matrix.values.shape
        left = 14.0 + LETTER * max(len(label) for label in matrix.rows)
        return cls(left, (WIDTH - RIGHT - left) / across, (BOTTOM - TOP) / count)

    def middle(self, row: float, column: float) -> tuple[float, float]:
        x, y = self.left + (column + 0.5) * self.width, TOP + (row + 0.5) * self.height
        return round(x, 1), round(y, 1)


def heat_chart(
    title: str, matrix: Matrix, *, value_name: str, range_: tuple[float, float]
) -> Chart:
    """The larger a value, the stronger its colour."""
    grid = Grid.of(matrix)
    low, high = range_
    cells, stops = [], []
    for (i, j), value in np.ndenumerate(matrix.values):
        finite = bool(np.isfinite(value))
        opacity = _opacity((value - low) / (high - low or 1.0)) if finite else 0.0
        cells.append(_cell(grid, i, j, opacity))
        head = f"{matrix.row_name} {matrix.rows[i]}, {matrix.column_name} {matrix.columns[j]}"
        stops.append([*grid.middle(i, j), head, [[0, decimal(value)]]])
        if matrix.values.shape[1] <= WRITTEN:
            x, y = grid.middle(i, j)
            on = "cell on" if opacity > DARK else "cell"
            cells.append(text(x, y + 4, f"{value:.0f}" if finite else "–", "middle", on))
    shades = [f"{_opacity(i / (STEPS - 1)):.3f}" for i in range(STEPS)]
    ends = short(round(low, 1)), short(round(high, 1))
    legend = legend_of_colours(shades, *ends, value_name, y=HEIGHT + 2, shades=True)
    smallest, largest = extremes(matrix.values)
    described = (
        f"{title}: {value_name} by {matrix.row_name} (rows) and {matrix.column_name} (columns), "
        f"from {decimal(smallest)} to {decimal(largest)}"
    )
    body = Markup("").join([*cells, *_labels(matrix, grid), legend])
    svg = drawing(body, described, HEIGHT + 16)
    return Chart(title, described, svg, {"names": [["", value_name]], "stops": stops})


def _opacity(share: float) -> float:
    return FAINTEST + (1 - FAINTEST) * share


def _cell(grid: Grid, i: int, j: int, opacity: float) -> Markup:
    gap = 1.0 if min(grid.width, grid.height) > 8 else 0.0
    return element(
        "rect",
        class_="heat",
        x=grid.left + j * grid.width,
        y=TOP + i * grid.height,
        width=grid.width - gap,
        height=grid.height - gap,
        fill_opacity=f"{opacity:.3f}",
    )


def _labels(matrix: Matrix, grid: Grid) -> list[Markup]:
    """Of rows and columns, and what they are."""
    rows = [
        text(grid.left - 7, grid.middle(i, 0)[1] + 4, label, "end")
        for i, label in _spread(matrix.rows, 12)
    ]
    columns = [
        text(grid.middle(0, j)[0], BOTTOM + 15, label, "middle")
        for j, label in _spread(matrix.columns, int((WIDTH - grid.left) / (LETTER * 6)))
    ]
    middle = (grid.left + WIDTH - RIGHT) / 2
    names = [
        text(0.0, 11.0, matrix.row_name),
        text(middle, BOTTOM + 32, matrix.column_name, "middle"),
    ]
    return [*rows, *columns, *names]


def _spread(labels: Sequence[str], most: int) -> list[tuple[int, str]]:
    """Labels that do not run into each other, with their places."""
    every = -(-len(labels) // max(most, 1))
    return [(i, label) for i, label in enumerate(labels) if i % every == 0]
