"""Sets of environments with known dynamics, equal rewards and different transitions."""

from fedrl.tabular.families.counterexamples import (
    Doors,
    ImaginaryIsBetter,
    QAvgTrap,
    StartMatters,
)
from fedrl.tabular.families.random_mdps import RandomMDPs
from fedrl.tabular.families.tabular_family import TabularFamily, Task
from fedrl.tabular.families.windy_cliffs import WindyCliffs

__all__ = [
    "FAMILIES",
    "Doors",
    "ImaginaryIsBetter",
    "QAvgTrap",
    "RandomMDPs",
    "StartMatters",
    "TabularFamily",
    "Task",
    "WindyCliffs",
]

FAMILIES: dict[str, type[TabularFamily]] = {
    family.name: family
    for family in (RandomMDPs, WindyCliffs, StartMatters, ImaginaryIsBetter, QAvgTrap, Doors)
}
"""Tabular families by name."""
