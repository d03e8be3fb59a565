"""Drawings as data: marks, scales, axes, and the charts that the page's template writes as SVG.

All charts have the same width in units of their own, and as many of them side by side as there is
room for: so their text is legible on a phone and does not grow on a large screen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fedrl.files import Array
from fedrl.report.html.numbers import short, ticks

WIDTH, HEIGHT = 380.0, 260.0
TOP, RIGHT, BOTTOM = 26.0, 14.0, 42.0
LETTER = 6.4
"""About the width of a digit on an axis."""
STRIP, STEPS = 96.0, 24
"""Width of a legend of colours, and how many it has."""

Mark = tuple[str, Mapping[str, str], str]
"""An element of a drawing: its name, its attributes, its text."""


def mark(name: str, said: str = "", **attributes: object) -> Mark:
    """An element; `class_` and `text_anchor` stand for `class` and `text-anchor`."""
    given = {k.rstrip("_").replace("_", "-"): _plain(x) for k, x in attributes.items() if x != ""}
    return name, given, said


def _plain(value: object) -> str:
    """Numbers with a tenth of a unit: nobody sees more."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def text(x: float, y: float, said: str, anchor: str = "", style: str = "") -> Mark:
    """Words at a place: they begin there, or have their `anchor` there."""
    return mark("text", said, class_=style, x=x, y=y, text_anchor=anchor)


def rect(x: float, y: float, width: float, height: float, **look: Any) -> Mark:
    """A rectangle, from its upper left corner."""
    return mark("rect", x=x, y=y, width=width, height=height, **look)


@dataclass(frozen=True)
class Chart:
    """A drawing, what it shows in words, and what is told of its places when pointed at."""

    title: str
    described: str
    marks: Sequence[Mark]
    hover: Mapping[str, Any] = field(default_factory=dict)
    height: float = HEIGHT
    width: float = WIDTH


class Scale(NamedTuple):
    """From values to places, of one or of many."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: Any) -> Any:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


class Axes(NamedTuple):
    """Where values lie in a chart, and what they are."""

    x: Scale
    y: Scale
    labels: tuple[str, str]

    @classmethod
    def around(cls, xs: Array, ys: Array, labels: tuple[str, str], room: float = 0.0) -> "Axes":
        """For values like these, `room` (a share of their range) wider to each side."""
        (left, right), (bottom, top) = _wider(xs, room), _wider(ys, 0.04)
        letters = max(len(short(value)) for value in ticks(bottom, top))
        x = Scale(left, right, 14.0 + LETTER * letters, WIDTH - RIGHT)
        return cls(x, Scale(bottom, top, HEIGHT - BOTTOM, TOP), labels)

    def places(self, xs: Array, ys: Array) -> str:
        """Values as the points of a line."""
        pairs = zip(self.x(xs).tolist(), self.y(ys).tolist(), strict=True)
        return " ".join(f"{_plain(x)},{_plain(y)}" for x, y in pairs)

    def marks(self) -> list[Mark]:
        """Both axes, with their names and a grid."""
        x, y, (x_label, y_label) = self
        marks = []
        for value in ticks(y.low, y.high):
            height = y(value)
            marks.append(mark("line", class_="grid", x1=x.start, x2=x.end, y1=height, y2=height))
            marks.append(text(x.start - 7, height + 4, short(value), "end"))
        for value in ticks(x.low, x.high):
            marks.append(text(x(value), y.start + 17, short(value), "middle"))
        marks.append(mark("line", class_="axis", x1=x.start, x2=x.end, y1=y.start, y2=y.start))
        marks.append(text(0.0, 11.0, y_label))
        marks.append(text((x.start + x.end) / 2, HEIGHT - 4, x_label, "middle"))
        return marks


def _wider(values: Array, share: float) -> tuple[float, float]:
    low, high = float(np.min(values)), float(np.max(values))
    room = (high - low) * share if high > low else max(abs(low), 1.0) * 0.1
    return low - room, high + room


def legend_of_colours(
    colours: Sequence[Mapping[str, str]], ends: tuple[float, float], name: str, y: float
) -> list[Mark]:
    """A strip of colours (attributes) between the values of the first and of the last."""
    low, high = map(short, ends)
    step = STRIP / len(colours)
    start = WIDTH - RIGHT - STRIP - LETTER * len(high) - 6
    return [
        *(rect(start + i * step, y, step + 0.3, 8.0, **look) for i, look in enumerate(colours)),
        text(start - 6, y + 8, low, "end"),
        text(start + STRIP + 6, y + 8, high),
        text(0.0, y + 8, name),
    ]
