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

    successors: tuple[tuple[tuple[int, ...], ...], ...]
    """Of each state and action, in ascending order."""

    @property
    def states(self) -> int:
        return len(self.successors)

    @cached_property
    def _known(self) -> tuple[Integers, Booleans]:
        """Successors (S, A, K), filled up with state 0, and which of them are none."""
        most = max(len(one) for by_action in self.successors for one in by_action)
        shape = (self.states, len(self.successors[0]), most)
        next_states, missing = np.zeros(shape, np.int64), np.ones(shape, np.bool_)
        for s, by_action in enumerate(self.successors):
            for a, one in enumerate(by_action):
                next_states[s, a, : len(one)] = one
                missing[s, a, : len(one)] = False
        return next_states, missing

    @property
    def next_states(self) -> Integers:
        """The state that a number of P stands for, (S, A, K)."""
        return self._known[0]

    @property
    def missing(self) -> Booleans:
        """Whether a number of P stands for nothing and is 0, (S, A, K)."""
        return self._known[1]

    @cached_property
    def entries(self) -> Integers:
        """Row and column of everything in P^pi that is not always 0, (entries, 2)."""
        found = {(s, s) for s in range(self.states)}
        for s, by_action in enumerate(self.successors):
            found |= {(s, t) for one in by_action for t in one}
        return np.array(sorted(found))

    @cached_property
    def places(self) -> Integers:
        """Which entry has a row and a column, (S, S); one past the last where it is always 0."""
        places = np.full((self.states, self.states), len(self.entries))
        places[tuple(self.entries.T)] = np.arange(len(self.entries))
        return places

    @cached_property
    def contributions(self) -> tuple[Integers, Booleans]:
        """Where in P an action's part of an entry stands, and whether it has one, (entries, A)."""
        shape = (len(self.entries), len(self.successors[0]))
        slots, possible = np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
        for s, by_action in enumerate(self.successors):
            for a, one in enumerate(by_action):
                for k, t in enumerate(one):
                    entry = self.places[s, t]
                    slots[entry, a], possible[entry, a] = k, True
        return slots, possible

    @cached_property
    def bandwidth(self) -> int:
        """How far from the diagonal an entry may be."""
        return int(np.max(np.abs(self.entries[:, 0] - self.entries[:, 1])))


def sparsity_of(support: Booleans) -> Sparsity | None:
    """Of what may happen (S, A, S).

    None if an action may lead to more than half of the states, or there are so many of them that
    systems are solved by a library: what is built for it is dense anyway.
    """
    states, most = len(support), int(support.sum(axis=-1).max())
    if 2 * most > states or states > UNROLL_LIMIT:
        return None
    successors = tuple(
        tuple(tuple(np.flatnonzero(possible).tolist()) for possible in by_action)
        for by_action in support
    )
    return Sparsity(successors)
