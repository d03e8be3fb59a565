"""The page about federations of tables."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedrl.counting import count
from fedrl.report.html import sections
from fedrl.report.html.costs import costs_section
from fedrl.report.html.lines import Line, extent, line_chart
from fedrl.report.html.page import refuse, rendered, write
from fedrl.report.html.section import Card, Key, Section, Table, style_of
from fedrl.report.html.svg import Chart
from fedrl.report.table_report import ends, how_far
from fedrl.report.table_runs import AVERAGE, TableRun


def write_tables_page(runs: Sequence[TableRun], path: Path) -> None:
    """The report of some federations of tables; the same runs give the same page."""
    refuse(path)
    write(path, tables_page(runs))


def tables_page(runs: Sequence[TableRun]) -> str:
    """The page as text."""
    styles = {run.path.name: style_of(number) for number, run in enumerate(runs)}
    named = [(run.path.name if len(runs) > 1 else "", _in_words(run)) for run in runs]
    cards = []
    for number, run in enumerate(runs):
        (_, _, last, _), *_ = ends(run)
        label = run.path.name if len(runs) > 1 else AVERAGE
        cards.append(Card(style_of(number), label, last, "", how_far(run), []))
    found = [
        Section("experiment", "The experiment", named=named),
        _curves(runs),
        _results(runs),
        costs_section(runs, styles),
        sections.settings_section(runs, "fedrl federation init DIR --experiment FILE"),
        sections.versions_section(runs),
    ]
    return rendered(runs, "objective", cards, found)


def _in_words(run: TableRun) -> str:
    experiment = run.experiment
    learner = type(experiment.learner).__name__
    return (
        f"{count(experiment.agents, 'agents')} with {learner}, each in an "
        f"environment of its own from the family {experiment.family.name}, whose dynamics it "
        f"knows. Every {count(experiment.E, 'updates')} they average their tables "
        f"(E = {experiment.E}), {count(experiment.rounds, 'times')} in all. "
        f"Shown: {how_far(run)}."
    )


def _lines(run: TableRun) -> list[Line]:
    found = run.objectives()
    lines = []
    for number, who in enumerate((AVERAGE, *found.columns[:-1])):
        known = found[who].dropna()
        x, y = known.index.to_numpy(float), known.to_numpy(float)
        if len(known):
            lines.append(Line(who, style_of(number), x, np.asarray(y), np.full(len(y), np.inf)))
    return lines


def _curves(runs: Sequence[TableRun]) -> Section:
    """A chart for each run, all with the same axis."""
    lines = [_lines(run) for run in runs]
    ys = extent([line for of_run in lines for line in of_run])
    charts: list[Chart] = [
        line_chart(
            run.path.name if len(runs) > 1 else "All agents",
            of_run,
            x_label="rounds done",
            y_label="objective",
            unit="rounds",
            ys=ys,
        )
        for run, of_run in zip(runs, lines, strict=True)
    ]
    longest = max(lines, key=len)
    legend = [Key(line.style, line.label) for line in longest]
    words = [
        "The objective of the averaged policy in each agent’s own environment, as the agent "
        "measured it at the beginning of a round. The average is over the agents that answered."
    ]
    return Section("curves", "Objective by round", words, legend=legend, charts=charts)


def _results(runs: Sequence[TableRun]) -> Section:
    columns = ["", "at the start", "at the end", "missed"]
    tables = [
        Table(
            run.path.name if len(runs) > 1 else "Objective",
            columns,
            [(who, first, last, missed or "—") for who, first, last, missed in ends(run)],
        )
        for run in runs
    ]
    return Section("results", "Results", tables=tables)
