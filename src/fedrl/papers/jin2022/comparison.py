"""Our numbers beside published ones."""

from collections.abc import Sequence
from math import hypot
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from fedrl.counting import count
from fedrl.papers.jin2022.cell_runs import Measured
from fedrl.papers.jin2022.cells import Cell
from fedrl.report.tables import table, write_rows

# A standard error published as 0.00 is known to two digits only.
SMALLEST_PUBLISHED_SE = 0.005
NOTICEABLE, TOO_FAR = 2.0, 3.0


class Comparison(NamedTuple):
    """A published number and ours."""

    cell: Cell
    ours: Measured

    @property
    def z(self) -> float:
        """Difference in combined standard errors."""
        published_se = self.cell.published_se or SMALLEST_PUBLISHED_SE
        return (self.ours.mean - self.cell.published) / hypot(published_se, self.ours.se)

    @property
    def agrees(self) -> bool:
        return abs(self.z) <= TOO_FAR

    @property
    def mark(self) -> str:
        if abs(self.z) <= NOTICEABLE:
            return "[green]✓[/green]"
        return "[yellow]~[/yellow]" if self.agrees else "[red]✗[/red]"


def write_csv(path: Path, comparisons: Sequence[Comparison]) -> None:
    """The published columns, then ours."""
    rows = []
    for row in comparisons:
        cell, ours = row
        published = [f"{cell.published:.2f}", f"{cell.published_se:.2f}"]
        found = [f"{ours.mean:.6f}", f"{ours.se:.6f}", ours.seeds, f"{row.z:.4f}"]
        rows.append([*cell.labels.values(), *published, *found])
    labels = comparisons[0].cell.labels
    write_rows(path, [*labels, "mean", "se", "ours_mean", "ours_se", "seeds", "z"], rows)


def print_comparisons(title: str, comparisons: Sequence[Comparison], console: Console) -> None:
    """A table for people, a row for each number."""
    labels = comparisons[0].cell.labels
    rows = [
        (
            *row.cell.labels.values(),
            f"{row.ours.mean:.2f} ± {row.ours.se:.2f}",
            f"{row.cell.published:.2f} ± {row.cell.published_se:.2f}",
            f"{row.z:+.2f}",
            row.mark,
        )
        for row in comparisons
    ]
    columns = (*labels, "ours", "published", "z", "")
    look = {"title": title, "title_style": "bold", "box": None}
    console.print(table(columns, rows, left=range(len(labels)), no_wrap=True, **look))
    far = sum(not row.agrees for row in comparisons)
    near = sum(abs(row.z) <= NOTICEABLE for row in comparisons)
    console.print(
        f"z: difference in combined standard errors. {near} of {len(comparisons)} within "
        f"{NOTICEABLE:g}, {far} off by more than {TOO_FAR:g}; "
        f"{count(comparisons[0].ours.seeds, 'seeds')}.",
        highlight=False,
    )
