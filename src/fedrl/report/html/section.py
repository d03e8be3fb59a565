"""What a page consists of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fedrl.report.html.svg import Chart

COLOURS, DASHES = 7, 3
"""How many there are in the style sheet."""


def style_of(number: int) -> str:
    """Colour of an arm; dashed when there are more arms than colours."""
    return f"c{number % COLOURS} d{number // COLOURS % DASHES}"


class Key(NamedTuple):
    """An entry of a legend."""

    style: str
    label: str


@dataclass(frozen=True)
class Table:
    """Rows of text; the first column names them."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    styles: Sequence[str] = ()
    """Colour of each row, if it stands for an arm."""


class Folded(NamedTuple):
    """Text to be unfolded."""

    summary: str
    text: str


@dataclass(frozen=True)
class Section:
    """One subject."""

    key: str
    title: str
    words: Sequence[str] = ()
    named: Sequence[tuple[str, str]] = ()
    """Paragraphs with a name each."""
    legend: Sequence[Key] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    folded: Sequence[Folded] = ()


class Card(NamedTuple):
    """A number that one looks for first."""

    style: str
    label: str
    mean: str
    half: str
    where: str
    beside: Sequence[tuple[str, str]]
    """The other numbers of the arm: (where, value)."""
