"""Differential privacy of each agent: clipped updates, and noise on their sum.

A server over a network adds integers to integers (`Private.at_server`), whose probabilities are
those of the guarantee. The floats of `Private.apply` have gaps that tell the sum apart from the
noise, and their seed is public: within one process the same mechanism is only simulated.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import floor, inf, log2
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.arguments import whole, within
from fedrl.errors import FedrlError
from fedrl.strategies.aggregators import Aggregator, Communication, squared_norms
from fedrl.strategies.discrete_gaussian import MOST_BITS, Integers, discrete_gaussian

Floats = np.ndarray[Any, np.dtype[np.float64]]

MISSING = (
    "the privacy loss needs dp-accounting, which is not installed: pip install 'fedrl[privacy]'"
)
# Bits of the integer norm of an update: squares and sums stay well within 64.
NORM_BITS = 30
# Updates are clipped by so much more than necessary, relatively, that rounding cannot matter.
MARGIN = 1e-9

# Squares of much smaller or larger ones are lost in 32 bits, and with them the limit.
Clip = Annotated[float, within("a number from 1e-12 to 1e12", lambda x: 1e-12 <= x <= 1e12)]
Noise = Annotated[
    float, within("0 or a number from 1e-6 to 1e6", lambda x: x == 0 or 1e-6 <= x <= 1e6)
]
Delta = Annotated[float, within("a probability between 0 and 1", lambda x: 0 < x < 1)]


@dataclass(frozen=True)
class Private(Aggregator):
    """The average of clipped updates, with noise that hides each of them."""

    clip: Clip = 1.0
    """Largest L2 norm of an agent's update, all parameters together; longer ones are shortened."""
    noise: Noise = 1.0
    """Deviation of the noise on the sum of the updates, in multiples of `clip`; 0 for none."""
    delta: Delta = 1e-5
    """The probability with which the guarantee may fail; well below one in the number of agents."""

    name: ClassVar[str] = "private"
    compares_with_before: ClassVar[bool] = True

    def apply(self, stacked: Any, communication: Communication) -> Any:
        before = communication.before
        if before is None:
            raise FedrlError(
                "aggregator 'private' clips what agents have changed in one common model: it needs "
                'initialisation = "shared"'
            )
        updates = jax.tree.map(jnp.subtract, stacked, before)
        leaves, structure = jax.tree.flatten(clipped(updates, self.clip))

        def noise(number: int, leaf: jax.Array) -> jax.Array | float:
            if not self.noise:
                return 0.0
            key = jax.random.fold_in(communication.key, number)
            return self.noise * self.clip * jax.random.normal(key, leaf.shape[1:], leaf.dtype)

        sums = [leaf.sum(0) + noise(i, leaf) for i, leaf in enumerate(leaves)]
        total = jax.tree.unflatten(structure, sums)
        count = leaves[0].shape[0]
        return jax.tree.map(lambda sent, added: sent + added / count, before, total)

    def at_server(self, stacked: Any, communication: Communication, asked: int) -> Any:
        """The same with exact noise from the operating system, on updates in whole grid steps.

        The sum is divided by the number of agents that were asked: it does not depend on what they
        sent.
        """
        if not self.noise or communication.before is None:
            return super().at_server(stacked, communication, asked)
        before, structure = jax.tree.flatten(jax.device_get(communication.before))
        agents = zip(*jax.tree.leaves(jax.device_get(stacked)), strict=True)
        total = discrete_gaussian(sum(leaf.size for leaf in before), self.noise_bits)
        for agent in agents:
            with np.errstate(invalid="ignore"):
                update = _flat(agent) - _flat(before)
            total += self.on_grid(update)
        change = total * (self.step / asked)
        parts = np.split(change, np.cumsum([leaf.size for leaf in before])[:-1])
        after = [
            (leaf + part.reshape(leaf.shape)).astype(leaf.dtype)
            for leaf, part in zip(before, parts, strict=True)
        ]
        return jax.tree.unflatten(structure, after)

    @property
    def noise_bits(self) -> int:
        """The deviation of the noise is 2 ** noise_bits steps of the grid."""
        return min(NORM_BITS + floor(log2(self.noise)), MOST_BITS)

    @property
    def step(self) -> float:
        """The distance of neighbours in the grid on which updates are summed."""
        return self.noise * self.clip / (1 << self.noise_bits)

    @property
    def sensitivity(self) -> int:
        """The largest L2 norm of an agent's update, in steps: `clip`, rounded down."""
        return floor((1 << self.noise_bits) / Fraction(self.noise))

    def on_grid(self, update: Floats) -> Integers:
        """An update clipped and rounded towards zero to steps, at most `sensitivity` of them long.

        Rounding towards zero makes no vector longer. The length is checked in integers; what is
        too long in spite of the clipping, or not finite, counts as no update.
        """
        length, longest = float(np.linalg.norm(update)) / self.step, self.sensitivity
        if not np.isfinite(length):
            return np.zeros(update.shape, np.int64)
        shrunk = min(1.0, longest * (1 - MARGIN) / length) if length else 1.0
        steps = np.trunc(update * (shrunk / self.step))
        # In floats the sum of squares is known to well below 1 %: enough to see that in 64 bits it
        # does not overflow.
        if np.dot(steps, steps) > 2.0**62:
            return np.zeros(update.shape, np.int64)
        whole = steps.astype(np.int64)
        return whole if int(np.dot(whole, whole)) <= longest**2 else np.zeros_like(whole)

    def promise(self, rounds: int) -> str:
        return (
            f"over a network epsilon {self.epsilon(rounds):.3g} at delta {self.delta:g}, in one "
            "process the noise is simulated and hides nothing"
        )

    def epsilon(self, rounds: int) -> float:
        """What (epsilon, delta)-differential privacy each agent has after so many communications.

        Over a network. Agents are taken to be part of all of them: with fewer, it is an upper
        bound. One communication is rho-zCDP with rho = (sensitivity / deviation) ** 2 / 2 (Canonne,
        Kamath and Steinke, 2020, theorem 14).
        """
        rounds = whole("rounds", rounds, smallest=0)
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
        # By definition of the grid not above 0.5 / noise ** 2.
        rho = (self.sensitivity / (1 << self.noise_bits)) ** 2 / 2
        accountant.compose(dp_accounting.ZCDpEvent(rho), rounds)
        return float(accountant.get_epsilon(self.delta))


def _flat(leaves: Iterable[Any]) -> Floats:
    """All numbers of a model in one vector."""
    return np.concatenate([np.ravel(leaf).astype(np.float64) for leaf in leaves])


def clipped(updates: Any, clip: float) -> Any:
    """Updates, stacked along the first axis of each leaf, none of them longer than `clip`.

    One whose length is no number counts as none: nothing that an agent sends may break the limit.
    """
    norms = jnp.sqrt(squared_norms(updates))
    usable = jnp.isfinite(norms)
    # A norm of zero gives a factor of one.
    factors = jnp.minimum(1.0, clip / norms)

    def shortened(leaves: jax.Array) -> jax.Array:
        of_agents = (-1, *(1,) * (leaves.ndim - 1))
        short = leaves * factors.reshape(of_agents).astype(leaves.dtype)
        return jnp.where(usable.reshape(of_agents), short, 0)

    return jax.tree.map(shortened, updates)
