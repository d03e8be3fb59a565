"""The experiment of a run directory, read without importing the module of its environments.

A run directory says what its environments look like. That is enough to report, to export and to
look at a run; the module is imported when an environment is needed.
"""

import json
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any

from fedrl import registry
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.experiment.toml import KIND, from_table, refuse_tables, table_of
from fedrl.families import ControlFamily, GymnasiumFamily, Varied
from fedrl.families.control_family import Shape, ShapedFamily


@dataclass(frozen=True)
class Looks(Shape):
    """Observations, actions and varied constants of a family."""

    name: str
    varied: tuple[tuple[str, float, float, str], ...]
    """(name, low, high, what it is) of every varied constant."""

    @classmethod
    def of(cls, family: ControlFamily) -> "Looks":
        low, high = family.action_bounds or ((), ())
        return cls(
            name=family.name,
            observation_size=int(family.observation_size),
            actions=int(family.actions),
            continuous=bool(family.continuous),
            first_action=int(family.first_action),
            low=tuple(float(x) for x in low),
            high=tuple(float(x) for x in high),
            varied=tuple((x.name, float(x.low), float(x.high), x.what) for x in family.varied),
        )


def _of(place: str) -> Any:
    """An attribute that a family has from one of its own."""
    return property(attrgetter(place))


@dataclass(frozen=True)
class StoredFamily(ShapedFamily):
    """A family of another package or module, as a run directory describes it.

    It can be shown, hashed and reported. Its own class is loaded when something is computed.
    """

    settings: str
    """The table of its settings, as JSON: what is compared."""
    looks: Looks
    as_table: dict[str, Any] = field(compare=False, repr=False)
    """The settings as they were read."""

    def __post_init__(self) -> None:
        """Leave everything as it was stored."""

    @cached_property
    def loaded(self) -> ControlFamily:
        """The family itself."""
        family: ControlFamily = from_table(ControlFamily, self.as_table, "family")
        return family

    name = _of("looks.name")
    shape = _of("looks")

    @property
    def varied(self) -> tuple[Varied, ...]:
        return tuple(Varied(*one) for one in self.looks.varied)

    observation_bounds = _of("loaded.observation_bounds")
    keeps_environments = _of("loaded.keeps_environments")
    steps_on_host = _of("loaded.steps_on_host")
    sample = _of("loaded.sample")
    check_theta = _of("loaded.check_theta")
    constants = _of("loaded.constants")
    reset = _of("loaded.reset")
    step = _of("loaded.step")
    begin = _of("loaded.begin")
    step_and_renew = _of("loaded.step_and_renew")
    observe = _of("loaded.observe")
    rejoin = _of("loaded.rejoin")
    draw = _of("loaded.draw")
    check = _of("loaded.check")
    raise_trouble = _of("loaded.raise_trouble")
    warning = _of("loaded.warning")


def stored_experiment(
    text: str, source: str, looks: Any, *, allow_code: bool = False
) -> Experiment:
    """An experiment from TOML, whose environments look like this.

    Without a description (`looks`), as in folders of older versions, the family is asked.
    `allow_code`: import modules that it names as `module:Class`.
    """
    refuse_tables(text, source)
    table = table_of(text, source, allow_code=allow_code)
    family = table.get("family")
    try:
        described = from_table(Looks, looks, "environments")
    except FedrlError:
        described = None
    if described is not None and isinstance(family, dict):
        table["family"] = _family(family, described)
    experiment: Experiment = from_table(Experiment, table, "", source)
    return experiment


def _family(table: dict[str, Any], looks: Looks) -> Any:
    """A family that needs no import; the table where loading the family imports nothing new."""
    kind, limit = table.get(KIND), table.get("time_limit")
    if kind == GymnasiumFamily.name and limit:
        family = from_table(ControlFamily, table, "family")
        if isinstance(family, GymnasiumFamily):
            family.take_shape(looks)
        return family
    if not isinstance(kind, str) or type(limit) is not int or registry.is_loaded("families", kind):
        return table
    return StoredFamily(time_limit=limit, settings=json.dumps(table), looks=looks, as_table=table)
