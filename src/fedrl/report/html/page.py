"""Writes the page."""

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from fedrl.errors import FedrlError
from fedrl.files import write_atomically
from fedrl.report.html import sections
from fedrl.report.html.costs import costs_section
from fedrl.report.html.embeddings import embeddings_section
from fedrl.report.html.environments import baseline_matrices, returns_against_theta
from fedrl.report.html.section import Card, Section, style_of
from fedrl.report.side_by_side import side_by_side
from fedrl.report.table_runs import AnyRun
from fedrl.runs.metrics import RETURN
from fedrl.runs.run import Run


def write_page(runs: Sequence[Run], path: Path, metric: str = RETURN) -> None:
    """The report of some runs; the same runs give the same page."""
    refuse(path)
    write(path, page(runs, metric))


def write(path: Path, text: str) -> None:
    """Write a page."""
    content = text.encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as error:
        raise FedrlError(
            f"{path} cannot be written ({error.strerror}): name another file with --html"
        ) from None


def refuse(path: Path) -> None:
    """Refuse what cannot be a page, before anything is done."""
    if path.is_dir():
        raise FedrlError(
            f"{path} is a folder: name the file of the page, such as {path / 'report.html'}"
        )


def page(runs: Sequence[Run], metric: str = RETURN) -> str:
    """The page as text."""
    if not runs:
        raise FedrlError("name at least one run: fedrl report runs/NAME-HASH --html report.html")
    arms, splits = side_by_side(runs, metric)
    said = metric.replace("_", " ")
    found = [
        sections.experiment_section(runs),
        sections.curves_section(arms, splits, said),
        sections.results_section(arms, splits, said),
        returns_against_theta(arms, said),
        baseline_matrices(arms, said),
        embeddings_section(runs),
        costs_section(runs, {arm.folder: style_of(i) for i, arm in reversed([*enumerate(arms)])}),
        sections.settings_section(runs),
        sections.versions_section(runs),
    ]
    shown = [section for section in found if section is not None]
    return rendered(runs, said, sections.cards(arms, splits), shown)


def rendered(
    runs: Sequence[AnyRun], metric: str, cards: Sequence[Card], sections: Sequence[Section]
) -> str:
    """A page of sections about runs."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["code"] = _with_code
    return environment.from_string(_part("page.html.j2")).render(
        names=list(dict.fromkeys(run.experiment.name for run in runs)),
        runs=[(run.path.name, run.finished) for run in runs],
        metric=metric,
        cards=cards,
        sections=sections,
        style=Markup(_part("style.css")),
        script=Markup(_part("hover.js")),
    )


def _with_code(text: str) -> Markup:
    """What stands between backquotes, as code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")
