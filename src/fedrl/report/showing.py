"""How a report is shown on a terminal and in files."""

from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, JustifyMethod
from rich.table import Table

from fedrl.report.csv_file import write_rows
from fedrl.report.figures import save

if TYPE_CHECKING:
    from fedrl.report.kinds import Report


def show(report: "Report", folder: Path, console: Console) -> None:
    """Print it; write numbers and curves to `folder`."""
    for said in report.printed():
        # Lines are not folded: they have paths in them.
        console.print(said, highlight=False, soft_wrap=isinstance(said, str))
    folder.mkdir(parents=True, exist_ok=True)
    name = ("report" if len(report.runs) == 1 else "comparison") + report.suffix
    write_rows(folder / f"{name}.csv", *report.rows())
    paths = save(report.figure(), folder, f"{name}-curves")
    console.print(f"figures: {', '.join(map(str, paths))}", highlight=False, soft_wrap=True)
    for run in report.runs:
        console.print(f"run: {run.path}", highlight=False, soft_wrap=True)


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
