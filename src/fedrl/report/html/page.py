"""The report as one page."""

from collections.abc import Sequence
from pathlib import Path

from fedrl.errors import FedrlError
from fedrl.files import write_atomically
from fedrl.report.html.section import Section
from fedrl.report.html.sections import settings_section, versions_section
from fedrl.report.html.words import filled
from fedrl.report.kinds import report_of
from fedrl.report.table_runs import AnyRun
from fedrl.runs.metrics import RETURN


def write_page(runs: Sequence[AnyRun], path: Path, metric: str = RETURN) -> None:
    """The report of some runs; the same runs give the same page."""
    if path.is_dir():
        raise FedrlError(
            f"{path} is a folder: name the file of the page, such as {path / 'report.html'}"
        )
    content = page(runs, metric).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as error:
        raise FedrlError(
            f"{path} cannot be written ({error.strerror}): name another file with --html"
        ) from None


def page(runs: Sequence[AnyRun], metric: str = RETURN) -> str:
    """The page as text."""
    report = report_of(runs, metric)
    names = [run.path.name if len(runs) > 1 else "" for run in runs]
    sections = [
        Section("experiment", "The experiment", named=[*zip(names, report.told(), strict=True)]),
        *report.sections(),
        settings_section(runs, report.again),
        versions_section(runs),
    ]
    return filled(
        "page.html.j2",
        names=list(dict.fromkeys(run.experiment.name for run in runs)),
        runs=[(run.path.name, run.finished) for run in runs],
        metric=report.said,
        cards=report.cards(),
        sections=[section for section in sections if section is not None],
    )
