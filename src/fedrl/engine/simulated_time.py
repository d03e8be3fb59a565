"""The simulated clock: how long agents take, and who arrives next."""

from typing import Any

import jax
import jax.numpy as jnp

from fedrl.engine.state import Environments, Federation, Pace, Underway
from fedrl.experiment.settings import Experiment
from fedrl.experiment.timing import Timing
from fedrl.keys import Purpose, replicate_key, with_numbers
from fedrl.strategies.corrections import Broadcast


def draw_pace(experiment: Experiment, replicate: jax.Array, agents: jax.Array) -> Any:
    """How fast agents with these numbers are; nothing without a timing."""
    timing = experiment.timing
    if timing == Timing():
        return ()
    given = jnp.asarray(timing.seconds or (1.0,) * experiment.agents, jnp.float32)[agents]
    keys = with_numbers(replicate_key(experiment.seed, replicate, Purpose.TIMING), agents)
    normal = jax.vmap(lambda key: jax.random.normal(jax.random.fold_in(key, 0)))(keys)
    return Pace(given * jnp.exp(timing.spread * normal), keys)


def round_seconds(experiment: Experiment, pace: Pace, rounds: jax.Array) -> jax.Array:
    """How long a round takes that each agent begins after so many rounds of the server."""

    def varied(key: jax.Array) -> jax.Array:
        normal = jax.random.normal(jax.random.fold_in(key, rounds + 1))
        return jnp.exp(experiment.timing.jitter * normal)

    seconds: jax.Array = pace.seconds * experiment.E * jax.vmap(varied)(pace.keys)
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
    n = environments.pace.seconds.shape[0]
    sent = federation.server.sent
    received = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (n, *leaf.shape)), sent)
    due = round_seconds(experiment, environments.pace, jnp.int32(0))
    return federation._replace(underway=Underway(due, received, jnp.zeros(n, jnp.int32)))


def next_to_arrive(underway: Underway, arrivals: int) -> jax.Array:
    """The numbers of the agents that arrive first, ascending; of equal ones the first numbers."""
    return jnp.sort(jnp.argsort(underway.due, stable=True)[:arrivals])


def after_round(
    experiment: Experiment, federation: Federation, environments: Environments, who: jax.Array
) -> Federation:
    """The clock after a round of these agents, whose server has sent something new."""
    if experiment.timing == Timing():
        return federation
    rounds = federation.server.rounds
    if not experiment.timing.arrivals:
        longest = round_seconds(experiment, environments.pace, rounds - 1)[who].max()
        return federation._replace(elapsed=federation.elapsed + longest)
    underway = federation.underway
    now = jnp.maximum(federation.elapsed, underway.due[who].max())
    again = now + round_seconds(experiment, environments.pace, rounds)[who]
    received: Broadcast = jax.tree.map(
        lambda all, sent: all.at[who].set(sent), underway.received, federation.server.sent
    )
    underway = Underway(
        underway.due.at[who].set(again), received, underway.round.at[who].set(rounds)
    )
    return federation._replace(elapsed=now, underway=underway)
