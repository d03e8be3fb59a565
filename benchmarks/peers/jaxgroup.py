"""Single agents in JAX, many at once: no averages, as nobody has written them for these."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers.group import Array, Episode, Work, need


def jax_for(work: Work) -> Any:
    """JAX that leaves the other cores to the other processes, if there are any."""
    if work.processes > 1:
        os.environ["XLA_FLAGS"] = (
            "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        )
    return need("jax")


class Vectorised:
    """The agents of one process; `train` takes all their states through some steps."""

    def __init__(
        self,
        work: Work,
        states: Any,
        train: Callable[[Any, Any], Any],
        returns: Callable[[Any], Any],
    ) -> None:
        self.jax = need("jax")
        self.states = states
        self.train = self.jax.jit(train, donate_argnums=0)
        self.returns = returns
        """Of the states: the return of each agent's latest episode."""
        self.learning_starts = work.learning_starts
        self.steps = 0

    @property
    def updates(self) -> int:
        return max(0, self.steps - self.learning_starts)

    def advance(self, steps: int) -> None:
        self.states = self.jax.block_until_ready(self.train(self.states, np.int32(steps)))
        self.steps += steps

    def parameters(self) -> list[Array]:
        return []

    def load(self, means: list[Array]) -> None:
        pass

    def episodes(self) -> list[Episode]:
        return [(self.steps, float(value)) for value in np.ravel(self.returns(self.states))]
