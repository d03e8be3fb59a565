"""The sections of a page, from runs and their arms."""

from collections.abc import Sequence
from math import isfinite

from fedrl.experiment.toml import to_toml
from fedrl.report.arms import OWN, Arm, final, interval
from fedrl.report.curves import mean_and_band
from fedrl.report.figures import BAND
from fedrl.report.html.lines import Line, extent, line_chart
from fedrl.report.html.numbers import as_words, decimal
from fedrl.report.html.section import Card, Section, Table, style_of
from fedrl.report.html.words import PLACES
from fedrl.report.side_by_side import differences
from fedrl.report.table_runs import AnyRun
from fedrl.runs.run_directory import RunDirectory


def cards(arms: Sequence[Arm], splits: Sequence[str]) -> list[Card]:
    """The return at the end, of each arm."""
    personal = any(arm.experiment.learner.personal for arm in arms)
    main = OWN if personal or len(splits) == 1 else splits[0]
    made = []
    for number, arm in enumerate(arms):
        ends = {split: interval(final(arm, split)) for split in splits}
        end = ends.pop(main)
        half = f"± {decimal(end.half)}" if isfinite(end.half) else ""
        beside = [(PLACES[s].removesuffix(" environments"), as_words(x)) for s, x in ends.items()]
        label, mean = arm.shown, decimal(end.mean)
        made.append(Card(style_of(number), label, mean, half, PLACES[main], beside))
    return made


def curves(
    title: str,
    words: str,
    panels: Sequence[tuple[str, Sequence[Line]]],
    labels: tuple[str, str],
    unit: str,
) -> Section:
    """A chart for each panel, all with the same axis."""
    ys = extent([line for _, lines in panels for line in lines])
    charts = [line_chart(name, lines, labels, unit, ys) for name, lines in panels]
    longest = max((lines for _, lines in panels), key=len)
    legend = [(line.style, line.label) for line in longest]
    return Section("curves", title, [words], legend=legend, charts=charts)


def curves_section(arms: Sequence[Arm], splits: Sequence[str], metric: str) -> Section:
    """A chart for each split."""
    panels = []
    for split in splits:
        lines = [
            Line(arm.shown, style_of(number), arm.updates, *mean_and_band(arm, split))
            for number, arm in enumerate(arms)
        ]
        panels.append((PLACES[split].capitalize(), lines))
    words = f"Mean over seeds; the bands are {BAND} standard errors to each side."
    unit = arms[0].experiment.unit
    return curves("Learning curves", words, panels, (f"{unit} of each agent", metric), unit)


def results_section(arms: Sequence[Arm], splits: Sequence[str], metric: str) -> Section:
    """Tables of the ends and of the differences."""
    places = [PLACES[split] for split in splits]
    rows = [
        [
            arm.shown,
            f"{int(arm.updates[-1]):,}",
            str(arm.experiment.seeds),
            *(as_words(interval(final(arm, split))) for split in splits),
        ]
        for arm in arms
    ]
    columns = ["", arms[0].experiment.unit, "seeds", *places]
    styles = [style_of(number) for number in range(len(arms))]
    tables = [Table(f"{metric.capitalize()} at the end", columns, rows, styles)]
    words = ["Means over seeds ± 95 % interval (Student’s)."]
    compared = [
        [name, when, *(f"{as_words(x)}{' *' if x.excludes_zero else ''}" for x in gains)]
        for name, when, gains in differences(arms, splits)
    ]
    if compared:
        caption = "Differences, at the end and in the mean over the training"
        tables.append(Table(caption, ["", "", *places], compared))
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


def settings_section(runs: Sequence[AnyRun], again: str) -> Section:
    """All settings, as files that can be run."""
    words = [f"Complete, as TOML: saved to a file, `{again}` begins the same again."]
    folded = [(run.path.name, to_toml(run.experiment)) for run in runs]
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
    found = versions if isinstance(versions, dict) else {}
    found |= {name: about[name] for name in ("device", "devices", "machine") if name in about}
    return {str(name): str(value) for name, value in found.items()}
