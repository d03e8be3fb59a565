"""What a page consists of."""

from collections.abc import Sequence
from typing import NamedTuple

from fedrl.report.html.svg import Chart

COLOURS, DASHES = 7, 3
"""How many there are in the style sheet."""


def style_of(number: int) -> str:
    """Colour of an arm; dashed when there are more arms than colours."""
    return f"c{number % COLOURS} d{number // COLOURS % DASHES}"


class Table(NamedTuple):
    """Rows of text; the first column names them."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    styles: Sequence[str] = ()
    """Colour of each row, if it stands for an arm."""


class Section(NamedTuple):
    """One subject."""

    key: str
    title: str
    words: Sequence[str] = ()
    named: Sequence[tuple[str, str]] = ()
    """Paragraphs with a name each."""
    legend: Sequence[tuple[str, str]] = ()
    """(style, label) of what charts show."""
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    folded: Sequence[tuple[str, str]] = ()
    """(summary, text) to be unfolded."""


class Card(NamedTuple):
    """A number that one looks for first."""

    style: str
    label: str
    mean: str
    half: str
    where: str
    beside: Sequence[tuple[str, str]] = ()
    """The other numbers of the arm: (where, value)."""
