"""Points: values of many environments or agents, one by one."""

from collections.abc import Sequence
from math import nan
from typing import NamedTuple

import numpy as np

from fedrl.counting import count
from fedrl.files import Array
from fedrl.report.html.numbers import decimal, short
from fedrl.report.html.svg import HEIGHT, Axes, Chart, legend_of_colours, mark

BINS = 8
STEPS = 24
# Blue to orange (Okabe and Ito) by way of a grey that is seen on white and on black.
ENDS = ((0, 114, 178), (148, 139, 150), (213, 94, 0))


class Point(NamedTuple):
    """A value, and what it is the value of."""

    x: float
    y: float
    head: str
    told: str
    value: float = nan
    """What its colour says, if anything."""


class Cloud(NamedTuple):
    """The points of one arm."""

    label: str
    style: str
    points: Sequence[Point]


def _column(points: Sequence[Point], name: str) -> Array:
    return np.array([getattr(point, name) for point in points])


def cloud_chart(
    title: str,
    clouds: Sequence[Cloud],
    *,
    x_label: str,
    y_label: str,
    ys: tuple[float, float],
    shown: int,
    trends: bool,
) -> Chart:
    """Points of each arm, of the first `shown` each; `trends`: and a line through means of all."""
    everything = [point for cloud in clouds for point in cloud.points]
    axes = Axes.around(_column(everything, "x"), np.array(ys), room=0.03)
    marks, lines, stops = [], [], []
    for number, cloud in enumerate(clouds):
        for point in cloud.points[:shown]:
            x, y = axes.x(point.x), axes.y(point.y)
            marks.append(mark("circle", cx=x, cy=y, r=2.2, class_=f"dot {cloud.style}"))
            stops.append([round(x, 1), round(y, 1), point.head, [[number, point.told]]])
        means = trend(cloud.points) if trends else []
        if len(means) > 1:
            line = axes.places(*np.transpose(means))
            lines += [
                mark("polyline", points=line, class_=c) for c in ("halo", f"curve {cloud.style}")
            ]
    described = f"{y_label} against {x_label}, {title}. " + "; ".join(
        f"{cloud.label}: from {decimal(min(p.y for p in cloud.points))} to "
        f"{decimal(max(p.y for p in cloud.points))} in {count(len(cloud.points), 'environments')}"
        for cloud in clouds
    )
    hover = {"names": [[cloud.style, cloud.label] for cloud in clouds], "stops": stops}
    return Chart(title, described, [*axes.marks(x_label, y_label), *marks, *lines], hover)


def trend(points: Sequence[Point]) -> list[tuple[float, float]]:
    """Means of neighbours: of those with equal x if there are few such, otherwise in bins."""
    xs, ys = _column(points, "x"), _column(points, "y")
    edges = np.unique(xs)
    if len(edges) > BINS:
        edges = np.linspace(edges[0], edges[-1], BINS + 1)[1:-1]
    groups = np.searchsorted(edges, xs)
    return [
        (float(xs[groups == group].mean()), float(ys[groups == group].mean()))
        for group in np.unique(groups)
    ]


def coloured_chart(
    title: str,
    points: Sequence[Point],
    *,
    x_label: str,
    y_label: str,
    colour_label: str,
    values: tuple[float, float] | None = None,
) -> Chart:
    """A map of points; `values` are those of the first and the last colour."""
    axes = Axes.around(_column(points, "x"), _column(points, "y"), room=0.05)
    low, high = values or (min(p.value for p in points), max(p.value for p in points))
    marks, stops = axes.marks(x_label, y_label), []
    for point in points:
        x, y = axes.x(point.x), axes.y(point.y)
        share = (point.value - low) / (high - low) if high > low else 0.5
        marks.append(mark("circle", cx=x, cy=y, r=4.2, class_="place", fill=colour(share)))
        stops.append([round(x, 1), round(y, 1), point.head, [[0, point.told]]])
    strip = [{"fill": colour(i / (STEPS - 1))} for i in range(STEPS)]
    marks += legend_of_colours(strip, short(low), short(high), colour_label, y=HEIGHT + 12)
    described = f"{title}: {count(len(points), 'points')}, coloured by {colour_label}"
    return Chart(title, described, marks, {"names": [["", ""]], "stops": stops}, HEIGHT + 26)


def colour(share: float) -> str:
    """Of a value so far between the smallest and the largest."""
    places = np.linspace(0, 1, len(ENDS))
    mixed = [np.interp(share, places, part) for part in zip(*ENDS, strict=True)]
    return "#" + "".join(f"{round(x):02x}" for x in mixed)
