"""Small problems on which statements about federated RL fail, or just hold."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.arguments import Check, whole, within
from fedrl.counting import count
from fedrl.errors import FedrlError
from fedrl.tabular.families.tabular_family import Floats, GraphFamily


@dataclass(frozen=True)
class Counterexample(GraphFamily):
    """A fixed set of environments: nothing about them is random."""

    gamma: float = 0.9
    """Discount factor."""

    def matrices(self) -> tuple[Floats, Floats]:
        """P (n, S, A, S) and R (S, A)."""
        raise NotImplementedError

    @property
    def agents(self) -> int:  # type: ignore[override]
        """Number of environments."""
        return len(self.matrices()[0])

    @property
    def states(self) -> int:
        return int(self.matrices()[1].shape[0])

    @property
    def actions(self) -> int:
        return int(self.matrices()[1].shape[1])

    def d0(self) -> Floats:
        """All examples start in the first state."""
        first: Floats = np.eye(self.states)[0]
        return first

    def rewards(self, key: jax.Array) -> jax.Array:
        return jnp.asarray(self.matrices()[1])

    def environments(self, key: jax.Array, n: int) -> jax.Array:
        if n != self.agents:
            have = count(self.agents, "environments")
            raise FedrlError(f"{self.name} has {have}, so agents cannot be {n}")
        return jnp.asarray(self.matrices()[0])

    def centre_and_noise(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
        raise FedrlError(f"{self.name} is a fixed example: it has no noisy copies, leave kappa out")


def _deterministic(next_states: list[list[list[int]]]) -> Floats:
    """P (n, S, A, S) from the state that each action leads to, [environment][state][action]."""
    table = np.array(next_states)
    P: Floats = np.eye(table.shape[1])[table]
    return P


@dataclass(frozen=True)
class StartMatters(Counterexample):
    """Theorem 1: the best policy from s0 is not the best from s1."""

    leak: Annotated[float, within("a probability in [0, 0.5)", lambda x: 0 <= x < 0.5)] = 0.0
    """Probability tau of ending up in the other state: then all states reach each other."""

    name: ClassVar[str] = "start-matters"

    def matrices(self) -> tuple[Floats, Floats]:
        # s0: a0 stays and pays 10, a1 pays 1000; s1: a0 stays, a1 costs 1.
        P = _deterministic([[[0, 1], [1, 1]], [[0, 0], [1, 0]]])
        return (1 - self.leak) * P + self.leak * (1 - P), np.array([[10.0, 1000.0], [0.0, -1.0]])


@dataclass(frozen=True)
class ImaginaryIsBetter(Counterexample):
    """Lemma 1 fails: V in the imaginary environment is above the mean of the real values.

    The two halves of a chain s0 -> s1 -> goal exist in different environments: nobody ever arrives,
    but the imaginary environment has both.
    """

    name: ClassVar[str] = "imaginary-is-better"

    def matrices(self) -> tuple[Floats, Floats]:
        s1, goal, sink = 1, 2, 3
        P = _deterministic([[[s1], [sink], [goal], [sink]], [[sink], [goal], [goal], [sink]]])
        return P, np.array([[0.0], [0.0], [1.0], [0.0]])


@dataclass(frozen=True)
class QAvgTrap(Counterexample):
    """QAvg prefers the chain that nobody can finish to a safe action worth `safe`."""

    safe: float = 2.0
    """What the safe action pays; the chain is worth 2.025 in the imaginary environment."""

    name: ClassVar[str] = "qavg-trap"

    def matrices(self) -> tuple[Floats, Floats]:
        sink = 3
        chain, R = ImaginaryIsBetter(self.gamma).matrices()
        P, rewards = np.repeat(chain, 2, axis=2), np.repeat(R, 2, axis=1)
        P[:, 0, 1] = np.eye(4)[sink]
        rewards[0, 1] = self.safe
        return P, rewards


@dataclass(frozen=True)
class Doors(Counterexample):
    """The best policy is stochastic: behind a different door in each environment is a reward of 1.

    In the corridor every action but the environment's own leads nowhere. A deterministic policy
    finds one door of n, a random one finds them all.
    """

    doors: Annotated[int, Check(partial(whole, smallest=2))] = 2
    """Environments, and actions."""

    name: ClassVar[str] = "doors"

    def matrices(self) -> tuple[Floats, Floats]:
        corridor, room = 0, 1
        own = np.eye(self.doors, dtype=int)
        P = _deterministic(
            [[np.where(door, room, corridor).tolist(), [room] * self.doors] for door in own]
        )
        return P, np.array([[0.0] * self.doors, [1.0] * self.doors])
