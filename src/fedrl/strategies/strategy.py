"""How local learning becomes federated: a correction, an aggregator and a server optimizer.

The server's side of a round is one pure function here, `Strategy.step`; whoever carries rounds out
(one program, a mesh of devices, waves, a network, tables) calls it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedrl.errors import FedrlError
from fedrl.strategies.aggregators import Aggregator, Communication, Mean
from fedrl.strategies.corrections import Broadcast, Correction, NoCorrection, Offer
from fedrl.strategies.purity import hiding_nothing
from fedrl.strategies.server_optimizers import Replace, ServerOptimizer

# The name of the parameters where all of them are stepped together.
ALL = "all"

Aggregate = Callable[[Any, Communication], Any]


class ServerState(NamedTuple):
    """What a server remembers from round to round."""

    sent: Broadcast
    """What agents were sent last."""
    optimizer: Any
    """The state of the server optimizer."""
    rounds: jax.Array
    """How often there was a new model."""


@dataclass(frozen=True)
class Strategy:
    """The three parts, none of which knows the others."""

    correction: Correction = field(default_factory=NoCorrection)
    """What bends every local step."""
    aggregator: Aggregator = field(default_factory=Mean)
    """What makes one offer of many."""
    server_optimizer: ServerOptimizer = field(default_factory=Replace)
    """How the server steps to the next model."""

    def check(self, agents: int, participants: int) -> None:
        """Refuse parts that do not go together, or not with so many agents."""
        self.aggregator.check(agents, participants)
        if self.correction.shares and not self.aggregator.linear:
            raise FedrlError(
                f"correction {self.correction.name!r} sends more than the model, and that must be "
                f"averaged, which the {self.aggregator.name} aggregator does not do: choose "
                "aggregator 'mean', or a correction that sends nothing ('none', 'prox')"
            )

    def check_without_communication(self) -> None:
        """Refuse parts that say nothing where E = inf."""
        for kind, part, plain in (
            ("correction", self.correction, PLAIN.correction),
            ("server optimizer", self.server_optimizer, PLAIN.server_optimizer),
        ):
            if part != plain:
                raise FedrlError(
                    f"{kind} {part.name!r} is about communications, and with E = inf there are "
                    "none: leave it out"
                )

    @property
    def averages(self) -> bool:
        """Whether the next model is a weighted average of what the agents offer."""
        return self.aggregator.linear and type(self.server_optimizer) is Replace

    @property
    def needs_one_beginning(self) -> str | None:
        """The part that needs all agents to begin with one model, in words; None: no part does."""
        if type(self.correction) is not NoCorrection:
            return f"correction {self.correction.name!r}"
        if self.server_optimizer.compares_with_before:
            return f"server optimizer {self.server_optimizer.name!r}"
        if self.aggregator.compares_with_before:
            return f"aggregator {self.aggregator.name!r}"
        return None

    def begin(self, model: Any, parts: Mapping[str, Any]) -> ServerState:
        """A server that is about to send its first model; `parts` of it are stepped separately."""
        with hiding_nothing(self.correction, self.server_optimizer):
            extra = {name: self.correction.first_broadcast(part) for name, part in parts.items()}
            offered = [self.correction.offer(self.correction.init(x)) for x in parts.values()]
            optimizer = self.server_optimizer.init(model)
        if jax.tree.leaves((extra, offered)) and not self.correction.shares:
            raise FedrlError(
                f"correction {self.correction.name!r} offers or broadcasts something beside the "
                "model and does not say so: give its class shares = True"
            )
        return ServerState(Broadcast(model, extra), optimizer, jnp.int32(0))

    def step(
        self,
        state: ServerState,
        offers: Offer,
        communication: Communication,
        *,
        share: float | jax.Array = 1.0,
        aggregate: Aggregate | None = None,
    ) -> ServerState:
        """The server after a round, from the agents' offers, stacked in agent order.

        `share` of all agents have made one. `aggregate` says how to apply the aggregator where the
        offers are spread over devices, or come over a network.
        """
        correction, aggregate = self.correction, aggregate or self.aggregator.apply
        before, extra = state.sent
        with hiding_nothing(correction, self.aggregator, self.server_optimizer):
            if correction.shares:
                offered, changes = aggregate(offers, communication)
                extra = {
                    part: correction.absorb(extra[part], changes[part], share) for part in extra
                }
            else:
                offered = aggregate(offers.model, communication)
            model, optimizer = self.server_optimizer.step(before, offered, state.optimizer)
        return ServerState(Broadcast(model, extra), optimizer, state.rounds + 1)


PLAIN = Strategy()
"""The paper's: average, and send back."""
