"""The state of one replicate: its server, and all its agents or some of them."""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from fedrl.engine.agent import Agent, Clock, Keys
from fedrl.families.control_family import Constants
from fedrl.keys import Purpose, replicate_key
from fedrl.strategies.corrections import Broadcast
from fedrl.strategies.strategy import ServerState

Tree = TypeVar("Tree")


class Pace(NamedTuple):
    """How fast all agents of a replicate are on the simulated clock; agents first."""

    seconds: jax.Array
    """Of a unit of local work."""
    keys: jax.Array
    """For what varies from round to round."""


class Underway(NamedTuple):
    """Agents that work for different times, each from the model that it received; agents first."""

    due: jax.Array
    """When each arrives with its offer, on the simulated clock."""
    received: Broadcast
    """What each was sent."""
    round: jax.Array
    """How many rounds there had been when it was."""


class Federation(NamedTuple):
    """The whole state of one replicate: agents first, but for the clock of agents in lock-step."""

    agents: Agent
    rows: jax.Array
    clock: Clock
    server: ServerState
    elapsed: Any = ()
    """Simulated seconds so far; nothing unless the experiment has a timing."""
    underway: Any = ()
    """Asynchronous rounds: `Underway`; otherwise nothing."""


class ServerKeys(NamedTuple):
    """Roots of the server's random numbers."""

    choosing: jax.Array
    noise: jax.Array


class Environments(NamedTuple):
    """The constants of a replicate's agents, and the keys of all random numbers."""

    constants: Constants
    keys: Keys
    server: ServerKeys
    pace: Any = ()
    """`Pace`; nothing unless the experiment has a timing."""


def server_keys(seed: int, replicate: jax.Array) -> ServerKeys:
    """Keys of the server of one replicate."""
    purposes = (Purpose.CHOOSING, Purpose.NOISE)
    return ServerKeys(*(replicate_key(seed, replicate, purpose) for purpose in purposes))


def chosen(key: jax.Array, agents: int, participants: int) -> jax.Array:
    """The numbers of agents drawn without replacement, ascending."""
    if participants == agents:
        return jnp.arange(agents)
    return jnp.sort(jax.random.permutation(key, agents)[:participants])


def select(tree: Tree, chosen: jax.Array) -> Tree:
    """The entries of some agents."""
    entries: Tree = jax.tree.map(lambda leaf: leaf[chosen], tree)
    return entries


def some(
    federation: Federation, environments: Environments, chosen: jax.Array
) -> tuple[Federation, Environments]:
    """A federation of some of the agents, each with a clock of its own."""
    own = (federation.agents, federation.rows, federation.clock, federation.underway)
    agents, rows, clock, underway = select(own, chosen)
    constants, keys = select((environments.constants, environments.keys), chosen)
    return (
        federation._replace(agents=agents, rows=rows, clock=clock, underway=underway),
        environments._replace(constants=constants, keys=keys),
    )


def put_back(federation: Federation, some: Federation, chosen: jax.Array) -> Federation:
    """The federation after some of its agents have worked."""
    agents, rows, clock = jax.tree.map(
        lambda all, new: all.at[chosen].set(new), federation[:3], some[:3]
    )
    return federation._replace(agents=agents, rows=rows, clock=clock)


def unless_waiting(before: Federation, after: Federation, enough: jax.Array) -> Federation:
    """What has changed, but for agents that have finished `enough` episodes."""
    active = before.agents.seen.episodes < enough
    agents = where_active(active, after.agents, before.agents)
    return after._replace(agents=agents, clock=where_active(active, after.clock, before.clock))


def where_active(active: jax.Array, new: Tree, old: Tree) -> Tree:
    """The new state of the agents that are active, the old one of the others."""

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(active.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

    result: Tree = jax.tree.map(choose, new, old)
    return result
