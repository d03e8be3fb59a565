"""An average from which nobody can tell whether one agent took part: user-level privacy."""

from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fedrl import arguments
from fedrl.errors import FedrlError
from fedrl.federation.aggregate import Aggregator, Communication

MISSING = (
    "the privacy loss needs dp-accounting, which is not installed: pip install 'fedrl[privacy]'"
)


@dataclass(frozen=True)
class Private(Aggregator):
    """The average of clipped updates, with noise that hides each of them."""

    clip: float = 1.0
    """Largest L2 norm of an agent's update, all parameters together; longer ones are shortened."""
    noise: float = 1.0
    """Deviation of the noise on the sum of the updates, in multiples of `clip`; 0 for none."""
    delta: float = 1e-5
    """The probability with which the guarantee may fail; well below one in the number of agents."""

    name: ClassVar[str] = "private"
    compares_with_before: ClassVar[bool] = True

    def __post_init__(self) -> None:
        number = arguments.number
        arguments.settle(
            self,
            # Squares of much smaller or larger ones are lost in 32 bits, and with them the limit.
            clip=number(
                "aggregator.clip",
                self.clip,
                "a number from 1e-12 to 1e12",
                lambda x: 1e-12 <= x <= 1e12,
            ),
            noise=number(
                "aggregator.noise",
                self.noise,
                "0 or a number from 1e-6 to 1e6",
                lambda x: x == 0 or 1e-6 <= x <= 1e6,
            ),
            delta=number(
                "aggregator.delta",
                self.delta,
                "a probability between 0 and 1",
                lambda x: 0 < x < 1,
            ),
        )

    def check(self, agents: int, participants: int) -> None:
        """Any number will do, though few agents drown in the noise."""

    def apply(self, stacked: Any, communication: Communication) -> Any:
        before = communication.before
        if before is None:
            raise FedrlError(
                "aggregator 'private' clips what agents have changed in one common model: it needs "
                'initialisation = "shared"'
            )
        updates = jax.tree.map(jnp.subtract, stacked, before)
        leaves, structure = jax.tree.flatten(clipped(updates, self.clip))
        sums = [
            leaf.sum(0) + self._noise(jax.random.fold_in(communication.key, i), leaf)
            for i, leaf in enumerate(leaves)
        ]
        total = jax.tree.unflatten(structure, sums)
        count = leaves[0].shape[0]
        return jax.tree.map(lambda sent, added: sent + added / count, before, total)

    def _noise(self, key: jax.Array, leaves: jax.Array) -> jax.Array | float:
        if not self.noise:
            return 0.0
        return self.noise * self.clip * jax.random.normal(key, leaves.shape[1:], leaves.dtype)

    def promise(self, rounds: int) -> str:
        return f"epsilon {self.epsilon(rounds):.3g} at delta {self.delta:g}"

    def epsilon(self, rounds: int) -> float:
        """What (epsilon, delta)-differential privacy each agent has after so many communications.

        Agents are taken to be part of all of them: with fewer, it is an upper bound.
        """
        rounds = arguments.whole("rounds", rounds, smallest=0)
        if not rounds:
            return 0.0
        if not self.noise:
            return inf
        try:
            import dp_accounting
        except ImportError:
            raise FedrlError(MISSING) from None
        accountant = dp_accounting.rdp.RdpAccountant(
            neighboring_relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
        )
        accountant.compose(dp_accounting.GaussianDpEvent(self.noise), rounds)
        return float(accountant.get_epsilon(self.delta))


def clipped(updates: Any, clip: float) -> Any:
    """Updates, stacked along the first axis of each leaf, none of them longer than `clip`.

    One whose length is no number counts as none: nothing that an agent sends may break the limit.
    """
    squares = [
        jnp.square(leaf.reshape(leaf.shape[0], -1)).sum(1) for leaf in jax.tree.leaves(updates)
    ]
    norms = jnp.sqrt(jnp.sum(jnp.stack(squares), 0))
    usable = jnp.isfinite(norms)
    # A norm of zero gives a factor of one.
    factors = jnp.minimum(1.0, clip / norms)

    def shortened(leaves: jax.Array) -> jax.Array:
        of_agents = (-1, *(1,) * (leaves.ndim - 1))
        short = leaves * factors.reshape(of_agents).astype(leaves.dtype)
        return jnp.where(usable.reshape(of_agents), short, 0)

    return jax.tree.map(shortened, updates)
