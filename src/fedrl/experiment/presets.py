"""Experiments by name: where to start from. Ours are in `presets.toml`."""

import re
import tomllib
from dataclasses import replace
from importlib.resources import files
from math import ceil, log2
from typing import Any

from fedrl import registry
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.experiment.toml import KIND, from_table
from fedrl.learners.personalisation import Personal


def _read() -> dict[str, Experiment]:
    text = files("fedrl.experiment").joinpath("presets.toml").read_text(encoding="utf-8")
    tables: dict[str, dict[str, Any]] = {}
    for name, said in tomllib.loads(text).items():
        tables[name] = _like(tables.get(said.pop("of", ""), {}), {**said, "name": name})
    return {name: from_table(Experiment, table, name) for name, table in tables.items()}


def _like(base: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    """A table like `base` but for what is said; tables of another kind have nothing of it."""
    inner = {
        name: _like(base[name], value)
        for name, value in said.items()
        if isinstance(value, dict) and name in base and KIND not in value
    }
    return base | said | inner


PRESETS = _read()
CARTPOLES = PRESETS["cartpoles-dqnavg"]
ACROBOTS = PRESETS["acrobots-dqnavg"]
HALFCHEETAHS = PRESETS["halfcheetahs-ddpgavg"]
HOPPERS = PRESETS["hoppers-ddpgavg"]
WIRED_CARTPOLES = PRESETS["wiredcartpoles-dqnavg"]
WIRED_EMBEDDING = PRESETS["wiredcartpoles-perdqnavg"].learner.personal


def personalised(experiment: Experiment, personal: Personal | None = None) -> Experiment:
    """The same with private embeddings, as large as in the released experiments unless given."""
    if personal is None:
        personal = Personal(embedding=max(ceil(log2(experiment.agents)), 1))
    learner = replace(experiment.learner, personal=personal)
    algorithm = f"{type(learner).__name__.lower()}avg"
    name = re.sub(rf"\b{algorithm}\b", f"per{algorithm}", experiment.name)
    return replace(experiment, name=name, learner=learner)


def preset(name: str) -> Experiment:
    """The experiment of that name, ours or another package's."""
    if name in PRESETS:
        return PRESETS[name]
    found = registry.load("presets", name)
    experiment = found if isinstance(found, Experiment) or not callable(found) else found()
    if not isinstance(experiment, Experiment):
        raise FedrlError(
            f"preset {name!r} is {type(experiment).__name__}: it must be an Experiment, or a "
            "function without arguments that makes one"
        )
    return experiment
