"""Strategies: corrections on the agent, aggregators, and optimizers on the server."""

from fedrl.strategies.aggregators import Aggregator, Communication, Mean
from fedrl.strategies.corrections import (
    Broadcast,
    ControlVariates,
    Correction,
    NoCorrection,
    Offer,
    Prox,
    Step,
)
from fedrl.strategies.private import Private
from fedrl.strategies.robust import Krum, Median, TrimmedMean
from fedrl.strategies.server_optimizers import Adam, Momentum, Replace, ServerOptimizer, Yogi
from fedrl.strategies.strategy import ServerState, Strategy

__all__ = [
    "Adam",
    "Aggregator",
    "Broadcast",
    "Communication",
    "ControlVariates",
    "Correction",
    "Krum",
    "Mean",
    "Median",
    "Momentum",
    "NoCorrection",
    "Offer",
    "Private",
    "Prox",
    "Replace",
    "ServerOptimizer",
    "ServerState",
    "Step",
    "Strategy",
    "TrimmedMean",
    "Yogi",
]
