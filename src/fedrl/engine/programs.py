"""Where seeds begin, what is known of them after a leg, and programs for many of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from fedrl.engine.agent import Seen
from fedrl.engine.client import Client
from fedrl.engine.evaluation import Returns
from fedrl.engine.state import Federation
from fedrl.experiment.settings import Experiment
from fedrl.files import Array


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


def one_by_one(program: Callable[..., Any], mapped: int) -> Callable[..., Any]:
    """A program for one seed after the other: one seed then fills the cache of a core.

    The first few arguments, as many as are `mapped`, are those of all seeds.
    """

    def over_seeds(*given: Any, **fixed: Any) -> Any:
        of_seeds, shared = given[:mapped], given[mapped:]
        return jax.lax.map(lambda one: program(*one, *shared, **fixed), of_seeds)

    return over_seeds


def side_by_side(program: Callable[..., Any], mapped: int, *, lockstep: bool) -> Callable[..., Any]:
    """The same for all seeds at once; `lockstep`: all are equally far."""

    def over_seeds(*given: Any, **fixed: Any) -> Any:
        (state, *rest), shared = given[:mapped], given[mapped:]
        if not (lockstep and isinstance(state, Federation)):
            return jax.vmap(lambda *one: program(*one, *shared, **fixed))(state, *rest)
        # With one clock for all, memories are written in place.
        clock, rounds = jax.tree.map(lambda leaf: leaf[0], (state.clock, state.server.rounds))

        def one(of_seed: Federation, *rest: Any) -> Any:
            server = of_seed.server._replace(rounds=rounds)
            return program(of_seed._replace(clock=clock, server=server), *rest, *shared, **fixed)

        axes = jax.tree.map(lambda _: 0, state)
        axes = axes._replace(clock=None, server=axes.server._replace(rounds=None))
        return jax.vmap(one, in_axes=(axes, *(0 for _ in rest)))(state, *rest)

    return over_seeds


def drawn_thetas(experiment: Experiment) -> Array:
    """The environments of every seed."""
    seeds = np.arange(experiment.seeds, dtype=np.int32)
    return np.asarray(jax.jit(jax.vmap(Client(experiment).all_thetas))(seeds))
