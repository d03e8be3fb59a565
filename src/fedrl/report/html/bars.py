"""Bars, one below the other."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from fedrl.report.html.svg import RIGHT, WIDTH, Chart, drawing, element, text

ROW, THICK = 44.0, 10.0


class Bar(NamedTuple):
    """A length, and what is written at it."""

    label: str
    style: str
    value: float
    told: str


def bar_chart(title: str, bars: Sequence[Bar]) -> Chart:
    """The labels stand above their bars: they may be long, and phones are narrow."""
    longest = max(bar.value for bar in bars) or 1.0
    parts = []
    for i, bar in enumerate(bars):
        y, length = 14.0 + i * ROW, (WIDTH - RIGHT) * bar.value / longest
        parts += [
            text(0.0, y, bar.label),
            text(WIDTH - RIGHT, y, bar.told, "end", "value"),
            element("rect", class_="track", x=0.0, y=y + 7, width=WIDTH - RIGHT, height=THICK),
            element("rect", class_=f"bar {bar.style}", x=0.0, y=y + 7, width=length, height=THICK),
        ]
    described = f"{title}: " + "; ".join(f"{bar.label} {bar.told}" for bar in bars)
    svg = drawing(Markup("").join(parts), described, 14.0 + len(bars) * ROW - 14)
    return Chart(title, described, svg)
