"""Points: values of many environments or agents, one by one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from fedrl.counting import count
from fedrl.report.html.numbers import decimal, short
from fedrl.report.html.svg import HEIGHT, Axes, Chart, element, frame, legend_of_colours, path

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


@dataclass(frozen=True)
class Cloud:
    """The points of one arm."""

    label: str
    style: str
    points: Sequence[Point]


def _range(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


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
    axes = Axes.around(_range([p.x for cloud in clouds for p in cloud.points]), ys, room=0.03)
    marks, lines, stops = [], [], []
    for number, cloud in enumerate(clouds):
        for point in cloud.points[:shown]:
            x, y = axes.x(point.x), axes.y(point.y)
            marks.append(element("circle", cx=x, cy=y, r=2.2, class_=f"dot {cloud.style}"))
            stops.append([round(x, 1), round(y, 1), point.head, [[number, point.told]]])
        means = trend(cloud.points) if trends else []
        if len(means) > 1:
            line = [(axes.x(x), axes.y(y)) for x, y in means]
            lines += [
                path(line, class_="halo"),
                path(line, class_=f"curve {cloud.style}"),
            ]
    described = f"{y_label} against {x_label}, {title}. " + "; ".join(
        f"{cloud.label}: from {decimal(min(p.y for p in cloud.points))} to "
        f"{decimal(max(p.y for p in cloud.points))} in {count(len(cloud.points), 'environments')}"
        for cloud in clouds
    )
    body = Markup("").join([*marks, *lines])
    svg = frame(axes, body, x_label=x_label, y_label=y_label, described=described)
    names = [[cloud.style, cloud.label] for cloud in clouds]
    return Chart(title, described, svg, {"names": names, "stops": stops})


def trend(points: Sequence[Point]) -> list[tuple[float, float]]:
    """Means of neighbours: of those with equal x if there are few such, otherwise in bins."""
    xs = np.array([point.x for point in points])
    ys = np.array([point.y for point in points])
    distinct = np.unique(xs)
    if len(distinct) <= BINS:
        groups = np.searchsorted(distinct, xs)
    else:
        edges = np.linspace(distinct[0], distinct[-1], BINS + 1)[1:-1]
        groups = np.searchsorted(edges, xs)
    return [
        (float(xs[groups == group].mean()), float(ys[groups == group].mean()))
        for group in np.unique(groups)
    ]


class Coloured(NamedTuple):
    """A point whose colour is a number."""

    point: Point
    value: float


def coloured_chart(
    title: str,
    coloured: Sequence[Coloured],
    *,
    x_label: str,
    y_label: str,
    colour_label: str,
    values: tuple[float, float] | None = None,
) -> Chart:
    """A map of points; `values` are those of the first and the last colour."""
    points = [one.point for one in coloured]
    axes = Axes.around(_range([p.x for p in points]), _range([p.y for p in points]), room=0.05)
    low, high = values or _range([one.value for one in coloured])
    marks, stops = [], []
    for point, value in coloured:
        x, y = axes.x(point.x), axes.y(point.y)
        share = (value - low) / (high - low) if high > low else 0.5
        marks.append(element("circle", cx=x, cy=y, r=4.2, class_="place", fill=colour(share)))
        stops.append([round(x, 1), round(y, 1), point.head, [[0, point.told]]])
    strip = [colour(i / (STEPS - 1)) for i in range(STEPS)]
    legend = legend_of_colours(strip, short(low), short(high), colour_label, y=HEIGHT + 12)
    described = f"{title}: {count(len(points), 'points')}, coloured by {colour_label}"
    svg = frame(
        axes,
        Markup("").join(marks) + legend,
        x_label=x_label,
        y_label=y_label,
        described=described,
        below=26.0,
    )
    return Chart(title, described, svg, {"names": [["", ""]], "stops": stops})


def colour(share: float) -> str:
    """Of a value so far between the smallest and the largest."""
    place = min(max(share, 0.0), 1.0) * (len(ENDS) - 1)
    index = min(int(place), len(ENDS) - 2)
    part = place - index
    mixed = (a + part * (b - a) for a, b in zip(ENDS[index], ENDS[index + 1], strict=True))
    return "#" + "".join(f"{round(x):02x}" for x in mixed)
