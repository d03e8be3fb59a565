"""The report of federations of tables: the objective by round, of each agent."""

from collections.abc import Iterator, Sequence
from math import inf

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.box import SIMPLE
from rich.console import RenderableType

from fedrl.counting import count
from fedrl.network.record import missed_in_words, read_missed, rounds_in_words
from fedrl.report.figures import COLOURS, panels, tidy
from fedrl.report.html.costs import costs_section
from fedrl.report.html.lines import Line, curves_section
from fedrl.report.html.section import Card, Section, Table, style_of
from fedrl.report.html.words import on_one_line
from fedrl.report.table_runs import AVERAGE, OBJECTIVE, TableRun
from fedrl.report.tables import table

ENDS = ("", "at the start", "at the end", "missed")


class TableReport:
    """Objectives of federations of tables; it says of them what `RunReport` says of runs."""

    again = "fedrl federation init DIR --experiment FILE"
    said, suffix = OBJECTIVE, ""

    def __init__(self, runs: Sequence[TableRun]) -> None:
        self.runs = runs

    def _named(self, alone: str) -> list[str]:
        """What is said of each run: its folder, if there are others."""
        return [run.path.name if len(self.runs) > 1 else alone for run in self.runs]

    def printed(self) -> Iterator[RenderableType]:
        for run in self.runs:
            yield f"[italic]{run.path.name}: objective of the averaged policy {_how_far(run)}[/]"
            rows = _ends(run)
            columns = ("", "at the start", "at the end" if run.finished else "so far", "missed")
            # Where nobody missed anything, there is no column about it.
            n = 4 if any(missed for *_, missed in rows) else 3
            yield table(columns[:n], [row[:n] for row in rows], left=(0, 3), box=SIMPLE)
            yield from missed_in_words(read_missed(run.path), run.experiment.rounds)

    def rows(self) -> tuple[Sequence[str], list[list[object]]]:
        return ("run", "round", "updates", "agent", OBJECTIVE), [
            [run.path.name, number, run.updates(int(str(number))), who, f"{value:.9g}"]
            for run in self.runs
            for who in (*run.objectives.columns[1:], AVERAGE)
            for number, value in run.objectives[who].dropna().items()
        ]

    def figure(self) -> Figure:
        """A chart for each run: thin lines of its agents, a thick one of their average."""
        titles = self._named(self.runs[0].experiment.name)
        figure, axes = panels(1 + 4.5 * len(self.runs), 3.4, titles, OBJECTIVE)
        for ax, run in zip(axes, self.runs, strict=True):
            found = run.objectives
            ax.plot(found[AVERAGE], color="black", linewidth=2, label=AVERAGE)
            agents = found.columns[1:]
            told_apart = len(agents) < len(COLOURS)
            for i, who in enumerate(agents):
                colour = COLOURS[i] if told_apart else COLOURS[0]
                label = who if told_apart else "agents" if i == 0 else None
                ax.plot(found[who], color=colour, linewidth=0.9, label=label, marker=".")
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
            ax.set_xlabel("rounds done")
            tidy(ax)
        legend = axes[0].get_legend_handles_labels()
        figure.legend(*legend, loc="outside right upper", frameon=False)
        return figure

    def told(self) -> list[str]:
        return [
            f"{count(it.agents, 'agents')} with {type(it.learner).__name__}, each in an "
            f"environment of its own from the family {it.family.name}, whose dynamics it knows. "
            f"{on_one_line('learning.txt.j2', experiment=it, unit='updates', things='tables')} "
            f"Shown: {_how_far(run)}."
            for run in self.runs
            for it in [run.experiment]
        ]

    def cards(self) -> list[Card]:
        return [
            Card(style_of(number), label, _ends(run)[0][2], "", _how_far(run))
            for number, (run, label) in enumerate(zip(self.runs, self._named(AVERAGE), strict=True))
        ]

    def sections(self) -> Iterator[Section | None]:
        titles = self._named("All agents")
        yield curves_section(
            "Objective by round",
            "The objective of the averaged policy in each agent’s own environment, as the agent "
            "measured it at the beginning of a round. The average is over the agents that "
            "answered.",
            list(zip(titles, map(_lines, self.runs), strict=True)),
            ("rounds done", OBJECTIVE),
            "rounds",
        )
        tables = [
            Table(name, ENDS, [(*row, missed or "—") for *row, missed in _ends(run)])
            for run, name in zip(self.runs, self._named("Objective"), strict=True)
        ]
        yield Section("results", "Results", tables=tables)
        styles = {run.path.name: style_of(number) for number, run in enumerate(self.runs)}
        yield costs_section(self.runs, styles)

    def ends(self) -> pd.DataFrame:
        rows = [row for run in self.runs for row in _ends(run)]
        return pd.DataFrame(rows, columns=ENDS).set_index("")


def _how_far(run: TableRun) -> str:
    """`after 8 of 8 rounds`."""
    done, rounds = int(run.objectives.index.max()), run.experiment.rounds
    return f"after {done} of {count(rounds, 'rounds')}" + ("" if run.finished else ", not finished")


def _ends(run: TableRun) -> list[tuple[str, str, str, str]]:
    """(who, first objective, last one, rounds missed), the average first."""
    missed, rounds = read_missed(run.path), run.experiment.rounds
    rows = []
    for who, objectives in run.objectives.items():
        known = objectives.dropna()
        numbers = sorted(one.round for one in missed if who == f"agent {one.agent}")
        first, last = (f"{known.iloc[i]:.4g}" if len(known) else "—" for i in (0, -1))
        if len(known) and known.index[-1] < objectives.index[-1]:
            last += f" (after round {known.index[-1]})"
        rows.append((str(who), first, last, rounds_in_words(numbers, rounds)))
    return rows


def _lines(run: TableRun) -> list[Line]:
    """The curves of a run; nobody knows how far they are from those of other seeds."""
    lines = []
    for number, (who, objectives) in enumerate(run.objectives.items()):
        known = objectives.dropna()
        if len(known):
            x, y = known.index.to_numpy(float), known.to_numpy(float)
            lines.append(Line(str(who), style_of(number), x, y, np.full(len(y), inf)))
    return lines
