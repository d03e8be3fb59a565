"""Bars, one below the other."""

from collections.abc import Sequence
from typing import NamedTuple

from fedrl.report.html.svg import RIGHT, WIDTH, Chart, mark, text

ROW = 44.0


class Bar(NamedTuple):
    """A length, and what is written at it."""

    label: str
    style: str
    value: float
    told: str


def bar_chart(title: str, bars: Sequence[Bar]) -> Chart:
    """The labels stand above their bars: they may be long, and phones are narrow."""
    longest = max(bar.value for bar in bars) or 1.0
    marks = []
    for i, bar in enumerate(bars):
        y, whole = 14.0 + i * ROW, WIDTH - RIGHT
        length = whole * bar.value / longest
        marks += [
            text(0.0, y, bar.label),
            text(whole, y, bar.told, "end", "value"),
            mark("rect", class_="track", x=0.0, y=y + 7, width=whole, height=10.0),
            mark("rect", class_=f"bar {bar.style}", x=0.0, y=y + 7, width=length, height=10.0),
        ]
    described = f"{title}: " + "; ".join(f"{bar.label} {bar.told}" for bar in bars)
    return Chart(title, described, marks, height=len(bars) * ROW)
