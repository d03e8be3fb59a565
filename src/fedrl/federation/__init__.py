"""Rounds: local updates, average, send back."""

from fedrl.federation.aggregate import Aggregator, Communication, Mean
from fedrl.federation.private import Private
from fedrl.federation.robust import Krum, Median, TrimmedMean

__all__ = ["Aggregator", "Communication", "Krum", "Mean", "Median", "Private", "TrimmedMean"]
