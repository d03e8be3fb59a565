"""The simulated clock: how long agents take, and who arrives next."""

from typing import Any

import jax
import jax.numpy as jnp

from fedrl.engine.agent import stacked
from fedrl.engine.state import Environments, Federation, Pace, Underway
from fedrl.experiment.settings import Experiment
from fedrl.experiment.timing import Timing
from fedrl.keys import Purpose, replicate_key, with_numbers
from fedrl.strategies.corrections import Broadcast


def draw_pace(experiment: Experiment, replicate: jax.Array) -> Any:
    """How fast all agents are, also those that are elsewhere; nothing without a timing."""
    timing = experiment.timing
    if timing == Timing():
        return ()
    agents = jnp.arange(experiment.agents)
    given = jnp.asarray(timing.seconds or (1.0,) * experiment.agents, jnp.float32)
    keys = with_numbers(replicate_key(experiment.seed, replicate, Purpose.TIMING), agents)
    normal = jax.vmap(lambda key: jax.random.normal(jax.random.fold_in(key, 0)))(keys)
    return Pace(given * jnp.exp(timing.spread * normal), keys)


def work_seconds(
    experiment: Experiment, pace: Pace, rounds: jax.Array, E: float | jax.Array
) -> jax.Array:
    """How long each agent takes for E units that it begins after so many rounds of the server."""

    def varied(key: jax.Array) -> jax.Array:
        normal = jax.random.normal(jax.random.fold_in(key, rounds + 1))
        return jnp.exp(experiment.timing.jitter * normal)

    seconds: jax.Array = pace.seconds * E * jax.vmap(varied)(pace.keys)
    return seconds


def first_underway(
    experiment: Experiment, federation: Federation, environments: Environments
) -> Federation:
    """Agents that have just received their first model."""
    if experiment.timing == Timing():
        return federation
    federation = federation._replace(elapsed=jnp.float32(0))
    if not experiment.timing.arrivals:
        return federation
    n = experiment.agents
    received = stacked(federation.server.sent, n)
    due = work_seconds(experiment, environments.pace, jnp.int32(0), experiment.E)
    return federation._replace(underway=Underway(due, received, jnp.zeros(n, jnp.int32)))


def next_to_arrive(underway: Underway, arrivals: int) -> jax.Array:
    """The numbers of the agents that arrive first, ascending; of equal ones the first numbers."""
    return jnp.sort(jnp.argsort(underway.due, stable=True)[:arrivals])


def after_work(
    experiment: Experiment,
    federation: Federation,
    environments: Environments,
    who: jax.Array,
    E: jax.Array,
) -> Federation:
    """The clock when all of these agents, wherever they are, have done E units of a round."""
    if experiment.timing == Timing() or experiment.timing.arrivals:
        return federation
    rounds = federation.server.rounds
    longest = work_seconds(experiment, environments.pace, rounds, E)[who].max()
    return federation._replace(elapsed=federation.elapsed + longest)


def after_arrivals(
    experiment: Experiment, federation: Federation, environments: Environments, who: jax.Array
) -> Federation:
    """The clock when these agents have arrived and received, and what they do next."""
    rounds, underway = federation.server.rounds, federation.underway
    now = jnp.maximum(federation.elapsed, underway.due[who].max())
    seconds = work_seconds(experiment, environments.pace, rounds, experiment.E)
    again = now + seconds[who]
    received: Broadcast = jax.tree.map(
        lambda all, sent: all.at[who].set(sent), underway.received, federation.server.sent
    )
    underway = Underway(
        underway.due.at[who].set(again), received, underway.round.at[who].set(rounds)
    )
    return federation._replace(elapsed=now, underway=underway)
