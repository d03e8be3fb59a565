"""Sets of environments with the same task and different dynamics."""

from fedrl.families.acrobots import Acrobots
from fedrl.families.cartpoles import CartPoles
from fedrl.families.control_family import ControlFamily, Varied
from fedrl.families.gymnasium_family import GymnasiumFamily, Uniform, gymnasium
from fedrl.families.robots import HalfCheetahs, Hoppers

__all__ = [
    "CONTROL_FAMILIES",
    "Acrobots",
    "CartPoles",
    "ControlFamily",
    "GymnasiumFamily",
    "HalfCheetahs",
    "Hoppers",
    "Uniform",
    "Varied",
    "gymnasium",
]

CONTROL_FAMILIES: dict[str, type[ControlFamily]] = {
    family.name: family for family in (CartPoles, Acrobots, HalfCheetahs, Hoppers)
}
"""Simulated families by name."""
