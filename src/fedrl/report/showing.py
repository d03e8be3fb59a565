"""The report of some runs: on a terminal, in files, and as a page."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fedrl.errors import FedrlError
from fedrl.experiment.toml import to_toml
from fedrl.files import write_atomically
from fedrl.report.figures import save
from fedrl.report.html.section import Section, Table
from fedrl.report.html.words import filled
from fedrl.report.run_report import RunReport
from fedrl.report.table_report import TableReport
from fedrl.report.table_runs import AnyRun, TableRun
from fedrl.report.tables import write_rows
from fedrl.runs.metrics import RETURN
from fedrl.runs.run_directory import RunDirectory

Report = RunReport | TableReport


def report_of(runs: Sequence[AnyRun], metric: str = RETURN) -> Report:
    """The report of some runs of one kind; `metric` is what those of networks are compared by."""
    if not runs:
        raise FedrlError("name at least one run: fedrl report runs/NAME-HASH")
    tables = [run for run in runs if isinstance(run, TableRun)]
    networks = [run for run in runs if not isinstance(run, TableRun)]
    if tables and networks:
        raise FedrlError(
            f"{tables[0].path} is of tables and {networks[0].path} is not: report them one by one"
        )
    return TableReport(tables) if tables else RunReport(networks, metric)


def show(report: Report, folder: Path, console: Console) -> None:
    """Print it; write numbers and curves to `folder`."""
    for said in report.printed():
        # Lines are not folded: they have paths in them.
        console.print(said, highlight=False, soft_wrap=isinstance(said, str))
    folder.mkdir(parents=True, exist_ok=True)
    name = ("report" if len(report.runs) == 1 else "comparison") + report.suffix
    write_rows(folder / f"{name}.csv", *report.rows())
    figure = save(report.figure(), folder, f"{name}-curves")
    files = f"{figure}, {figure.with_suffix('.pdf')}"
    console.print(f"figures: {files}", highlight=False, soft_wrap=True)
    for run in report.runs:
        console.print(f"run: {run.path}", highlight=False, soft_wrap=True)


def write_page(report: Report, path: Path) -> None:
    """Write the page to a file."""
    if path.is_dir():
        raise FedrlError(
            f"{path} is a folder: name the file of the page, such as {path / 'report.html'}"
        )
    content = page(report).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as error:
        raise FedrlError(
            f"{path} cannot be written ({error.strerror}): name another file with --html"
        ) from None


def page(report: Report) -> str:
    """All of it as one page that needs no other file; the same runs give the same page."""
    runs = report.runs
    names = [run.path.name if len(runs) > 1 else "" for run in runs]
    sections = [
        Section("experiment", "The experiment", named=[*zip(names, report.told(), strict=True)]),
        *report.sections(),
        _settings(runs, report.again),
        _versions(runs),
    ]
    return filled(
        "page.html.j2",
        names=list(dict.fromkeys(run.experiment.name for run in runs)),
        runs=[(run.path.name, run.finished) for run in runs],
        metric=report.said,
        cards=report.cards(),
        sections=[section for section in sections if section is not None],
    )


def _settings(runs: Sequence[AnyRun], again: str) -> Section:
    """All settings, as files that can be run."""
    words = [f"Complete, as TOML: saved to a file, `{again}` begins the same again."]
    folded = [(run.path.name, to_toml(run.experiment)) for run in runs]
    return Section("settings", "Settings", words, folded=folded)


def _versions(runs: Sequence[AnyRun]) -> Section:
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
    machine = {name: about[name] for name in ("device", "devices", "machine") if name in about}
    return {str(name): str(value) for name, value in (found | machine).items()}
