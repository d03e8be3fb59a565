"""Our numbers beside published ones."""

from dataclasses import dataclass
from math import hypot
from pathlib import Path

from rich.console import Console

from fedrl.counting import count
from fedrl.report.tables import table, write_rows

# A standard error published as 0.00 is known to two digits only.
SMALLEST_PUBLISHED_SE = 0.005
NOTICEABLE, TOO_FAR = 2.0, 3.0


@dataclass(frozen=True)
class Comparison:
    """One published number and ours."""

    labels: dict[str, str]
    """What the number is, by column."""
    published: float
    """The published mean."""
    published_se: float
    """Its standard error."""
    mean: float
    """Our mean."""
    se: float
    """Its standard error."""
    seeds: int
    """Replicates behind our mean."""

    @property
    def z(self) -> float:
        """Difference in combined standard errors."""
        published_se = self.published_se or SMALLEST_PUBLISHED_SE
        return (self.mean - self.published) / hypot(published_se, self.se)

    @property
    def agrees(self) -> bool:
        return abs(self.z) <= TOO_FAR

    @property
    def mark(self) -> str:
        if abs(self.z) <= NOTICEABLE:
            return "[green]✓[/green]"
        return "[yellow]~[/yellow]" if self.agrees else "[red]✗[/red]"


def write_csv(path: Path, comparisons: list[Comparison]) -> None:
    """The published columns, then ours."""
    rows = []
    for row in comparisons:
        ours = [f"{row.mean:.6f}", f"{row.se:.6f}", row.seeds, f"{row.z:.4f}"]
        published = [f"{row.published:.2f}", f"{row.published_se:.2f}"]
        rows.append([*row.labels.values(), *published, *ours])
    columns = [*comparisons[0].labels, "mean", "se", "ours_mean", "ours_se", "seeds", "z"]
    write_rows(path, columns, rows)


def print_comparisons(title: str, comparisons: list[Comparison], console: Console) -> None:
    """A table for people, a row for each number."""
    labels = comparisons[0].labels
    rows = [
        (
            *row.labels.values(),
            f"{row.mean:.2f} ± {row.se:.2f}",
            f"{row.published:.2f} ± {row.published_se:.2f}",
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
        f"{count(comparisons[0].seeds, 'seeds')}.",
        highlight=False,
    )
