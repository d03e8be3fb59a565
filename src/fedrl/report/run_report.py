"""Tables and learning curves of runs, made from their directories and from nothing else."""

from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from fedrl.counting import count
from fedrl.network.missed import missed_in_words, read_missed
from fedrl.report.arms import Arm, difference, final, interval, over_training
from fedrl.report.csv_file import write_rows
from fedrl.report.curves import COLUMNS, draw_curves, rows
from fedrl.report.figures import new_figure, save
from fedrl.report.side_by_side import SideBySide, pairs, side_by_side
from fedrl.runs.metrics import RETURN
from fedrl.runs.run import Run

# Of a legend, about.
INCHES_OF_LETTER, INCHES_OF_LINE = 0.075, 0.2
NOT_AVERAGED = (
    "diverged: a reward, a loss, a parameter or a return was not a finite number. There is no mean "
    "over the other seeds; their values are in the CSV file."
)


def report_runs(
    runs: Sequence[Run], folder: Path, console: Console, metric: str = RETURN
) -> SideBySide:
    """Print the tables; write them and the figures to `folder`; what was shown."""
    shown = side_by_side(runs, metric)
    arms, splits = shown
    name = "report" if len(runs) == 1 else "comparison"
    name = name if metric == RETURN else f"{name}-{metric}"
    folder.mkdir(parents=True, exist_ok=True)
    for run in runs:
        if not run.finished:
            console.print(f"{run.path} is not finished; this is how far it is", soft_wrap=True)
        for words in missed_in_words(read_missed(run.path), run.experiment.rounds):
            console.print(f"{run.path.name}: {words}", highlight=False, soft_wrap=True)
    console.print(_final_table(arms, splits, metric))
    if any(arm.diverged for arm in arms):
        console.print(NOT_AVERAGED, highlight=False)
    comparisons = pairs(arms)
    if comparisons:
        console.print(_difference_table(comparisons, splits))
    write_rows(folder / f"{name}.csv", (*COLUMNS, metric), rows(arms, splits))
    paths = _curves(arms, splits, folder, f"{name}-curves", metric)
    console.print(f"figures: {', '.join(map(str, paths))}", highlight=False, soft_wrap=True)
    for run in runs:
        console.print(f"run: {run.path}", highlight=False, soft_wrap=True)
    return shown


def _final_table(arms: Sequence[Arm], splits: Sequence[str], metric: str) -> Table:
    seeds = sorted({arm.experiment.seeds for arm in arms})
    counts = " or ".join([*map(str, seeds[:-1]), count(seeds[-1], "seeds")])
    what = metric.replace("_", " ").capitalize()
    table = Table(
        title=f"{what} at the end: mean over {counts}{' ± 95 % interval' if seeds[-1] > 1 else ''}",
        title_justify="left",
        box=SIMPLE,
    )
    for column in ("", arms[0].experiment.unit, *splits):
        table.add_column(column, justify="left" if column == "" else "right", overflow="fold")
    for arm in arms:
        values = [str(interval(final(arm, split))) for split in splits]
        table.add_row(arm.shown, f"{arm.updates[-1]}", *values)
    return table


def _difference_table(pairs: Sequence[tuple[Arm, Arm]], splits: Sequence[str]) -> Table:
    table = Table(
        title="Differences, at the end and in the mean over the training; * excludes 0",
        title_justify="left",
        box=SIMPLE,
        padding=(0, 1, 0, 0),
    )
    for column in ("", "", *(split.removesuffix(" environment") for split in splits)):
        table.add_column(column, justify="right" if column else "left", overflow="fold")
    for one, other in pairs:
        name = f"{one.label} − {other.label}"
        for what, value in (("end", final), ("training", over_training)):
            gains = [difference(one, other, split, value) for split in splits]
            table.add_row(name, what, *(f"{g}{'*' if g.excludes_zero else ' '}" for g in gains))
            name = ""
    return table


def _curves(
    arms: Sequence[Arm], splits: Sequence[str], folder: Path, name: str, metric: str
) -> list[Path]:
    """Return against training for each split: the mean, and a band of standard errors."""
    width = 3.5 * max(len(splits), 2)
    # The legend stands below: labels may be longer than a chart is wide.
    across = max(int(width / (0.7 + INCHES_OF_LETTER * max(len(a.label) for a in arms))), 1)
    lines = -(-len(arms) // across)
    figure = new_figure(width, 3.4 + INCHES_OF_LINE * lines)
    first = None
    for column, split in enumerate(splits):
        ax = figure.add_subplot(1, len(splits), column + 1, sharey=first)
        first = first or ax
        draw_curves(ax, arms, split)
        ax.set_title(split)
    if first is not None:
        first.set_ylabel(metric.replace("_", " "))
        handles, labels = first.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=across, frameon=False)
    return save(figure, folder, name)
