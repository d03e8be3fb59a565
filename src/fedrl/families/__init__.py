"""Sets of environments with the same states, actions and rewards and different dynamics."""

from fedrl.families.acrobots import Acrobots
from fedrl.families.cartpoles import CartPoles
from fedrl.families.control_family import ControlFamily, Varied
from fedrl.families.counterexamples import Doors, ImaginaryIsBetter, QAvgTrap, StartMatters
from fedrl.families.gymnasium_family import GymnasiumFamily, Uniform, gymnasium
from fedrl.families.random_mdps import RandomMDPs
from fedrl.families.robots import HalfCheetahs, Hoppers
from fedrl.families.tabular_family import TabularFamily, Task
from fedrl.families.windy_cliffs import WindyCliffs

__all__ = [
    "CONTROL_FAMILIES",
    "FAMILIES",
    "Acrobots",
    "CartPoles",
    "ControlFamily",
    "Doors",
    "GymnasiumFamily",
    "HalfCheetahs",
    "Hoppers",
    "ImaginaryIsBetter",
    "QAvgTrap",
    "RandomMDPs",
    "StartMatters",
    "TabularFamily",
    "Task",
    "Uniform",
    "Varied",
    "WindyCliffs",
    "gymnasium",
]

FAMILIES: dict[str, type[TabularFamily]] = {
    family.name: family
    for family in (RandomMDPs, WindyCliffs, StartMatters, ImaginaryIsBetter, QAvgTrap, Doors)
}
"""Tabular families by name."""

CONTROL_FAMILIES: dict[str, type[ControlFamily]] = {
    family.name: family for family in (CartPoles, Acrobots, HalfCheetahs, Hoppers)
}
"""Simulated families by name."""
