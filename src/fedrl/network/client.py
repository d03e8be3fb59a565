"""What one agent does in its own environment, in a round: the algorithms of both engines."""

from functools import cached_property, partial
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedrl.engine.agent import Seen
from fedrl.engine.divergence import Diverged
from fedrl.engine.local_engine import LocalEngine
from fedrl.engine.state import Environments, Federation
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.network.experiments import AnyExperiment
from fedrl.network.messages import Array, Arrays
from fedrl.runs.run_directory import named_leaves

# A network is one repetition.
REPLICATE = 0


class Work(Protocol):
    """An agent's algorithm. States are trees of arrays; models are shared leaves by name."""

    @property
    def experiment(self) -> AnyExperiment:
        """What is trained."""

    @property
    def shapes(self) -> Arrays:
        """What a model looks like; the numbers mean nothing."""

    def begin(self, model: Arrays) -> Any:
        """An agent that has not learnt yet; from its own first parameters if there is no model."""

    def receive(self, state: Any, model: Arrays) -> Any:
        """The agent with the server's model."""

    def train(self, state: Any, E: int, trained: int, scale: float) -> Any:
        """E units of local work."""

    def shared(self, state: Any) -> Arrays:
        """What leaves the agent."""

    def evaluate(self, state: Any, trained: int) -> tuple[Any, dict[str, float]]:
        """How good the model is here, and what was met since somebody last asked."""

    def restore(self, leaves: list[Array]) -> Any | None:
        """The state from its leaves; None if they are not of such a state."""


class NetworkWork:
    """An agent of DQNAvg, DDPGAvg and their personalised variants, in a simulated environment.

    The same programs as in the local engine, for a federation of one: an agent's random numbers
    depend on its number and not on who else there is.
    """

    def __init__(self, experiment: Experiment, agent: int, theta: Any) -> None:
        """`theta` as the family describes it; None: the one that is drawn for this agent."""
        self.experiment, self.agent = experiment, agent
        given: Any = drawn_theta(experiment, agent) if theta is None else theta
        self._theta = np.asarray(experiment.family.check_theta(given))[None]

    @cached_property
    def _engine(self) -> LocalEngine:
        # One agent alone does all its work at once: no one to wait for, no one to talk to.
        return LocalEngine(self.experiment.without_communication())

    @cached_property
    def _environment(self) -> Environments:
        numbers = jnp.array([self.agent])
        environment: Environments = _environment(self._engine, numbers, jnp.asarray(self._theta))
        return environment

    @cached_property
    def _first(self) -> Any:
        """The agent's first parameters, with an axis of one agent in front."""
        params = _first_params(self._engine)
        return jax.tree.map(lambda leaf: leaf[self.agent : self.agent + 1], params)

    @property
    def shapes(self) -> Arrays:
        return self.named(self._first)

    def first(self, model: Arrays) -> Any:
        """Parameters to begin with, with an axis of one agent in front."""
        if not model:
            return self._first
        shared, private = self._split(self._first)
        received = like(jax.tree.map(lambda leaf: leaf[0], shared), model)
        return eqx.combine(jax.tree.map(lambda leaf: leaf[None], received), private)

    def begin(self, model: Arrays) -> Federation:
        state: Federation = _begun(self._engine, self.first(model), self._environment)
        return state

    def receive(self, state: Federation, model: Arrays) -> Federation:
        shared, _ = self._split(state.agents.learned.params)
        tree = like(jax.tree.map(lambda leaf: leaf[0], shared), model)
        received: Federation = _received(self._engine, state, tree, self._environment)
        return received

    def train(self, state: Federation, E: int, trained: int, scale: float) -> Federation:
        done: Federation = _trained(self._engine, state, self._environment, jnp.int32(E))
        jax.block_until_ready(done)  # type: ignore[no-untyped-call]
        self.experiment.family.raise_trouble()
        found = Diverged.of(jax.tree.map(lambda leaf: leaf[None], done.agents.seen))
        if found.agents:  # told to the server, which is not to know theta
            raise FedrlError(found.told(0, 0, f"agent {self.agent}"))
        return done

    def shared(self, state: Federation) -> Arrays:
        return self.named(state.agents.learned.params)

    def evaluate(self, state: Federation, trained: int) -> tuple[Federation, dict[str, float]]:
        numbers = (jnp.int32(self.agent), jnp.int32(trained))
        params, theta = state.agents.learned.params, jnp.asarray(self._theta)
        played = jax.device_get(_played(self.experiment, params, theta, *numbers))
        self.experiment.family.raise_trouble()
        named = ("return", "discounted_return")
        own = "own_" if self.experiment.learner.personal else ""
        metrics = {own + name: float(x[0]) for name, x in zip(named, played, strict=True)}
        seen = jax.device_get(state.agents.seen)
        agents = state.agents._replace(seen=state.agents.seen.cleared())
        return state._replace(agents=agents), metrics | _met(seen)

    def restore(self, leaves: list[Array]) -> Federation | None:
        # Without tracing what is kept in this object: a tracer must not stay in it.
        shapes = jax.eval_shape(self._engine.begin, self._first, self._environment)
        state: Federation | None = restored(shapes, leaves)
        return state

    def _split(self, params: Any) -> tuple[Any, Any]:
        shared, private = self.experiment.learner.split(params)
        return shared, private

    def named(self, params: Any) -> Arrays:
        """The shared leaves by name; `params` has an axis of one agent in front."""
        shared, _ = self._split(params)
        return {name: np.asarray(leaf)[0] for name, leaf in named_leaves(shared).items()}


# Programs: everything that differs between agents is an input, so that all have the same ones.


@partial(jax.jit, static_argnums=0)
def _thetas(engine: LocalEngine) -> jax.Array:
    return engine.thetas(jnp.int32(REPLICATE))


@partial(jax.jit, static_argnums=0)
def _first_params(engine: LocalEngine) -> Any:
    return engine.first_params(jnp.int32(REPLICATE))


@partial(jax.jit, static_argnums=0)
def _environment(engine: LocalEngine, agents: jax.Array, theta: jax.Array) -> Environments:
    return engine.environments(jnp.int32(REPLICATE), theta, agents)


@partial(jax.jit, static_argnums=0)
def _begun(engine: LocalEngine, params: Any, environment: Environments) -> Federation:
    return engine.begin(params, environment)


@partial(jax.jit, static_argnums=0)
def _received(
    engine: LocalEngine, state: Federation, model: Any, environment: Environments
) -> Federation:
    sent = state.server.sent._replace(model=model)
    return engine.receive(state, state.server._replace(sent=sent), environment)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _trained(
    engine: LocalEngine, state: Federation, environment: Environments, E: jax.Array
) -> Federation:
    return engine.advance(state, environment, jnp.int32(1), E)


@partial(jax.jit, static_argnums=0)
def _played(
    experiment: Experiment, params: Any, theta: jax.Array, agent: jax.Array, trained: jax.Array
) -> Any:
    play = partial(LocalEngine(experiment).play, replicate=jnp.int32(REPLICATE), own=True)
    return play(params, theta, trained=trained, numbers=agent[None])


def drawn_theta(experiment: Experiment, agent: int) -> Array:
    """The environment that the local engine would give an agent."""
    return np.asarray(_thetas(LocalEngine(experiment))[agent])


def restored(shapes: Any, leaves: list[Array]) -> Any | None:
    """Leaves as a tree like the one given; None if they do not fit."""
    wanted = [(x.shape, x.dtype) for x in jax.tree.leaves(shapes)]
    if wanted != [(x.shape, x.dtype) for x in leaves]:
        return None
    return jax.tree.unflatten(jax.tree.structure(shapes), [jnp.asarray(x) for x in leaves])


def like(tree: Any, named: Arrays) -> Any:
    """Arrays by name as a tree of the given structure."""
    leaves = [jnp.asarray(named[name]) for name in named_leaves(tree)]
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def _met(seen: Seen) -> dict[str, float]:
    """Means over what was met; nothing where nothing was."""
    metrics = {"updates": float(seen.updates[0])}
    if seen.updates[0]:
        metrics["loss"] = float(seen.loss[0]) / int(seen.updates[0])
    if seen.episodes[0]:
        metrics["explored_return"] = float(seen.collected[0]) / int(seen.episodes[0])
    return metrics
