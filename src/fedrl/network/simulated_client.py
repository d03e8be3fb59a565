"""One agent in a simulated environment: the local engine's client, for a federation of one."""

from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedrl.engine.agent import Seen, offer, untrained
from fedrl.engine.client import Client
from fedrl.engine.divergence import Diverged
from fedrl.engine.state import Environments, Federation
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.experiment.timing import Timing
from fedrl.network.agent_client import REPLICATE
from fedrl.network.messages import Array
from fedrl.strategies.corrections import Broadcast, Offer
from fedrl.strategies.strategy import PLAIN
from fedrl.trees import refilled


class SimulatedClient:
    """An agent with networks in an environment of the family.

    The same programs as in the local engine: an agent's random numbers depend on its number and not
    on who else there is.
    """

    def __init__(self, experiment: Experiment, agent: int, theta: Any) -> None:
        """`theta` as the family describes it; None: the one that is drawn for this agent."""
        self.experiment, self.agent = experiment, agent
        self._client = client_of(experiment)
        given: Any = drawn_theta(experiment, agent) if theta is None else theta
        self._theta = np.asarray(experiment.family.check_theta(given))[None]

    @cached_property
    def _environment(self) -> Environments:
        numbers = jnp.array([self.agent])
        environment: Environments = _environment(self._client, numbers, jnp.asarray(self._theta))
        return environment

    @cached_property
    def _first(self) -> Any:
        """The agent's first parameters, with an axis of one agent in front."""
        params = _first_params(self._client)
        return jax.tree.map(lambda leaf: leaf[self.agent : self.agent + 1], params)

    @cached_property
    def sent(self) -> Broadcast:
        return sent_by_server(self.experiment)

    @cached_property
    def offered(self) -> Offer:
        def begun(params: Any) -> Offer:
            return offer(self.experiment, untrained(self.experiment, params))

        offered: Offer = jax.eval_shape(begun, one(self._first))
        return offered

    def first(self, received: Broadcast | None) -> Any:
        """Parameters to begin with, with an axis of one agent in front."""
        if received is None:
            return self._first
        _, private = self.experiment.learner.split(self._first)
        return eqx.combine(jax.tree.map(lambda leaf: leaf[None], received.model), private)

    def begin(self, received: Broadcast | None) -> Federation:
        state: Federation = _begun(self._client, self.first(received), self._environment)
        return state if received is None else _with(state, received)

    def receive(self, state: Federation, received: Broadcast, counted: bool) -> Federation:
        server = _with(state, received).server
        after: Federation = _received(
            self._client, state, server, self._environment, jnp.asarray(counted)
        )
        return after

    def work(self, state: Federation, E: int, trained: int, scale: float) -> Federation:
        done: Federation = _worked(self._client, state, self._environment, jnp.int32(E))
        jax.block_until_ready(done)  # type: ignore[no-untyped-call]
        self.experiment.family.raise_trouble()
        found = Diverged.of(jax.tree.map(lambda leaf: leaf[None], done.agents.seen))
        if found.agents:  # told to the server, which is not to know theta
            raise FedrlError(found.told(0, 0, f"agent {self.agent}"))
        return done

    def offer(self, state: Federation) -> Offer:
        offers: Offer = one(self._client.offer(state))
        return offers

    def evaluate(self, state: Federation, trained: int) -> tuple[Federation, dict[str, float]]:
        numbers = (jnp.int32(self.agent), jnp.int32(trained))
        params, theta = state.agents.learned.params, jnp.asarray(self._theta)
        played = jax.device_get(_played(self._client, params, theta, *numbers))
        self.experiment.family.raise_trouble()
        named = ("return", "discounted_return")
        own = "own_" if self.experiment.learner.personal else ""
        metrics = {own + name: float(x[0]) for name, x in zip(named, played, strict=True)}
        seen = jax.device_get(state.agents.seen)
        agents = state.agents._replace(seen=state.agents.seen.cleared())
        return state._replace(agents=agents), metrics | _met(seen)

    def restore(self, leaves: list[Array]) -> Federation | None:
        # Without tracing what is kept in this object: a tracer must not stay in it.
        shapes = jax.eval_shape(self._client.begin, self._first, self._environment)
        state: Federation | None = refilled(shapes, leaves)
        return state


def client_of(experiment: Experiment) -> Client:
    """The client of an agent that has no one to wait for; the server's parts are the server's."""
    alone = replace(
        experiment,
        participation=1.0,
        timing=Timing(),
        aggregator=PLAIN.aggregator,
        server_optimizer=PLAIN.server_optimizer,
    )
    return Client(alone)


def sent_by_server(experiment: Experiment) -> Broadcast:
    """What the server of an experiment sends to an agent, without numbers."""

    def begun(params: Any) -> Broadcast:
        shared, _ = experiment.learner.split(one(params))
        return experiment.strategy.begin(shared, experiment.learner.parts(shared)).sent

    params = jax.eval_shape(client_of(experiment).first_params, np.int32(REPLICATE))
    sent: Broadcast = jax.eval_shape(begun, params)
    return sent


def one(tree: Any) -> Any:
    """The first agent's entries."""
    return jax.tree.map(lambda leaf: leaf[0], tree)


def _with(state: Federation, received: Broadcast) -> Federation:
    """A state that knows what the server has sent."""
    return state._replace(server=state.server._replace(sent=received))


# Programs: everything that differs between agents is an input, so that all have the same ones.


@partial(jax.jit, static_argnums=0)
def _thetas(client: Client) -> jax.Array:
    return client.thetas(jnp.int32(REPLICATE))


@partial(jax.jit, static_argnums=0)
def _first_params(client: Client) -> Any:
    return client.first_params(jnp.int32(REPLICATE))


@partial(jax.jit, static_argnums=0)
def _environment(client: Client, agents: jax.Array, theta: jax.Array) -> Environments:
    return client.environments(jnp.int32(REPLICATE), theta, agents)


_begun = jax.jit(Client.begin, static_argnums=0)
_received = jax.jit(Client.receive, static_argnums=0)
_worked = jax.jit(Client.work, static_argnums=0, donate_argnums=1)


@partial(jax.jit, static_argnums=0)
def _played(
    client: Client, params: Any, theta: jax.Array, agent: jax.Array, trained: jax.Array
) -> Any:
    play = partial(client.play, replicate=jnp.int32(REPLICATE), own=True)
    return play(params, theta, trained=trained, numbers=agent[None])


def drawn_theta(experiment: Experiment, agent: int) -> Array:
    """The environment that the local engine would give an agent."""
    return np.asarray(_thetas(client_of(experiment))[agent])


def _met(seen: Seen) -> dict[str, float]:
    """Means over what was met; nothing where nothing was."""
    metrics = {"updates": float(seen.updates[0])}
    if seen.updates[0]:
        metrics["loss"] = float(seen.loss[0]) / int(seen.updates[0])
    if seen.episodes[0]:
        metrics["explored_return"] = float(seen.collected[0]) / int(seen.episodes[0])
    return metrics
