"""Experiments of either kind, on networks or on tables."""

from pathlib import Path
from typing import get_args

from fedrl.experiment.files import read_text
from fedrl.experiment.settings import Experiment
from fedrl.experiment.tables import TabularExperiment, TabularFamilies
from fedrl.experiment.toml import read_settings, table_of

AnyExperiment = Experiment | TabularExperiment


def read_experiment(path: Path, *, allow_code: bool = False) -> AnyExperiment:
    """An experiment of either kind; the family tells which.

    `allow_code`: import modules that it names as `module:Class`.
    """
    family = table_of(read_text(path), str(path)).get("family")
    kind = family.get("kind") if isinstance(family, dict) else None
    if kind in [family.name for family in get_args(TabularFamilies)]:
        return read_settings(TabularExperiment, path)
    return read_settings(Experiment, path, allow_code=allow_code)
