"""Which transitions are possible at all. What is known to be zero is not stored nor computed."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedrl.tabular.exact.elimination import UNROLL_LIMIT

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True)
class Sparsity:
    """Where each action may lead; hashable, because programs are compiled for it.

    With K the largest number of successors of a state and action, P is stored as (S, A, K, lanes).
    P^pi, the transition matrix of a policy, is stored as its `entries`, the diagonal included.
    """

    shape: tuple[int, int, int]
    """(S, A, S)."""
    possible: bytes
    """Which states an action may lead to: booleans of that shape."""

    @property
    def states(self) -> int:
        return self.shape[0]

    @cached_property
    def support(self) -> Booleans:
        return np.frombuffer(self.possible, np.bool_).reshape(self.shape)

    @cached_property
    def missing(self) -> Booleans:
        """Whether a number of P stands for nothing and is 0, (S, A, K)."""
        successors = self.support.sum(axis=-1, keepdims=True)
        missing: Booleans = np.arange(successors.max()) >= successors
        return missing

    @cached_property
    def next_states(self) -> Integers:
        """The state that a number of P stands for, ascending and then 0, (S, A, K)."""
        possible_first = np.argsort(~self.support, axis=-1, stable=True)
        return np.where(self.missing, 0, possible_first[..., : self.missing.shape[-1]])

    @cached_property
    def entries(self) -> Integers:
        """Row and column of everything in P^pi that is not always 0, (entries, 2)."""
        return np.argwhere(self.support.any(axis=1) | np.eye(self.states, dtype=np.bool_))

    @cached_property
    def places(self) -> Integers:
        """Which entry has a row and a column, (S, S); one past the last where it is always 0."""
        places = np.full((self.states, self.states), len(self.entries))
        places[tuple(self.entries.T)] = np.arange(len(self.entries))
        return places

    @cached_property
    def contributions(self) -> tuple[Integers, Booleans]:
        """Where in P an action's part of an entry stands, and whether it has one, (entries, A)."""
        rows, columns = self.entries.T
        possible = self.support[rows, :, columns]
        slots = np.cumsum(self.support, axis=-1)[rows, :, columns] - 1
        return np.where(possible, slots, 0), possible

    @cached_property
    def bandwidth(self) -> int:
        """How far from the diagonal an entry may be."""
        return int(np.max(np.abs(self.entries[:, 0] - self.entries[:, 1])))


def sparsity_of(support: Booleans) -> Sparsity | None:
    """Of what may happen (S, A, S).

    None if an action may lead to more than half of the states, or there are so many of them that
    systems are solved by a library: what is built for it is dense anyway.
    """
    states, actions, _ = support.shape
    if 2 * support.sum(axis=-1).max() > states or states > UNROLL_LIMIT:
        return None
    return Sparsity((states, actions, states), support.tobytes())
