"""The sections of a page, from runs and their arms."""

from collections.abc import Sequence
from math import inf, isfinite

import numpy as np

from fedrl.experiment.toml import to_toml
from fedrl.report.arms import OWN, Arm, Interval, difference, final, interval, over_training
from fedrl.report.figures import BAND
from fedrl.report.html.environments import legend_of
from fedrl.report.html.lines import Line, extent, line_chart
from fedrl.report.html.numbers import as_words, decimal
from fedrl.report.html.section import Card, Folded, Section, Table, style_of
from fedrl.report.html.words import PLACES, told
from fedrl.report.side_by_side import pairs
from fedrl.report.table_runs import AnyRun
from fedrl.runs.run import Run
from fedrl.runs.run_directory import RunDirectory


def headline_split(arms: Sequence[Arm], splits: Sequence[str]) -> str:
    """Where the number that one looks for first was measured."""
    personal = any(arm.experiment.learner.personal for arm in arms)
    return OWN if personal or len(splits) == 1 else splits[0]


def cards(arms: Sequence[Arm], splits: Sequence[str]) -> list[Card]:
    """The return at the end, of each arm."""
    main = headline_split(arms, splits)
    made = []
    for number, arm in enumerate(arms):
        ends = {split: interval(final(arm, split)) for split in splits}
        beside = [
            (PLACES[split].removesuffix(" environments"), as_words(ends[split]))
            for split in splits
            if split != main
        ]
        end = ends[main]
        half = f"± {decimal(end.half)}" if isfinite(end.half) else ""
        made.append(
            Card(style_of(number), arm.shown, decimal(end.mean), half, PLACES[main], beside)
        )
    return made


def experiment_section(runs: Sequence[Run]) -> Section:
    """What was done, a paragraph for each run."""
    named = [(run.path.name if len(runs) > 1 else "", " ".join(told(run))) for run in runs]
    return Section("experiment", "The experiment", named=named)


def curves_section(arms: Sequence[Arm], splits: Sequence[str], metric: str) -> Section:
    """A chart for each split, all with the same axis."""
    lines = {
        split: [_line(arm, number, split) for number, arm in enumerate(arms)] for split in splits
    }
    ys = extent([line for split in splits for line in lines[split]])
    unit = arms[0].experiment.unit
    charts = [
        line_chart(
            PLACES[split].capitalize(),
            lines[split],
            x_label=f"{unit} of each agent",
            y_label=metric,
            unit=unit,
            ys=ys,
        )
        for split in splits
    ]
    words = [f"Mean over seeds; the bands are {BAND} standard errors to each side."]
    return Section("curves", "Learning curves", words, legend=legend_of(arms), charts=charts)


def _line(arm: Arm, number: int, split: str) -> Line:
    curve = arm.curves[split]
    seeds = len(curve)
    spread = curve.std(0, ddof=1) if seeds > 1 else np.full(len(arm.updates), inf)
    half = BAND * spread / seeds**0.5
    return Line(arm.shown, style_of(number), arm.updates, curve.mean(0), half)


def results_section(arms: Sequence[Arm], splits: Sequence[str], metric: str) -> Section:
    """Tables of the ends and of the differences."""
    columns = ["", arms[0].experiment.unit, "seeds", *(PLACES[split] for split in splits)]
    rows = [
        [
            arm.shown,
            f"{int(arm.updates[-1]):,}",
            str(arm.experiment.seeds),
            *(as_words(interval(final(arm, split))) for split in splits),
        ]
        for arm in arms
    ]
    styles = [style_of(number) for number in range(len(arms))]
    tables = [Table(f"{metric.capitalize()} at the end", columns, rows, styles)]
    compared = _differences(arms, splits)
    if compared:
        tables.append(
            Table(
                "Differences, at the end and in the mean over the training",
                ["", "", *(PLACES[split] for split in splits)],
                compared,
            )
        )
    words = ["Means over seeds ± 95 % interval (Student’s)."]
    if compared:
        words.append(
            "A star marks differences whose interval excludes 0; seeds are paired where they have "
            "the same environments."
        )
    if any(arm.diverged for arm in arms):
        words.append(
            "Diverged means that a reward, a loss, a parameter or a return was not a finite number "
            "in some seeds: there is no mean over the others."
        )
    if any(arm.experiment.seeds == 1 for arm in arms):
        words.append("A single seed has no interval: it says nothing about others.")
    return Section("results", "Results", words, tables=tables)


def _differences(arms: Sequence[Arm], splits: Sequence[str]) -> list[list[str]]:
    return [
        [
            f"{one.label} − {other.label}",
            what,
            *(_starred(difference(one, other, s, value)) for s in splits),
        ]
        for one, other in pairs(arms)
        for what, value in (("end", final), ("training", over_training))
    ]


def _starred(gain: Interval) -> str:
    return f"{as_words(gain)}{' *' if gain.excludes_zero else ''}"


def settings_section(runs: Sequence[AnyRun], again: str = "fedrl run FILE") -> Section:
    """All settings, as files that can be run."""
    words = [f"Complete, as TOML: saved to a file, `{again}` begins the same again."]
    folded = [Folded(run.path.name, to_toml(run.experiment)) for run in runs]
    return Section("settings", "Settings", words, folded=folded)


def versions_section(runs: Sequence[AnyRun]) -> Section:
    """What each run was started with."""
    known = {run.path.name: _about(run) for run in runs}
    names = list(dict.fromkeys(name for about in known.values() for name in about))
    if not names:
        return Section("versions", "Versions", notes=["The runs do not say what made them."])
    rows = [[name, *(about.get(name, "—") for about in known.values())] for name in names]
    words = ["Of the process that started each run."]
    return Section("versions", "Versions", words, tables=[Table("", ["", *known], rows)])


def _about(run: AnyRun) -> dict[str, str]:
    about = RunDirectory(run.path, run.experiment).about()
    versions = about.get("versions")
    found = {str(k): str(v) for k, v in versions.items()} if isinstance(versions, dict) else {}
    places = {name: str(about[name]) for name in ("device", "devices", "machine") if name in about}
    return found | places
