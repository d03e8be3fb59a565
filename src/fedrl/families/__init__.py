"""Sets of environments with the same states, actions and rewards and different dynamics."""

from fedrl.families.counterexamples import Doors, ImaginaryIsBetter, QAvgTrap, StartMatters
from fedrl.families.random_mdps import RandomMDPs
from fedrl.families.tabular_family import TabularFamily, Task
from fedrl.families.windy_cliffs import WindyCliffs

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
"""Families by name."""
