"""The functions that an experiment's training and evaluation consist of, for one seed or for many.

They are about some agents, given by their numbers: all of them, a wave, or those of a device.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from fedrl.engine.agent import Seen
from fedrl.engine.client import Client, concatenate
from fedrl.engine.evaluation import Returns
from fedrl.engine.local_engine import LocalEngine
from fedrl.engine.state import Federation, server_keys
from fedrl.experiment.settings import Experiment
from fedrl.files import Array
from fedrl.strategies.corrections import Offer
from fedrl.strategies.strategy import ServerState


class Record(NamedTuple):
    """What is known after a leg, for each seed."""

    returns: Returns | None
    """(models, environments): training environments first, then the held-out ones. The average is
    model 0; without communication the agents' own models follow. None where only each agent's own
    environment counts."""
    own: Returns | None
    """(agents,): each agent's own model in its own environment, where `returns` has no such."""
    seen: Seen
    """What each agent met while learning since the record before."""
    elapsed: Array | None = None
    """Simulated seconds so far; None unless the experiment has a timing."""


class Start(NamedTuple):
    """Where agents begin that do not begin from nothing; seeds first."""

    thetas: Array
    """(seeds, agents, varied constants): their environments."""
    params: Any
    """Each leaf (seeds, agents, ...)."""


def init(
    engine: LocalEngine,
    replicate: jax.Array,
    theta: jax.Array,
    agents: jax.Array,
    params: Any = None,
) -> Federation:
    """Agents that are about to learn, from `params` if there are any."""
    if params is None:
        params = engine.first_params(replicate, agents)
    return engine.begin(params, engine.environments(replicate, theta, agents))


def train(
    engine: LocalEngine,
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
    environments = engine.environments(replicate, theta, agents)
    return engine.advance(federation, environments, rounds, E, communicates=communicates)


def receive(
    engine: LocalEngine,
    federation: Federation,
    replicate: jax.Array,
    theta: jax.Array,
    server: ServerState,
    agents: jax.Array,
) -> Federation:
    """Agents that get what the server sends."""
    environments = engine.environments(replicate, theta, agents)
    return engine.receive(federation, server, environments)


def work(
    engine: LocalEngine,
    federation: Federation,
    replicate: jax.Array,
    theta: jax.Array,
    server: ServerState | None,
    agents: jax.Array,
    E: jax.Array,
) -> tuple[Federation, Offer]:
    """What some of the agents do in a round: receive, if something was sent, and learn.

    Also what they offer to the server.
    """
    environments = engine.environments(replicate, theta, agents)
    if server is not None:
        federation = engine.receive(federation, server, environments)
    after = engine.work(federation, environments, E)
    return after, engine.offer(after)


def serve(
    engine: LocalEngine, offers: list[Offer], server: ServerState, replicate: jax.Array
) -> ServerState:
    """The server after a round, from what all agents offer, wave after wave."""
    keys = server_keys(engine.experiment.seed, replicate)
    return engine.serve(concatenate(offers), server, keys)


def one_by_one(program: Callable[..., Any]) -> Callable[..., Any]:
    """A program for one seed after the other: one seed then fills the cache of a core."""

    def over_seeds(of_seeds: tuple[Any, ...], *given: Any, **fixed: Any) -> Any:
        return jax.lax.map(lambda one: program(*one, *given, **fixed), of_seeds)

    return over_seeds


def side_by_side(program: Callable[..., Any], *, lockstep: bool) -> Callable[..., Any]:
    """A program for all seeds at once; `lockstep`: all are equally far."""

    def over_seeds(of_seeds: tuple[Any, ...], *given: Any, **fixed: Any) -> Any:
        state, *rest = of_seeds
        if not (lockstep and isinstance(state, Federation)):
            return jax.vmap(lambda *one: program(*one, *given, **fixed))(*of_seeds)
        # With one clock for all, memories are written in place.
        clock, rounds = jax.tree.map(lambda leaf: leaf[0], (state.clock, state.server.rounds))

        def one(of_seed: Federation, *rest: Any) -> Any:
            server = of_seed.server._replace(rounds=rounds)
            return program(of_seed._replace(clock=clock, server=server), *rest, *given, **fixed)

        axes = jax.tree.map(lambda _: 0, state)
        axes = axes._replace(clock=None, server=axes.server._replace(rounds=None))
        return jax.vmap(one, in_axes=(axes, *(0 for _ in rest)))(state, *rest)

    return over_seeds


def spread(over_seeds: Callable[..., Any], mapped: int) -> Callable[..., Any]:
    """Arguments one by one, so that the first can be donated; the first few are of seeds."""

    def program(*arguments: Any, **fixed: Any) -> Any:
        return over_seeds(arguments[:mapped], *arguments[mapped:], **fixed)

    return program


def drawn_thetas(experiment: Experiment) -> Array:
    """The environments of every seed."""
    seeds = np.arange(experiment.seeds, dtype=np.int32)
    return np.asarray(jax.jit(jax.vmap(Client(experiment).all_thetas))(seeds))
