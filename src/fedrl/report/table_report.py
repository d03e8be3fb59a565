"""Tables and figures of federations of tables: the objective by round, of each agent."""

from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from fedrl.counting import count
from fedrl.network.missed import missed_in_words, read_missed, rounds_in_words
from fedrl.report.csv_file import write_rows
from fedrl.report.figures import COLOURS, new_figure, save, tidy
from fedrl.report.table_runs import AVERAGE, TableRun

COLUMNS = ("run", "round", "updates", "agent", "objective")


def report_tables(runs: Sequence[TableRun], folder: Path, console: Console) -> None:
    """Print a table for each run; write the numbers and a figure to `folder`."""
    for run in runs:
        title = f"{run.path.name}: objective of the averaged policy {how_far(run)}"
        console.print(title, style="italic", highlight=False, soft_wrap=True)
        console.print(objective_table(run))
        for words in missed_in_words(read_missed(run.path), run.experiment.rounds):
            console.print(words, highlight=False, soft_wrap=True)
    folder.mkdir(parents=True, exist_ok=True)
    name = "report" if len(runs) == 1 else "comparison"
    write_rows(folder / f"{name}.csv", COLUMNS, _rows(runs))
    paths = _curves(runs, folder, f"{name}-curves")
    console.print(f"figures: {', '.join(map(str, paths))}", highlight=False, soft_wrap=True)
    for run in runs:
        console.print(f"run: {run.path}", highlight=False, soft_wrap=True)


def how_far(run: TableRun) -> str:
    """`after 8 of 8 rounds`."""
    done, rounds = int(run.objectives().index.max()), run.experiment.rounds
    return f"after {done} of {count(rounds, 'rounds')}" + ("" if run.finished else ", not finished")


def ends(run: TableRun) -> list[tuple[str, str, str, str]]:
    """(who, first objective, last one, rounds missed), the average first."""
    found, rounds = run.objectives(), run.experiment.rounds
    missed = read_missed(run.path)
    rows = []
    for who in (AVERAGE, *found.columns[:-1]):
        known = found[who].dropna()
        numbers = sorted(one.round for one in missed if who == f"agent {one.agent}")
        first, last = (f"{known.iloc[i]:.4g}" if len(known) else "—" for i in (0, -1))
        if len(known) and known.index[-1] < found.index[-1]:
            last += f" (after round {known.index[-1]})"
        rows.append((who, first, last, rounds_in_words(numbers, rounds)))
    return rows


def objective_table(run: TableRun) -> Table:
    """First and last objectives, and who missed what."""
    table = Table(box=SIMPLE)
    rows = ends(run)
    columns = ["", "at the start", "at the end" if run.finished else "so far", "missed"]
    if not any(missed for *_, missed in rows):
        columns = columns[:-1]
    for column in columns:
        table.add_column(column, justify="right" if column[:2] in ("at", "so") else "left")
    for row in rows:
        table.add_row(*row[: len(columns)])
    return table


def _rows(runs: Sequence[TableRun]) -> list[list[object]]:
    return [
        [run.path.name, number, run.updates(int(str(number))), who, f"{value:.9g}"]
        for run in runs
        for who, objectives in run.objectives().items()
        for number, value in objectives.dropna().items()
    ]


def _curves(runs: Sequence[TableRun], folder: Path, name: str) -> list[Path]:
    """A chart for each run: thin lines of its agents, a thick one of their average."""
    from matplotlib.ticker import MaxNLocator

    figure = new_figure(1 + 4.5 * len(runs), 3.4)
    first = None
    for number, run in enumerate(runs):
        ax = figure.add_subplot(1, len(runs), number + 1, sharey=first)
        first = first or ax
        found = run.objectives()
        *agents, _ = found.columns
        ax.plot(found.index, found[AVERAGE], color="black", linewidth=2, label=AVERAGE)
        for i, who in enumerate(agents):
            told_apart = len(agents) < len(COLOURS)
            colour = COLOURS[i] if told_apart else COLOURS[0]
            label = who if told_apart else "agents" if i == 0 else None
            ax.plot(found.index, found[who], color=colour, linewidth=0.9, label=label, marker=".")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel("rounds done")
        ax.set_title(run.path.name if len(runs) > 1 else run.experiment.name)
        tidy(ax)
    if first is not None:
        first.set_ylabel("objective")
        figure.legend(*first.get_legend_handles_labels(), loc="outside right upper", frameon=False)
    return save(figure, folder, name)
