"""Experiments of either kind, on networks or on tables."""

from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from fedrl.counting import count
from fedrl.engine.local_engine import LocalEngine
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.experiment.toml import about_tables, read_settings, table_of
from fedrl.files import read_text
from fedrl.strategies.aggregators import Aggregator, Mean
from fedrl.tabular.experiment import TabularExperiment

AnyExperiment = Experiment | TabularExperiment
# Flower sends longer arrays in parts of so many bytes.
PART = 5 * 2**20


class ModelSize(NamedTuple):
    """What a model takes on its way."""

    leaves: int
    bytes: int
    longest: int
    """Bytes of the largest leaf."""

    @property
    def requests(self) -> int:
        """More than it takes to send or fetch the model: two a leaf, one a part, and a few."""
        return 100 + 4 * (self.leaves + self.bytes // PART)

    @property
    def longest_request(self) -> int:
        """Bytes of the longest one: a part of a leaf, or the list of all parts."""
        return 2**16 + 2**8 * self.requests + min(self.longest, PART)


def model_size(experiment: AnyExperiment) -> ModelSize:
    """Of an agent's whole model, of which it may share less."""
    if isinstance(experiment, TabularExperiment):
        table = 8 * experiment.family.states * experiment.family.actions
        return ModelSize(1, table, table)
    params = jax.eval_shape(LocalEngine(experiment).first_params, np.int32(0))
    sizes = [x.size * x.dtype.itemsize // x.shape[0] for x in jax.tree.leaves(params)]
    return ModelSize(len(sizes), sum(sizes), max(sizes))


def read_experiment(path: Path, *, allow_code: bool = False) -> AnyExperiment:
    """An experiment of either kind; the family tells which.

    `allow_code`: import modules that it names as `module:Class`.
    """
    if about_tables(table_of(read_text(path), str(path))):
        return read_settings(TabularExperiment, path)
    return read_settings(Experiment, path, allow_code=allow_code)


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
