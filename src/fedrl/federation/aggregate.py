"""What the server does with the agents' parameters."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from fedrl import arguments
from fedrl.errors import FedrlError
from fedrl.registry import Group


class Communication(NamedTuple):
    """What a server knows when it aggregates, beside the parameters themselves."""

    before: Any
    """The model that the agents were sent, or None if each began with one of its own."""
    agents: jax.Array
    """(k,) whose parameters there are, ascending."""
    key: jax.Array
    """For aggregators that draw random numbers."""


@dataclass(frozen=True)
class Aggregator(ABC):
    """Settings of an aggregator, and the pure function that carries it out."""

    registered_in: ClassVar[Group] = "aggregators"
    name: ClassVar[str]
    compares_with_before: ClassVar[bool] = False
    """Whether it needs `Communication.before`: agents must then begin with one model."""

    def check(self, agents: int, participants: int) -> None:  # noqa: B027 (most need none)
        """Refuse numbers of agents that it cannot work with."""

    def promise(self, rounds: int) -> str:
        """What it guarantees after so many communications, in words; refuses what it cannot."""
        return ""

    @abstractmethod
    def apply(self, stacked: Any, communication: Communication) -> Any:
        """One tree from trees stacked along the first axis of each leaf, in agent order."""


@dataclass(frozen=True)
class Mean(Aggregator):
    """The average of the agents; the plain one, as in the paper, unless there are weights."""

    weights: tuple[float, ...] = ()
    """How much each agent counts, one positive number for each; equally unless given."""

    name: ClassVar[str] = "mean"

    def __post_init__(self) -> None:
        if not isinstance(self.weights, (tuple, list)):
            raise FedrlError(f"aggregator.weights must be a list of numbers, got {self.weights!r}")
        positive = "a positive number"
        weights = tuple(
            arguments.number("aggregator.weights", w, positive, lambda x: 0 < x < 1e30)
            for w in self.weights
        )
        arguments.settle(self, weights=weights)

    def check(self, agents: int, participants: int) -> None:
        if self.weights and len(self.weights) != agents:
            raise FedrlError(
                f"aggregator.weights has {len(self.weights)} numbers for {agents} agents: give one "
                "for each"
            )

    def apply(self, stacked: Any, communication: Communication) -> Any:
        if not self.weights:
            return mean(stacked)
        weights = jnp.asarray(self.weights)[communication.agents]
        return jax.tree.map(lambda leaves: _weighted(leaves, weights), stacked)


def mean(stacked: Any) -> Any:
    """The plain average of trees stacked along the first axis of each leaf."""
    return jax.tree.map(_mean, stacked)


def _mean(leaves: jax.Array) -> jax.Array:
    # Around the first agent: equal parameters then stay exactly as they are.
    first = leaves[0]
    return first + jnp.sum(leaves - first, 0) / leaves.shape[0]


def _weighted(leaves: jax.Array, weights: jax.Array) -> jax.Array:
    first = leaves[0]
    shares = (weights / weights.sum()).reshape(-1, *(1,) * first.ndim)
    return first + jnp.sum(shares.astype(leaves.dtype) * (leaves - first), 0)
