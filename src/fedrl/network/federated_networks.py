"""Federations of DQNAvg, DDPGAvg and their like: a simulated agent, and the server."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from math import sqrt
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedrl.engine.agent import Seen, offer, untrained
from fedrl.engine.client import Client
from fedrl.engine.divergence import Diverged
from fedrl.engine.local_engine import LocalEngine
from fedrl.engine.plan import plan
from fedrl.engine.state import Environments, Federation, server_keys
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.experiment.timing import Timing
from fedrl.files import Array, Arrays
from fedrl.network.agent_client import REPLICATE, named
from fedrl.network.server_side import Planned, ServerSide
from fedrl.strategies.corrections import Broadcast, Offer
from fedrl.strategies.strategy import PLAIN, ServerState
from fedrl.trees import refilled


class SimulatedClient:
    """An agent with networks in an environment of the family.

    The same programs as in the local engine: an agent's random numbers depend on its number and not
    on who else there is.
    """

    def __init__(self, experiment: Experiment, agent: int, theta: Any = None) -> None:
        """`theta` as the family describes it; None: the one that is drawn for this agent."""
        self.experiment, self.agent = experiment, agent
        # An agent has no one to wait for, and the server's parts are the server's.
        alone = replace(
            experiment,
            participation=1.0,
            timing=Timing(),
            aggregator=PLAIN.aggregator,
            server_optimizer=PLAIN.server_optimizer,
        )
        self._client = Client(alone)
        self._given = None if theta is None else experiment.family.check_theta(theta)

    @cached_property
    def theta(self) -> Array:
        """The agent's environment, with an axis of one agent in front."""
        if self._given is not None:
            return self._given[None]
        return np.asarray(_thetas(self._client, REPLICATE))[self.agent : self.agent + 1]

    @cached_property
    def _environment(self) -> Environments:
        return _environments(self._client, REPLICATE, self.theta, np.array([self.agent]))

    @cached_property
    def _first(self) -> Any:
        """The agent's first parameters, with an axis of one agent in front."""
        params = _first_params(self._client, REPLICATE)
        return jax.tree.map(lambda leaf: leaf[self.agent : self.agent + 1], params)

    def _without_numbers(self, function: Callable[[Any], Any]) -> Any:
        """What a function makes of the agent's first parameters."""
        return jax.eval_shape(lambda: function(one(self._client.first_params(REPLICATE))))

    @cached_property
    def sent(self) -> Broadcast:
        return cast(Broadcast, self._without_numbers(self.sent_first))

    @cached_property
    def offered(self) -> Offer:
        def begun(params: Any) -> Offer:
            return offer(self.experiment, untrained(self.experiment, params))

        return cast(Offer, self._without_numbers(begun))

    def sent_first(self, params: Any) -> Broadcast:
        """What a server sends whose agents have these parameters."""
        shared, _ = self.experiment.learner.split(params)
        return self.experiment.strategy.begin(shared, self.experiment.learner.parts(shared)).sent

    def first(self, received: Broadcast | None) -> Any:
        """Parameters to begin with, with an axis of one agent in front."""
        if received is None:
            return self._first
        _, private = self.experiment.learner.split(self._first)
        return eqx.combine(jax.tree.map(lambda leaf: leaf[None], received.model), private)

    def begin(self, received: Broadcast | None) -> Any:
        state = _begun(self._client, self.first(received), self._environment)
        if received is None:
            return state
        return state._replace(server=state.server._replace(sent=received))

    def receive(self, state: Any, received: Broadcast, counted: bool) -> Any:
        server = state.server._replace(sent=received)
        return _received(self._client, state, server, self._environment, jnp.asarray(counted))

    def work(self, state: Any, E: int, trained: int, scale: float) -> Any:
        done = _worked(self._client, state, self._environment, jnp.int32(E))
        jax.block_until_ready(done)  # type: ignore[no-untyped-call]
        self.experiment.family.raise_trouble()
        found = Diverged.of(jax.tree.map(lambda leaf: leaf[None], done.agents.seen))
        if found.agents:  # told to the server, which is not to know theta
            raise FedrlError(found.told(0, 0, f"agent {self.agent}"))
        return done

    def offer(self, state: Any) -> Offer:
        return cast(Offer, one(self._client.offer(state)))

    def evaluate(self, state: Any, trained: int) -> tuple[Any, dict[str, float]]:
        agents = state.agents
        played = _played(
            self._client,
            agents.learned.params,
            self.theta,
            replicate=REPLICATE,
            trained=jnp.int32(trained),
            own=True,
            numbers=jnp.array([self.agent]),
        )
        played, seen = jax.device_get((played, agents.seen))
        self.experiment.family.raise_trouble()
        metrics = self.returns(*(float(x[0]) for x in played)) | _met(seen)
        return state._replace(agents=agents._replace(seen=agents.seen.cleared())), metrics

    def returns(self, undiscounted: float, discounted: float) -> dict[str, float]:
        """What an evaluation says, by name."""
        own = "own_" if self.experiment.learner.personal else ""
        return {f"{own}return": undiscounted, f"{own}discounted_return": discounted}

    def restore(self, leaves: list[Array]) -> Any | None:
        # Without tracing what is kept in this object: a tracer must not stay in it.
        shapes = jax.eval_shape(self._client.begin, self._first, self._environment)
        return refilled(shapes, leaves)


class ServerOfNetworks(ServerSide):
    """The server of an experiment with networks."""

    experiment: Experiment

    def __init__(self, experiment: Experiment) -> None:
        super().__init__(experiment, SimulatedClient(experiment, 0))
        self.sends_first = experiment.initialisation == "shared"
        self.evaluated = {leg.trained for leg in plan(experiment) if leg.evaluates}
        self._engine = LocalEngine(experiment)
        params = jax.jit(self._engine.first_params)(REPLICATE)
        first = jax.tree.map(lambda leaf: leaf[0], params)
        self._shared, self._private = experiment.learner.split(first)
        self._keys = server_keys(experiment.seed, REPLICATE)
        self.noise = self._keys.noise
        self._length = sqrt(sum(float(np.sum(np.square(x))) for x in jax.tree.leaves(self._shared)))
        # Once: programs are compiled for what they are made of.
        self._play = jax.jit(self._played)

    def begin(self) -> ServerState:
        parts = self.experiment.learner.parts(self._shared)
        begun: ServerState = jax.device_get(self.experiment.strategy.begin(self._shared, parts))
        return begun

    def takes_part(self, number: int) -> list[int]:
        return [int(agent) for agent in self._engine.drawn(jnp.int32(number - 1), self._keys)]

    @property
    def largest_direction(self) -> float | None:
        return self.experiment.learner.largest_direction

    def largest_change(self, planned: Planned, before: Arrays) -> float | None:
        """The largest step of a weight in each update, all weights in the same direction."""
        experiment = self.experiment
        step = experiment.learner.largest_step
        if step is None:
            return None
        updates = planned.E
        if experiment.unit == "episodes":
            updates *= -(-experiment.family.time_limit // experiment.learner.update_every)
        weights = [leaf for leaf in before.values() if leaf.dtype.kind == "f"]
        length = step * updates * sqrt(sum(leaf.size for leaf in weights))
        if planned.number == 1 and not self.sends_first:
            # Drawn like these: if uniformly, no weight is more than sqrt(3) times the usual away.
            length += 4 * self._length
        return length

    def held_out(self, state: ServerState, trained: int) -> dict[str, list[float]]:
        experiment = self.experiment
        if not experiment.held_out or experiment.evaluation.where == "own":
            return {}
        models = jax.tree.map(lambda leaf: leaf[None], self._model(state))
        played = jax.device_get(self._play(models, jnp.int32(trained)))
        names = ("return", "discounted_return")
        return {n: [float(x) for x in values[0]] for n, values in zip(names, played, strict=True)}

    def models(self, state: ServerState) -> Arrays:
        """Seeds first, then models, as in a run of one process."""
        leaves = named(Broadcast(self._model(state)))
        return {name: leaf[None, None] for name, leaf in leaves.items()}

    def _model(self, state: ServerState) -> Any:
        """The parameters, with what is private as it is before any training."""
        return eqx.combine(state.sent.model, self._private)

    def _played(self, models: Any, trained: jax.Array) -> Any:
        """Returns in the held-out environments, which are numbered after the agents' ones."""
        replicate, agents = REPLICATE, self.agents
        theta = self._engine.all_thetas(replicate)[agents:]
        numbers = agents + jnp.arange(theta.shape[0])
        return self._engine.play(
            models, theta, replicate=replicate, trained=trained, numbers=numbers
        )


def one(tree: Any) -> Any:
    """The first agent's entries."""
    return jax.tree.map(lambda leaf: leaf[0], tree)


def _met(seen: Seen) -> dict[str, float]:
    """Means over what was met; nothing where nothing was."""
    metrics = {"updates": float(seen.updates[0])}
    if seen.updates[0]:
        metrics["loss"] = float(seen.loss[0]) / int(seen.updates[0])
    if seen.episodes[0]:
        metrics["explored_return"] = float(seen.collected[0]) / int(seen.episodes[0])
    return metrics


# Programs: everything that differs between agents is an input, so that all have the same ones.
_thetas = jax.jit(Client.thetas, static_argnums=0)
_first_params = jax.jit(Client.first_params, static_argnums=0)
_environments: Callable[..., Environments] = jax.jit(Client.environments, static_argnums=0)
_begun: Callable[..., Federation] = jax.jit(Client.begin, static_argnums=0)
_received: Callable[..., Federation] = jax.jit(Client.receive, static_argnums=0)
_worked: Callable[..., Federation] = jax.jit(Client.work, static_argnums=0, donate_argnums=1)
_played = jax.jit(Client.play, static_argnums=0, static_argnames="own")
