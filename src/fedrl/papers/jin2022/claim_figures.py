"""The figures of the deep experiments, a column for each family, with the numbers behind them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fedrl.papers.jin2022.claims import Measured
from fedrl.papers.jin2022.studies import METHODS
from fedrl.report.arms import OWN, Arm
from fedrl.report.figures import COLUMNS, draw_curves, new_figure, rows, save
from fedrl.report.tables import write_rows
from fedrl.runs.metrics import HELD_OUT, RETURN, TRAIN

FIGURES: dict[str, tuple[dict[str, str], Callable[[Measured], Sequence[Arm]]]] = {
    "fed-speed": (
        {OWN: "own environment"},
        lambda found: (found.plain, replace(found.baseline, label="alone")),
    ),
    "deep-exper": (
        {TRAIN: "training", HELD_OUT: "held-out"},
        lambda found: (found.plain, found.average_at_the_end, found.baseline),
    ),
    "person-local": ({OWN: "own environment"}, lambda found: (found.personal, found.plain)),
    "person-general": (
        {OWN: "new environments"},
        lambda found: [replace(found.adapted[key], label=name) for key, name in METHODS.items()],
    ),
}
"""By name: the splits that are shown, and the arms in them."""


def draw(found: Sequence[Measured], folder: Path) -> list[Path]:
    """Write the four figures and their CSV files; the PNG files."""
    written = []
    for name, (splits, chosen) in FIGURES.items():
        figure = new_figure(3.6 * max(len(found), 2), 3.2 * len(splits))
        behind: list[list[object]] = []
        for column, one in enumerate(found):
            arms = chosen(one)
            for row, (split, title) in enumerate(splits.items()):
                ax = figure.add_subplot(len(splits), len(found), row * len(found) + column + 1)
                draw_curves(ax, arms, split)
                ax.set_title(f"{one.study.family}, {title}")
                ax.set_ylabel(RETURN if column == 0 else "")
                if row == 0:
                    ax.legend(frameon=False)
            behind += [[one.study.family, *line] for line in rows(arms, list(splits))]
        write_rows(folder / f"{name}.csv", ("family", *COLUMNS, RETURN), behind)
        written.append(save(figure, folder, name))
    return written
