"""One round: agents work and offer, the server steps, agents receive. All in one program."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from fedrl.engine.client import Client, concatenate
from fedrl.engine.local_work import notice, repeat
from fedrl.engine.simulated_time import after_arrivals, after_work, next_to_arrive
from fedrl.engine.state import (
    Environments,
    Federation,
    ServerKeys,
    chosen,
    put_back,
    select,
    server_keys,
    some,
    where_active,
)
from fedrl.strategies.aggregators import Communication
from fedrl.strategies.corrections import Offer
from fedrl.strategies.staleness import rebased
from fedrl.strategies.strategy import ServerState


@dataclass(frozen=True)
class LocalEngine(Client):
    """All agents of one replicate and their server."""

    def advance(
        self,
        federation: Federation,
        environments: Environments,
        rounds: jax.Array,
        E: jax.Array,
        *,
        communicates: bool = True,
    ) -> Federation:
        """Carry out rounds of E units of local work, each with a communication at its end."""
        communicates = communicates and self.experiment.communicates

        def one_round(_: jax.Array, federation: Federation) -> Federation:
            who = self.takes_part(federation, environments.server)
            if self.experiment.participants == self.experiment.agents:
                federation = self.do(federation, environments, E)
            else:
                after = self.do(*some(federation, environments, who), E)
                federation = put_back(federation, after, who)
            federation = after_work(self.experiment, federation, environments, who, E)
            return self.communicate(federation, environments, who) if communicates else federation

        begun = self.rejoin(federation, environments)
        return notice(repeat(rounds, one_round, begun))

    def communicate(
        self, federation: Federation, environments: Environments, who: jax.Array
    ) -> Federation:
        """Let the server step on what these agents offer, and give all what it sends."""
        offers, timing = self.offer(federation), self.experiment.timing
        everybody = self.experiment.participants == self.experiment.agents
        if not everybody:
            offers = select(offers, who)
        if timing.arrivals:
            begun, server = select(federation.underway, who), federation.server
            stale = server.rounds - begun.round
            offers = rebased(offers, begun.received, stale, server.sent, timing.staleness)
        server = self.serve(offers, federation.server, environments.server, who)
        after = self.receive(federation, server, environments)
        if not timing.arrivals:
            return after
        if not everybody:
            # The others are still at work.
            arrived = jnp.zeros(self.experiment.agents, bool).at[who].set(True)
            agents = where_active(arrived, after.agents, federation.agents)
            after = after._replace(agents=agents)
        return after_arrivals(self.experiment, after, environments, who)

    def takes_part(self, federation: Federation, server: ServerKeys) -> jax.Array:
        """The agents of the round that is under way, ascending."""
        if self.experiment.timing.arrivals:
            return next_to_arrive(federation.underway, self.experiment.participants)
        return self.drawn(federation.server.rounds, server)

    def drawn(self, rounds: jax.Array, server: ServerKeys) -> jax.Array:
        """The agents that are drawn for a round, after so many."""
        key = jax.random.fold_in(server.choosing, rounds)
        return chosen(key, self.experiment.agents, self.experiment.participants)

    def serve(
        self,
        offers: Offer,
        server: ServerState,
        keys: ServerKeys,
        who: jax.Array | None = None,
    ) -> ServerState:
        """The server after a round in which these agents offered; all that were drawn if None."""
        experiment = self.experiment
        communication = Communication(
            before=server.sent.model if experiment.initialisation == "shared" else None,
            agents=self.drawn(server.rounds, keys) if who is None else who,
            key=jax.random.fold_in(keys.noise, server.rounds),
        )
        across = experiment.aggregator.across
        aggregate = None if self.axis is None else partial(across, self.axis)
        share = experiment.aggregator.share(communication.agents, experiment.agents)
        return experiment.strategy.step(
            server, offers, communication, share=share, aggregate=aggregate
        )

    # The same of agents that are given by their numbers: all of them, a wave, those of a device.

    def init(
        self, replicate: jax.Array, theta: jax.Array, agents: jax.Array, params: Any = None
    ) -> Federation:
        """Agents that are about to learn, from `params` if there are any."""
        if params is None:
            params = self.first_params(replicate, agents)
        return self.begin(params, self.environments(replicate, theta, agents))

    def train(
        self,
        federation: Federation,
        replicate: jax.Array,
        theta: jax.Array,
        agents: jax.Array,
        rounds: jax.Array,
        E: jax.Array,
        *,
        communicates: bool,
    ) -> Federation:
        """Rounds of E units; `communicates` says whether each one ends with a communication."""
        environments = self.environments(replicate, theta, agents)
        return self.advance(federation, environments, rounds, E, communicates=communicates)

    def turn(
        self,
        federation: Federation,
        replicate: jax.Array,
        theta: jax.Array,
        server: ServerState | None,
        agents: jax.Array,
        E: jax.Array | None,
    ) -> tuple[Federation, Offer | None]:
        """A wave's turn in a round: receive, if something was sent, and work, unless E is None.

        Also what the agents offer to the server.
        """
        environments = self.environments(replicate, theta, agents)
        if server is not None:
            federation = self.receive(federation, server, environments)
        if E is None:
            return federation, None
        after = self.work(federation, environments, E)
        return after, self.offer(after)

    def serve_waves(
        self, offers: list[Offer], server: ServerState, replicate: jax.Array
    ) -> ServerState:
        """The server after a round, from what all agents offer, wave after wave."""
        keys = server_keys(self.experiment.seed, replicate)
        return self.serve(concatenate(offers), server, keys)
