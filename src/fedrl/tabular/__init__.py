"""Federated learning on tables: anybody's transition matrices in, policies and curves out."""

from fedrl.tabular.api import ALGORITHMS, Result, imaginary, objective, run, run_drawn
from fedrl.tabular.families import (
    FAMILIES,
    Doors,
    ImaginaryIsBetter,
    QAvgTrap,
    RandomMDPs,
    StartMatters,
    TabularFamily,
    Task,
    WindyCliffs,
)
from fedrl.tabular.learners import ProjPAvg, QAvg, SampledQAvg, SoftPAvg, TabularLearner

__all__ = [
    "ALGORITHMS",
    "FAMILIES",
    "Doors",
    "ImaginaryIsBetter",
    "ProjPAvg",
    "QAvg",
    "QAvgTrap",
    "RandomMDPs",
    "Result",
    "SampledQAvg",
    "SoftPAvg",
    "StartMatters",
    "TabularFamily",
    "TabularLearner",
    "Task",
    "WindyCliffs",
    "imaginary",
    "objective",
    "run",
    "run_drawn",
]
