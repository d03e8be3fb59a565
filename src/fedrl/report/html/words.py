"""Texts of the page: what is written in templates, and an experiment in sentences."""

import re

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from fedrl.counting import count
from fedrl.network.record import missed_in_words, read_missed
from fedrl.report.arms import OWN
from fedrl.runs.metrics import HELD_OUT, TRAIN
from fedrl.runs.run import Run
from fedrl.runs.run_directory import START

PLACES = {
    TRAIN: "training environments",
    HELD_OUT: "held-out environments",
    OWN: "agents’ own environments",
}
"""Where models are evaluated, in words."""


def filled(template: str, **values: object) -> str:
    """A template with its values."""
    environment = Environment(
        loader=PackageLoader("fedrl.report.html", "."),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"code": _with_code, "count": count}
    return environment.get_template(template).render(values)


def _with_code(text: str) -> Markup:
    """What stands between backquotes, as code."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def told(run: Run) -> str:
    """A run, told to somebody who has not seen its settings; how far it is, if not finished."""
    experiment = run.experiment
    return on_one_line(
        "told.txt.j2",
        experiment=experiment,
        unit=experiment.unit,
        given=(run.path / START).exists(),
        missed=missed_in_words(read_missed(run.path), experiment.rounds),
        done=None if run.finished else int(run.metrics()["updates"].max()),
    )


def on_one_line(template: str, **values: object) -> str:
    """A template with its values, whose white space does not count."""
    return " ".join(filled(template, **values).split())
