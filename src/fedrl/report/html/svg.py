"""Drawings as text: elements, scales and the frame of a chart.

All charts have the same width in units of their own, and as many of them side by side as there is
room for: so their text is legible on a phone and does not grow on a large screen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup, escape

from fedrl.report.html.numbers import short, ticks

WIDTH, HEIGHT = 380.0, 260.0
TOP, RIGHT, BOTTOM = 26.0, 14.0, 42.0
LETTER = 6.4
"""About the width of a digit on an axis."""


@dataclass(frozen=True)
class Chart:
    """A drawing, what it shows in words, and what is told of its places when pointed at."""

    title: str
    described: str
    svg: Markup
    hover: dict[str, Any] = field(default_factory=dict)


def element(name: str, *children: str, **attributes: object) -> Markup:
    """An element; whatever is not markup itself is escaped."""
    given = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _plain(value))
        for key, value in attributes.items()
        if value is not None
    )
    inside = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), given, inside)


def _plain(value: object) -> str:
    """Numbers with a tenth of a unit: nobody sees more."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def text(
    x: float, y: float, said: str, anchor: str | None = None, style: str | None = None
) -> Markup:
    """Words at a place: they begin there, or have their `anchor` there."""
    return element("text", said, class_=style, x=x, y=y, text_anchor=anchor)


def path(points: Sequence[tuple[float, float]], **attributes: object) -> Markup:
    """A line through points."""
    steps = " ".join(f"{_plain(x)},{_plain(y)}" for x, y in points)
    return element("polyline", points=steps, **attributes)


@dataclass(frozen=True)
class Scale:
    """From values to places."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + share * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        return ticks(self.low, self.high)


@dataclass(frozen=True)
class Axes:
    """Where values lie in a chart."""

    x: Scale
    y: Scale

    @classmethod
    def around(
        cls, xs: tuple[float, float], ys: tuple[float, float], *, room: float = 0.0
    ) -> "Axes":
        """For values in these ranges, `room` (a share of them) wider to each side."""
        (left, right), (bottom, top) = _wider(xs, room), _wider(ys, 0.04)
        letters = max(len(short(value)) for value in ticks(bottom, top))
        return cls(
            Scale(left, right, 14.0 + LETTER * letters, WIDTH - RIGHT),
            Scale(bottom, top, HEIGHT - BOTTOM, TOP),
        )


def _wider(values: tuple[float, float], share: float) -> tuple[float, float]:
    low, high = values
    room = (high - low) * share if high > low else max(abs(low), 1.0) * 0.1
    return low - room, high + room


def frame(
    axes: Axes, body: Markup, *, x_label: str, y_label: str, described: str, below: float = 0.0
) -> Markup:
    """A drawing with its axes, and room below them."""
    x, y = axes.x, axes.y
    parts = []
    for value in y.ticks:
        parts.append(element("line", class_="grid", x1=x.start, x2=x.end, y1=y(value), y2=y(value)))
        parts.append(text(x.start - 7, y(value) + 4, short(value), "end"))
    parts += [text(x(value), y.start + 17, short(value), "middle") for value in x.ticks]
    parts.append(element("line", class_="axis", x1=x.start, x2=x.end, y1=y.start, y2=y.start))
    parts.append(text(0.0, 11.0, y_label))
    parts.append(text((x.start + x.end) / 2, HEIGHT - 4, x_label, "middle"))
    return drawing(Markup("").join(parts) + body, described, HEIGHT + below)


def drawing(body: Markup, described: str, height: float = HEIGHT) -> Markup:
    """The outermost element."""
    return element(
        "svg",
        body,
        viewBox=f"0 0 {_plain(WIDTH)} {_plain(height)}",
        role="img",
        aria_label=described,
    )


def legend_of_colours(
    colours: Sequence[str], low: str, high: str, name: str, *, y: float, shades: bool = False
) -> Markup:
    """A strip from the colour of the smallest value to that of the largest.

    `shades`: the colours are opacities of one that follows the page.
    """
    width, end = 96.0, WIDTH - RIGHT
    step = width / len(colours)
    start = end - width - LETTER * len(high) - 6
    strip = [
        element(
            "rect",
            x=start + i * step,
            y=y,
            width=step + 0.3,
            height=8.0,
            **({"class_": "heat", "fill_opacity": c} if shades else {"fill": c}),
        )
        for i, c in enumerate(colours)
    ]
    texts = [
        text(start - 6, y + 8, low, "end"),
        text(start + width + 6, y + 8, high),
        text(0.0, y + 8, name),
    ]
    return Markup("").join([*strip, *texts])
