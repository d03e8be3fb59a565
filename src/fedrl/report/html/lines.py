"""Curves with bands, and the section that shows them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedrl.files import Array
from fedrl.report.arms import Interval
from fedrl.report.html.numbers import as_words, extremes
from fedrl.report.html.section import Section
from fedrl.report.html.svg import Axes, Chart, mark

MOST_PLACES = 400
"""Of a curve: more cannot be told apart on a screen."""


class Line(NamedTuple):
    """A curve and how far it is known; `half` is infinite where nobody can tell."""

    label: str
    style: str
    x: Array
    y: Array
    half: Array

    def at(self, kept: Array) -> "Line":
        """The same at some places only."""
        return Line(self.label, self.style, self.x[kept], self.y[kept], self.half[kept])

    @property
    def edges(self) -> tuple[Array, Array]:
        half = np.where(np.isfinite(self.half), self.half, 0.0)
        return self.y - half, self.y + half

    def told(self, index: int) -> str:
        return as_words(Interval(self.y[index], self.half[index]))


def curves_section(
    title: str,
    words: str,
    panels: Sequence[tuple[str, Sequence[Line]]],
    labels: tuple[str, str],
    unit: str,
) -> Section:
    """A chart for each panel, all with the same axis."""
    edges = [edge for _, lines in panels for line in lines for edge in line.edges]
    ys = extremes(np.concatenate(edges))
    charts = [_chart(name, lines, labels, unit, ys) for name, lines in panels]
    longest = max((lines for _, lines in panels), key=len)
    legend = [(line.style, line.label) for line in longest]
    return Section("curves", title, [words], legend=legend, charts=charts)


def _chart(
    title: str, lines: Sequence[Line], labels: tuple[str, str], unit: str, ys: tuple[float, float]
) -> Chart:
    """Curves over training; pointed at, all values at the nearest place."""
    # The last place is always kept.
    kept = [np.linspace(0, len(line.x) - 1, MOST_PLACES).round().astype(int) for line in lines]
    lines = [line.at(np.unique(places)) for line, places in zip(lines, kept, strict=True)]
    axes = Axes.around(np.concatenate([line.x for line in lines]), np.array(ys), labels)
    bands, curves, dots = [], [], []
    for line in (line.at(np.isfinite(line.y)) for line in lines):
        low, high = line.edges
        if np.isfinite(line.half).any():
            around = axes.places(np.append(line.x, line.x[::-1]), np.append(low, high[::-1]))
            bands.append(mark("polygon", points=around, class_=f"band {line.style}"))
        curve = axes.places(line.x, line.y)
        curves.append(mark("polyline", points=curve, class_=f"curve {line.style}"))
        if len(line.x) == 1:  # a run that has only just begun is a point
            x, y = float(axes.x(line.x[0])), float(axes.y(line.y[0]))
            dots.append(mark("circle", cx=x, cy=y, r=3.0, class_=f"first {line.style}"))
    described = f"{labels[1]} against {labels[0]}, {title}. At the end: " + "; ".join(
        f"{line.label} {line.told(-1)}" for line in lines
    )
    marks = [*axes.marks(), *bands, *curves, *dots]
    return Chart(title, described, marks, _hover(lines, axes, unit))


def _hover(lines: Sequence[Line], axes: Axes, unit: str) -> dict[str, object]:
    """For each place where anything was measured, what was; and its height, where it has one."""
    stops = []
    for x in np.unique(np.concatenate([line.x for line in lines])).tolist():
        rows = [
            [number, line.told(i), round(axes.y(y), 1) if np.isfinite(y := line.y[i]) else None]
            for number, line in enumerate(lines)
            for i in np.flatnonzero(line.x == x).tolist()
        ]
        stops.append([round(axes.x(x), 1), None, f"{round(x, 2):,.12g} {unit}", rows])
    names = [[line.style, line.label] for line in lines]
    return {"names": names, "span": [axes.y.end, axes.y.start], "stops": stops}
