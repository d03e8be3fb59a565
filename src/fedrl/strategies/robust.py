"""Aggregators that a minority of broken or hostile agents cannot lead astray.

A parameter that is not a number is as bad as an arbitrary one, and is treated as one: an extreme
value where values are ordered, an infinite distance where agents are compared.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp

from fedrl.arguments import Check, whole
from fedrl.counting import count
from fedrl.errors import FedrlError
from fedrl.strategies.aggregators import Aggregator, Communication, mean, squared_norms

Agents = Annotated[int, Check(partial(whole, smallest=0))]


@dataclass(frozen=True)
class Median(Aggregator):
    """The median of each parameter; between the good agents' as long as they are the majority."""

    name: ClassVar[str] = "median"

    def withstands(self, asked: int) -> int:
        return (asked - 1) // 2

    def least(self, asked: int) -> int:
        return asked - self.withstands(asked)

    def apply(self, stacked: Any, communication: Communication) -> Any:
        # All but the middle one or two are dropped.
        most = (_participants(stacked) - 1) // 2
        return jax.tree.map(partial(_trimmed_mean, trim=most), stacked)


@dataclass(frozen=True)
class TrimmedMean(Aggregator):
    """The average of each parameter without its smallest and largest values."""

    trim: Agents = 1
    """How many values are dropped at each end: as many bad or missing agents do no harm."""

    name: ClassVar[str] = "trimmed-mean"

    def check(self, agents: int, participants: int) -> None:
        if participants <= 2 * self.trim:
            raise FedrlError(
                f"aggregator.trim = {self.trim} drops {2 * self.trim} values of each parameter, "
                f"and a round has {count(participants, 'agents')}: lower it, or raise agents or "
                "participation"
            )

    def withstands(self, asked: int) -> int:
        return self.trim

    def least(self, asked: int) -> int:
        return min(2 * self.trim + 1, asked - self.trim)

    def of_fewer(self, present: int) -> "TrimmedMean":
        return replace(self, trim=min(self.trim, (present - 1) // 2))

    def apply(self, stacked: Any, communication: Communication) -> Any:
        participants = _participants(stacked)
        self.check(participants, participants)
        return jax.tree.map(partial(_trimmed_mean, trim=self.trim), stacked)


@dataclass(frozen=True)
class Krum(Aggregator):
    """The agent whose parameters are nearest to its neighbours', or the mean of a few such."""

    byzantine: Agents = 1
    """How many agents may be bad or missing."""
    keep: Annotated[int, Check(whole)] = 1
    """Of how many agents, those with the nearest neighbours, the average is taken."""

    name: ClassVar[str] = "krum"

    def check(self, agents: int, participants: int) -> None:
        needed = 2 * self.byzantine + 3
        if participants < needed:
            lower = "lower it, or " if self.byzantine else ""
            raise FedrlError(
                f"aggregator.byzantine = {self.byzantine} needs {needed} agents in a round, and "
                f"there are {participants}: {lower}raise agents or participation"
            )
        most = participants - self.byzantine - 2
        if self.keep > most:
            raise FedrlError(
                f"aggregator.keep must be at most {most}, which is n - f - 2 for the n = "
                f"{participants} agents that take part and f = {self.byzantine}, got {self.keep}"
            )

    def withstands(self, asked: int) -> int:
        return self.byzantine

    def least(self, asked: int) -> int:
        return min(2 * self.byzantine + 3, asked - self.byzantine)

    def of_fewer(self, present: int) -> "Krum":
        byzantine = min(self.byzantine, (present - 3) // 2)
        return replace(self, byzantine=byzantine, keep=min(self.keep, present - byzantine - 2))

    def apply(self, stacked: Any, communication: Communication) -> Any:
        participants = _participants(stacked)
        self.check(participants, participants)
        distances = jnp.sort(_squared_distances(stacked), 1)
        # Each row begins with the agent itself, whose distance adds nothing.
        scores = distances[:, : participants - self.byzantine - 1].sum(1)
        # A stable sort: of equal scores the first counts.
        best = jnp.argsort(scores)[: self.keep]
        chosen = jax.tree.map(lambda leaf: jnp.take(leaf, best, 0), stacked)
        if self.keep == 1:
            return jax.tree.map(lambda leaf: leaf[0], chosen)
        return mean(chosen)


def _participants(stacked: Any) -> int:
    count: int = jax.tree.leaves(stacked)[0].shape[0]
    return count


def _trimmed_mean(leaves: jax.Array, trim: int) -> jax.Array:
    ordered = jnp.sort(jnp.where(jnp.isnan(leaves), jnp.inf, leaves), 0)
    kept: jax.Array = mean(ordered[trim : ordered.shape[0] - trim])
    return kept


def _squared_distances(stacked: Any) -> jax.Array:
    """(n, n) between all agents; infinite to and from those with something that is no number."""
    flat = jax.tree.map(lambda leaf: jnp.asarray(leaf).reshape(leaf.shape[0], -1), stacked)

    def from_agent(agent: jax.Array) -> jax.Array:
        # From differences: what is left of a difference of large squares is noise.
        total = squared_norms(jax.tree.map(lambda leaf: leaf - leaf[agent], flat))
        return jnp.where(jnp.isnan(total), jnp.inf, total)

    # One agent after the other, so that never more than the differences to one are in memory.
    rows: jax.Array = jax.lax.map(from_agent, jnp.arange(_participants(stacked)))
    return rows
