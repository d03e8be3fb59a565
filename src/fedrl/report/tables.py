"""Tables on a terminal and as CSV files, and the lines that say where files are."""

import csv
import io
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, JustifyMethod
from rich.table import Table

from fedrl.files import write_atomically


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Container[int] = (0,),
    no_wrap: bool = False,
    **look: Any,
) -> Table:
    """A table for a terminal; the columns at the places in `left` stand to the left."""
    made = Table(title_justify="left", **look)
    for place, column in enumerate(columns):
        justify: JustifyMethod = "left" if place in left else "right"
        made.add_column(column, justify=justify, overflow="fold", no_wrap=no_wrap)
    for row in rows:
        made.add_row(*row)
    return made


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """One line of names, then one line a row; the file is there whole or not at all."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([columns, *rows])
    write_atomically(path, text.getvalue().encode())


def say_where(figures: Iterable[Path], folder: Path, console: Console) -> None:
    """The last lines of a command: what it has written."""
    for line in (*(f"figure  {path}" for path in figures), f"results {folder}"):
        console.print(line, soft_wrap=True, highlight=False)
