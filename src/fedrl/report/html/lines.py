"""Curves with bands."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
from markupsafe import Markup

from fedrl.files import Array
from fedrl.report.html.numbers import decimal, extremes
from fedrl.report.html.svg import Axes, Chart, element, frame, path

MOST_PLACES = 400
"""Of a curve: more cannot be told apart on a screen."""


@dataclass(frozen=True)
class Line:
    """A curve and how far it is known; `half` is None for a single seed."""

    label: str
    style: str
    x: Array
    y: Array
    half: Array | None

    def thinned(self) -> "Line":
        """The same with few enough places; the last one is always there."""
        n = len(self.x)
        if n <= MOST_PLACES:
            return self
        kept = np.unique(np.linspace(0, n - 1, MOST_PLACES).round().astype(int))
        half = None if self.half is None else self.half[kept]
        return Line(self.label, self.style, self.x[kept], self.y[kept], half)

    @property
    def finite(self) -> "Line":
        """The same without places where there is no mean over seeds."""
        kept = np.isfinite(self.y)
        half = None if self.half is None else self.half[kept]
        return Line(self.label, self.style, self.x[kept], self.y[kept], half)

    @property
    def edges(self) -> tuple[Array, Array]:
        half = 0.0 if self.half is None else self.half
        return self.y - half, self.y + half


def extent(lines: Sequence[Line]) -> tuple[float, float]:
    """Smallest and largest value of curves and bands."""
    return extremes(np.concatenate([edge for line in lines for edge in line.edges]))


def line_chart(
    title: str,
    lines: Sequence[Line],
    *,
    x_label: str,
    y_label: str,
    unit: str,
    ys: tuple[float, float],
) -> Chart:
    """Curves over training; pointed at, all values at the nearest place."""
    lines = [line.thinned() for line in lines]
    xs = min(float(line.x.min()) for line in lines), max(float(line.x.max()) for line in lines)
    axes = Axes.around(xs, ys)
    known = [line.finite for line in lines]
    curves = [path(_places(line.x, line.y, axes), class_=f"curve {line.style}") for line in known]
    # A run that has only just begun is a point.
    bands = [_band(line, axes) for line in known if line.half is not None]
    dots = [
        element(
            "circle",
            cx=axes.x(line.x[0]),
            cy=axes.y(line.y[0]),
            r=3.0,
            class_=f"first {line.style}",
        )
        for line in known
        if len(line.x) == 1
    ]
    described = f"{y_label} against {x_label}, {title}. At the end: " + "; ".join(
        f"{line.label} {_told(line, -1)}" for line in lines
    )
    body = Markup("").join([*bands, *curves, *dots])
    svg = frame(axes, body, x_label=x_label, y_label=y_label, described=described)
    return Chart(title, described, svg, _hover(lines, axes, unit))


def _places(x: Array, y: Array, axes: Axes) -> list[tuple[float, float]]:
    return [(axes.x(float(a)), axes.y(float(b))) for a, b in zip(x, y, strict=True)]


def _band(line: Line, axes: Axes) -> Markup:
    low, high = (_places(line.x, edge, axes) for edge in line.edges)
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*low, *reversed(high)])
    return element("polygon", points=points, class_=f"band {line.style}")


def _told(line: Line, index: int) -> str:
    mean = decimal(line.y[index])
    return (
        mean
        if line.half is None or not isfinite(line.y[index])
        else f"{mean} ± {decimal(line.half[index])}"
    )


def _height(value: float, axes: Axes) -> float | None:
    """Where a value is marked, if it is one."""
    return round(axes.y(value), 1) if isfinite(value) else None


def _hover(lines: Sequence[Line], axes: Axes, unit: str) -> dict[str, object]:
    """For each place where anything was measured, what was."""
    at = [{float(x): i for i, x in enumerate(line.x)} for line in lines]
    stops = []
    for x in sorted(set().union(*at)):
        rows = [
            [number, _told(line, places[x]), _height(float(line.y[places[x]]), axes)]
            for number, (line, places) in enumerate(zip(lines, at, strict=True))
            if x in places
        ]
        stops.append([round(axes.x(x), 1), None, f"{x:,.0f} {unit}", rows])
    names = [[line.style, line.label] for line in lines]
    return {"names": names, "span": [axes.y.end, axes.y.start], "stops": stops}
