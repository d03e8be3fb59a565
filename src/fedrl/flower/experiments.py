"""Experiments of either kind, on networks or on tables."""

import tomllib
from pathlib import Path
from typing import get_args

from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.experiment.tables import TabularExperiment, TabularFamilies
from fedrl.experiment.toml import read_settings

AnyExperiment = Experiment | TabularExperiment


def read_experiment(path: Path) -> AnyExperiment:
    """An experiment of either kind; the family tells which."""
    if is_tabular(path):
        return read_settings(TabularExperiment, path)
    return read_settings(Experiment, path)


def is_tabular(path: Path) -> bool:
    """Whether a file has an experiment on tables."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise FedrlError(f"cannot read {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise FedrlError(f"{path} is not TOML: {error}") from None
    family = table.get("family")
    kind = family.get("kind") if isinstance(family, dict) else None
    return kind in {family.name for family in get_args(TabularFamilies)}
