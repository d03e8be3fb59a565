"""Where the federated problems of a run come from: given as arrays, or drawn from a family."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedrl.tabular.exact.sparsity import Booleans, Sparsity, sparsity_of
from fedrl.tabular.families import TabularFamily

Floats = NDArray[np.float64]
Array = Floats | jax.Array


class Problems(NamedTuple):
    """One federated problem per replicate, replicates first."""

    P: Array  # (replicates, n, S, A, S)
    R: Array  # (replicates, S, A)
    d0: Array  # (replicates, S)
    held_out: Array | None = None  # (replicates, m, S, A, S)
    init: Array | None = None  # (replicates, S, A); None: the learner's own draw


@dataclass(frozen=True)
class GivenProblems:
    """Anybody's matrices, to be had a block at a time."""

    arrays: Problems
    """All replicates."""
    support: Booleans | None = None
    """Which transitions are possible, (S, A, S); None: all of them."""

    first: ClassVar[int] = 0

    @property
    def replicates(self) -> int:
        return self.arrays.P.shape[0]

    @property
    def size(self) -> tuple[int, int, int]:
        """Agents, states and actions."""
        agents, states, actions = self.arrays.P.shape[1:4]
        return agents, states, actions

    @property
    def sparsity(self) -> Sparsity | None:
        """What is possible in the environments; None if that is not known, or too much."""
        return None if self.support is None else sparsity_of(self.support)

    def block(self, start: int, count: int) -> Problems:
        """Exactly `count` problems from number `start` on; past the last, that one again."""
        rows = np.minimum(np.arange(start, start + count), self.replicates - 1)
        block: Problems = jax.tree.map(lambda x: np.asarray(x)[rows], self.arrays)
        return block


@dataclass(frozen=True)
class DrawnProblems:
    """Replicates `first`, `first` + 1, ... of a family."""

    family: TabularFamily
    """Where the environments come from."""
    agents: int
    """Environments in a problem."""
    kappa: float | None
    """Heterogeneity of noisy copies, evaluated in their centre; None: independent environments."""
    seed: int
    """Root of all random numbers."""
    first: int
    """Number of the first replicate."""
    replicates: int
    """How many there are."""

    @property
    def size(self) -> tuple[int, int, int]:
        return self.agents, self.family.states, self.family.actions

    @property
    def sparsity(self) -> Sparsity | None:
        return sparsity_of(self.family.support())

    def block(self, start: int, count: int) -> Problems:
        numbers = jnp.arange(start, start + count, dtype=jnp.uint32) + self.first
        kappa = None if self.kappa is None else jnp.float64(self.kappa)
        drawn = self.family.draws(self.seed, numbers, self.agents, kappa, 0)
        d0 = jnp.broadcast_to(self.family.d0(), (count, self.family.states))
        return Problems(drawn.P, drawn.R, d0, held_out=drawn.centre)


Source = GivenProblems | DrawnProblems
"""Both number their problems from 0 on; number i is replicate `first` + i of the experiment."""
