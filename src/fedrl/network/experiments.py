"""What can be federated: experiments on networks, and those on tables."""

from pathlib import Path

from fedrl.counting import count
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.experiment.toml import about_tables, read_settings, table_of
from fedrl.files import read_text
from fedrl.tabular.experiment import TabularExperiment

AnyExperiment = Experiment | TabularExperiment


def read_experiment(path: Path, *, allow_code: bool = False) -> AnyExperiment:
    """An experiment of either kind; the family tells which.

    `allow_code`: import modules that it names as `module:Class`.
    """
    if about_tables(table_of(read_text(path), str(path))):
        return read_settings(TabularExperiment, path)
    return read_settings(Experiment, path, allow_code=allow_code)


def refuse_quorum(experiment: AnyExperiment, quorum: int) -> None:
    """Refuse a quorum that a round cannot have, or with which its aggregator cannot do."""
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
