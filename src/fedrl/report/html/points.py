"""Points: values of many environments or agents, one by one."""

from collections.abc import Sequence
from math import nan
from typing import NamedTuple

import numpy as np

from fedrl.counting import count
from fedrl.files import Array
from fedrl.report.html.numbers import decimal
from fedrl.report.html.svg import HEIGHT, STEPS, Axes, Chart, legend_of_colours, mark

BINS = 8
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


def _columns(points: Sequence[Point]) -> tuple[Array, Array]:
    return np.array([point.x for point in points]), np.array([point.y for point in points])


def cloud_chart(
    title: str,
    clouds: Sequence[Cloud],
    labels: tuple[str, str],
    ys: tuple[float, float],
    *,
    most: int,
    trends: bool,
) -> Chart:
    """The first points of each arm, at most so many; `trends`: and a line through means of all."""
    xs, _ = _columns([point for cloud in clouds for point in cloud.points])
    axes = Axes.around(xs, np.array(ys), labels, room=0.03)
    marks, lines, stops, told = axes.marks(), [], [], []
    for number, (label, style, points) in enumerate(clouds):
        for point in points[:most]:
            x, y = axes.x(point.x), axes.y(point.y)
            marks.append(mark("circle", cx=x, cy=y, r=2.2, class_=f"dot {style}"))
            stops.append([round(x, 1), round(y, 1), point.head, [[number, point.told]]])
        means = trend(points) if trends else []
        if len(means) > 1:
            line = axes.places(*np.transpose(means))
            lines.append(mark("polyline", points=line, class_="halo"))
            lines.append(mark("polyline", points=line, class_=f"curve {style}"))
        _, values = _columns(points)
        ends = f"from {decimal(values.min())} to {decimal(values.max())}"
        told.append(f"{label}: {ends} in {count(len(points), 'environments')}")
    described = f"{labels[1]} against {labels[0]}, {title}. {'; '.join(told)}"
    names = [[cloud.style, cloud.label] for cloud in clouds]
    return Chart(title, described, [*marks, *lines], {"names": names, "stops": stops})


def trend(points: Sequence[Point]) -> list[tuple[float, float]]:
    """Means of neighbours: of those with equal x if there are few such, otherwise in bins."""
    xs, ys = _columns(points)
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
    labels: tuple[str, str],
    colour_label: str,
    values: tuple[float, float],
) -> Chart:
    """A map of points; `values` are those of the first and the last colour."""
    axes = Axes.around(*_columns(points), labels, room=0.05)
    (low, high), marks, stops = values, axes.marks(), []
    for point in points:
        x, y = axes.x(point.x), axes.y(point.y)
        share = (point.value - low) / (high - low) if high > low else 0.5
        marks.append(mark("circle", cx=x, cy=y, r=4.2, class_="place", fill=colour(share)))
        stops.append([round(x, 1), round(y, 1), point.head, [[0, point.told]]])
    strip = [{"fill": colour(share)} for share in np.linspace(0, 1, STEPS)]
    marks += legend_of_colours(strip, values, colour_label, HEIGHT + 12)
    described = f"{title}: {count(len(points), 'points')}, coloured by {colour_label}"
    return Chart(title, described, marks, {"names": [["", ""]], "stops": stops}, HEIGHT + 26)


def colour(share: float) -> str:
    """Of a value so far between the smallest and the largest."""
    places = np.linspace(0, 1, len(ENDS))
    mixed = [np.interp(share, places, part) for part in zip(*ENDS, strict=True)]
    return "#" + "".join(f"{round(x):02x}" for x in mixed)
