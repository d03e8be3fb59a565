"""One round: agents work and offer, the server steps, agents receive. All in one program."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from fedrl.engine.client import Client
from fedrl.engine.local_work import LocalWork, notice, repeat
from fedrl.engine.simulated_time import after_arrivals, after_work, next_to_arrive
from fedrl.engine.state import (
    Environments,
    Federation,
    ServerKeys,
    chosen,
    put_back,
    select,
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
        work = LocalWork(self.experiment)

        def one_round(_: jax.Array, federation: Federation) -> Federation:
            who = self.takes_part(federation, environments.server)
            if self.experiment.participants == self.experiment.agents:
                federation = work.do(federation, environments, E)
            else:
                after = work.do(*some(federation, environments, who), E)
                federation = put_back(federation, after, who)
            federation = after_work(self.experiment, federation, environments, who, E)
            return self.communicate(federation, environments) if communicates else federation

        begun = work.rejoin(federation, environments)
        return notice(repeat(rounds, one_round, begun))

    def communicate(self, federation: Federation, environments: Environments) -> Federation:
        """Let the server step on what agents offer, and give them what it sends."""
        who = self.takes_part(federation, environments.server)
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
        if timing.arrivals and not everybody:
            # The others are still at work.
            arrived = jnp.zeros(self.experiment.agents, bool).at[who].set(True)
            agents = where_active(arrived, after.agents, federation.agents)
            after = after._replace(agents=agents)
        return (
            after_arrivals(self.experiment, after, environments, who) if timing.arrivals else after
        )

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
        aggregate = experiment.aggregator.apply
        if self.axis is not None:
            aggregate = partial(experiment.aggregator.across, self.axis)
        share = experiment.aggregator.share(communication.agents, experiment.agents)
        return experiment.strategy.step(
            server, offers, communication, share=share, aggregate=aggregate
        )
