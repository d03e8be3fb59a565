"""The figures of the deep experiments, a column for each family, with the numbers behind them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fedrl.papers.jin2022.claims import NAMES, Measured
from fedrl.papers.jin2022.studies import METHODS
from fedrl.report.arms import OWN, Arm
from fedrl.report.curves import COLUMNS, draw_curves, rows
from fedrl.report.figures import new_figure, save
from fedrl.report.tables import write_rows
from fedrl.runs.metrics import HELD_OUT, RETURN, TRAIN

Chosen = Callable[[Measured], Sequence[Arm]]


def draw(found: Sequence[Measured], folder: Path) -> list[Path]:
    """Write the four figures and their CSV files; the PNG files."""
    figures: dict[str, tuple[Chosen, dict[str, str]]] = {
        "fed-speed": (_fed_speed, {OWN: "own environment"}),
        "deep-exper": (_deep_exper, {TRAIN: "training", HELD_OUT: "held-out"}),
        "person-local": (_person_local, {OWN: "own environment"}),
        "person-general": (_person_general, {OWN: "new environments"}),
    }
    return [
        _figure(found, name, chosen, splits, folder) for name, (chosen, splits) in figures.items()
    ]


def _fed_speed(found: Measured) -> Sequence[Arm]:
    return found.plain, replace(found.baseline, label="alone")


def _deep_exper(found: Measured) -> Sequence[Arm]:
    return found.plain, found.average_at_the_end, found.baseline


def _person_local(found: Measured) -> Sequence[Arm]:
    return found.personal, found.plain


def _person_general(found: Measured) -> Sequence[Arm]:
    return [replace(found.adapted[method], label=NAMES[method]) for method in METHODS]


def _figure(
    found: Sequence[Measured], name: str, chosen: Chosen, splits: dict[str, str], folder: Path
) -> Path:
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
    return save(figure, folder, name)[0]
