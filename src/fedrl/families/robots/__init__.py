"""Families of robots that MuJoCo simulates; needs the extra `fedrl[mujoco]` once one is used."""

from fedrl.families.robots.half_cheetahs import HalfCheetahs
from fedrl.families.robots.hoppers import Hoppers
from fedrl.families.robots.robot_family import RobotFamily

__all__ = ["HalfCheetahs", "Hoppers", "RobotFamily"]
