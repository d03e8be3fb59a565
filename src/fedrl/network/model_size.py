"""How much a model takes on its way between the server and an agent."""

from operator import attrgetter
from typing import NamedTuple

import jax

from fedrl.network.experiments import AnyExperiment
from fedrl.network.kinds import server_of
from fedrl.strategies.corrections import Broadcast, Offer

# Flower sends longer arrays in parts of so many bytes.
PART = 5 * 2**20


class ModelSize(NamedTuple):
    """What a message with a model has in it, with what a correction adds."""

    leaves: int
    bytes: int
    longest: int
    """Bytes of the largest leaf."""

    @property
    def requests(self) -> int:
        """More than it takes to send or fetch the model: two a leaf, one a part, and a few."""
        return 100 + 4 * (self.leaves + self.bytes // PART)

    @property
    def longest_request(self) -> int:
        """Bytes of the longest one: a part of a leaf, or the list of all parts."""
        return 2**16 + 2**8 * self.requests + min(self.longest, PART)


def model_size(experiment: AnyExperiment) -> ModelSize:
    """Of the larger one of what is sent and what is offered."""
    server = server_of(experiment)
    return max(_size(server.sent), _size(server.offered), key=attrgetter("bytes"))


def _size(content: Broadcast | Offer) -> ModelSize:
    sizes = [leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(content)]
    return ModelSize(len(sizes), sum(sizes), max(sizes))
