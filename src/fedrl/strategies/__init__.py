"""Rounds: local updates, average, send back."""

from fedrl.strategies.aggregators import Aggregator, Communication, Mean
from fedrl.strategies.private import Private
from fedrl.strategies.robust import Krum, Median, TrimmedMean

__all__ = ["Aggregator", "Communication", "Krum", "Mean", "Median", "Private", "TrimmedMean"]
