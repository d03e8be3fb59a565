"""What the server does with the agents' parameters."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.arguments import Positives, check_fields, one_for_each
from fedrl.registry import Group


class Communication(NamedTuple):
    """What a server knows when it aggregates, beside the parameters themselves."""

    before: Any
    """The model that the agents were sent, or None if each began with one of its own."""
    agents: jax.Array
    """(k,) whose parameters there are, ascending."""
    key: jax.Array
    """For aggregators that draw random numbers. It follows from the experiment's seed, which all
    agents know: what is to be hidden from them needs other randomness (`Aggregator.at_server`)."""


@dataclass(frozen=True)
class Aggregator(ABC):
    """Settings of an aggregator, and the pure function that carries it out."""

    registered_in: ClassVar[Group] = "aggregators"
    name: ClassVar[str]
    linear: ClassVar[bool] = False
    """Whether it is a weighted sum of the offers: all it needs can then be summed on the way."""
    compares_with_before: ClassVar[bool] = False
    """Whether it needs `Communication.before`: agents must then begin with one model."""

    def __post_init__(self) -> None:
        check_fields(self, "aggregator")

    def check(self, agents: int, participants: int) -> None:  # noqa: B027 (most need none)
        """Refuse numbers of agents that it cannot work with."""

    def promise(self, rounds: int) -> str:
        """What it guarantees after so many communications, in words; refuses what it cannot."""
        return ""

    def withstands(self, asked: int) -> int:
        """How many of `asked` agents may be bad, or send nothing valid, without doing harm."""
        return 0

    def least(self, asked: int) -> int:
        """How many of `asked` agents must have sent something valid for a new model."""
        return 1

    def of_fewer(self, present: int) -> "Aggregator":
        """The settings for a round in which only `present` agents have sent something valid.

        The others count as bad ones, of which there are so many less among those present.
        """
        return self

    def share(self, present: jax.Array, agents: int) -> float | jax.Array:
        """How much of all `agents` those `present` count."""
        return present.size / agents

    def at_server(self, stacked: Any, communication: Communication, asked: int) -> Any:
        """What a server over a network makes of the valid ones of `asked` answers."""
        present = len(jax.tree.leaves(stacked)[0])
        return _compiled(self.of_fewer(present))(stacked, communication)

    @abstractmethod
    def apply(self, stacked: Any, communication: Communication) -> Any:
        """One tree from trees stacked along the first axis of each leaf, in agent order."""

    def across(self, axis: str, stacked: Any, communication: Communication) -> Any:
        """The same where each device along a mesh's axis has an equal part of the agents.

        Every device gets everybody's parameters and applies the aggregator to them.
        """
        return self.apply(gathered(axis, stacked), communication)


@dataclass(frozen=True)
class Mean(Aggregator):
    """The average of the agents; the plain one, as in the paper, unless there are weights."""

    weights: Positives = ()
    """How much each agent counts, one positive number for each; equally unless given."""

    name: ClassVar[str] = "mean"
    linear: ClassVar[bool] = True

    def check(self, agents: int, participants: int) -> None:
        one_for_each("aggregator.weights", self.weights, agents)

    def apply(self, stacked: Any, communication: Communication) -> Any:
        if not self.weights:
            return mean(stacked)
        return _weighted_mean(stacked, jnp.asarray(self.weights)[communication.agents])

    def share(self, present: jax.Array, agents: int) -> float | jax.Array:
        weights = jnp.asarray(self.weights)
        return weights[present].sum() / weights.sum() if self.weights else present.size / agents

    def across(self, axis: str, stacked: Any, communication: Communication) -> Any:
        """Each device averages its agents, and the averages go around."""
        if not self.weights:
            return mean_across(axis, stacked)
        weights = jnp.asarray(self.weights).reshape(jax.lax.axis_size(axis), -1)
        here = _weighted_mean(stacked, weights[jax.lax.axis_index(axis)])
        return _weighted_mean(_one_from_each(axis, here), weights.sum(1))


@cache
def _compiled(aggregator: Aggregator) -> Callable[[Any, Communication], Any]:
    return jax.jit(aggregator.apply)


def mean(stacked: Any) -> Any:
    """The plain average of trees stacked along the first axis of each leaf."""

    def of_leaves(leaves: jax.Array) -> jax.Array:
        # Around the first agent: equal parameters then stay exactly as they are.
        first = leaves[0]
        return first + jnp.sum(leaves - first, 0) / leaves.shape[0]

    return jax.tree.map(of_leaves, stacked)


def mean_across(axis: str, stacked: Any) -> Any:
    """The same where each device along a mesh's axis has an equal part of the trees.

    In a fixed order, whatever the devices' own sums would do; one average each is sent.
    """
    return mean(_one_from_each(axis, mean(stacked)))


def gathered(axis: str, stacked: Any) -> Any:
    """Everybody's trees, in order, on every device along a mesh's axis."""
    parts = _one_from_each(axis, stacked)
    # Not -1: leaves may be empty.
    return jax.tree.map(
        lambda leaf: leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:]), parts
    )


def squared_norms(stacked: Any) -> jax.Array:
    """(k,) of trees stacked along the first axis of each leaf, all their numbers together."""
    squares = [
        jnp.square(leaf.reshape(leaf.shape[0], -1)).sum(1) for leaf in jax.tree.leaves(stacked)
    ]
    return jnp.sum(jnp.stack(squares), 0)


def _one_from_each(axis: str, tree: Any) -> Any:
    """Every device's tree, stacked, in one collective for all leaves of a kind."""
    leaves, structure = jax.tree.flatten(tree)
    found = list(leaves)
    for dtype in dict.fromkeys(leaf.dtype for leaf in leaves):
        places = [i for i, leaf in enumerate(leaves) if leaf.dtype == dtype]
        flat = jnp.concatenate([leaves[i].reshape(-1) for i in places])
        everybody = jax.lax.all_gather(flat, axis)
        ends = np.cumsum([leaves[i].size for i in places])[:-1]
        for i, part in zip(places, jnp.split(everybody, ends, axis=1), strict=True):
            found[i] = part.reshape(len(part), *leaves[i].shape)
    return jax.tree.unflatten(structure, found)


def _weighted_mean(stacked: Any, weights: jax.Array) -> Any:
    def weighted(leaves: jax.Array) -> jax.Array:
        first = leaves[0]
        shares = (weights / weights.sum()).reshape(-1, *(1,) * first.ndim)
        return first + jnp.sum(shares.astype(leaves.dtype) * (leaves - first), 0)

    return jax.tree.map(weighted, stacked)
