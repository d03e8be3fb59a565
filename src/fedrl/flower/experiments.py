"""Experiments of either kind, on networks or on tables."""

import tomllib
from pathlib import Path
from typing import get_args

from fedrl.counting import count
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.experiment.tables import TabularExperiment, TabularFamilies
from fedrl.experiment.toml import read_settings
from fedrl.federation.aggregate import Aggregator, Mean

AnyExperiment = Experiment | TabularExperiment


def read_experiment(path: Path) -> AnyExperiment:
    """An experiment of either kind; the family tells which."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise FedrlError(f"cannot read {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise FedrlError(f"{path} is not TOML: {error}") from None
    family = table.get("family")
    kind = family.get("kind") if isinstance(family, dict) else None
    tabular = kind in {family.name for family in get_args(TabularFamilies)}
    return read_settings(TabularExperiment, path) if tabular else read_settings(Experiment, path)


def refuse_quorum(experiment: AnyExperiment, quorum: int) -> None:
    """Refuse a quorum that a round cannot have, or with which its aggregator cannot do."""
    participants = experiment.agents
    aggregator: Aggregator = Mean()
    if isinstance(experiment, Experiment):
        participants, aggregator = experiment.participants, experiment.aggregator
    if quorum > participants:
        raise FedrlError(
            f"quorum = {quorum}, but a round has only {count(participants, 'agents')}: lower it"
        )
    least, bad = aggregator.least(participants), aggregator.withstands(participants)
    if 0 < quorum < least:
        raise FedrlError(
            f"quorum = {quorum}, but the {aggregator.name} aggregator needs {least} valid answers "
            f"of {participants}: raise it to that, or leave it at 0, more than half"
        )
    if quorum > participants - bad:
        raise FedrlError(
            f"quorum = {quorum}, but the {aggregator.name} aggregator is to withstand {bad} bad of "
            f"{participants} agents, which could then end the training: lower it to at most "
            f"{participants - bad}"
        )
