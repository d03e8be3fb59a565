"""The sections that pages about runs of both kinds have."""

from collections.abc import Sequence

from fedrl.experiment.toml import to_toml
from fedrl.report.html.lines import Line, extent, line_chart
from fedrl.report.html.section import Section, Table
from fedrl.report.table_runs import AnyRun
from fedrl.runs.run_directory import RunDirectory


def curves_section(
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
