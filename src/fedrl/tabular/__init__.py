"""Federated learning on tables: anybody's transition matrices in, policies and curves out."""

from fedrl.learners.sampled import SampledQAvg
from fedrl.learners.tabular import ProjPAvg, QAvg, SoftPAvg
from fedrl.tabular.api import ALGORITHMS, Result, imaginary, objective, run

__all__ = [
    "ALGORITHMS",
    "ProjPAvg",
    "QAvg",
    "Result",
    "SampledQAvg",
    "SoftPAvg",
    "imaginary",
    "objective",
    "run",
]
