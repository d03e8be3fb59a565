"""The functions that an experiment's training and evaluation consist of, for one seed or for many.

They are about some agents, given by their numbers: all of them, a wave, or those of a device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.engine.agent import Seen
from fedrl.engine.evaluation import Returns, greedy_returns
from fedrl.engine.local_engine import LocalEngine
from fedrl.engine.state import Federation, server_keys
from fedrl.experiment.settings import Experiment
from fedrl.files import Array
from fedrl.keys import Purpose, replicate_key
from fedrl.learners.personalisation import Normaliser, statistics, with_statistics
from fedrl.strategies.aggregators import gathered, mean, mean_across


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


class Start(NamedTuple):
    """Where agents begin that do not begin from nothing; seeds first."""

    thetas: Array
    """(seeds, agents, varied constants): their environments."""
    params: Any
    """Each leaf (seeds, agents, ...)."""


class Played(NamedTuple):
    """What comes of an evaluation of one seed."""

    returns: Returns | None
    """As in `Record`, but only in the training environments of the agents at hand."""
    own: Returns | None
    average: Any
    """The averaged model."""


@dataclass(frozen=True)
class Programs:
    """The functions of one replicate that are compiled."""

    experiment: Experiment
    axis: str | None = None
    """Of a mesh of devices, over which the agents are spread."""

    @property
    def engine(self) -> LocalEngine:
        return LocalEngine(self.experiment, self.axis)

    def thetas(self, replicate: jax.Array) -> jax.Array:
        """Training environments, then held-out ones; the first few do not depend on how many."""
        experiment = self.experiment
        training = LocalEngine(experiment).thetas(replicate)
        key = replicate_key(experiment.seed, replicate, Purpose.HELD_OUT)
        return jnp.concatenate([training, experiment.family.sample(key, experiment.held_out)])

    def init(
        self, replicate: jax.Array, theta: jax.Array, agents: jax.Array, params: Any = None
    ) -> Federation:
        """Agents that are about to learn, from `params` if there are any."""
        engine = self.engine
        if params is None:
            params = engine.first_params(replicate, agents)
        return engine.init(params, engine.environments(replicate, theta, agents))

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
        engine = self.engine
        environments = engine.environments(replicate, theta, agents)
        return engine.advance(federation, environments, rounds, E, communicates=communicates)

    def receive(
        self,
        federation: Federation,
        replicate: jax.Array,
        theta: jax.Array,
        model: Any,
        agents: jax.Array,
    ) -> Federation:
        """Agents that get the server's model."""
        engine = self.engine
        return engine.receive(federation, model, engine.environments(replicate, theta, agents))

    def work(
        self,
        federation: Federation,
        replicate: jax.Array,
        theta: jax.Array,
        model: Any,
        agents: jax.Array,
        E: jax.Array,
    ) -> tuple[Federation, Any]:
        """What some of the agents do in a round: receive a model, if there is one, and learn.

        Also what they offer to the server.
        """
        if model is not None:
            federation = self.receive(federation, replicate, theta, model, agents)
        once = jnp.int32(1)
        after = self.train(federation, replicate, theta, agents, once, E, communicates=False)
        return after, self.engine.offered(after)

    def aggregate(
        self, offered: list[Any], before: Any, communications: jax.Array, replicate: jax.Array
    ) -> Any:
        """The server's model from what all agents offer, wave after wave."""
        engine = self.engine
        keys = server_keys(self.experiment.seed, replicate)
        return engine.aggregated(joined(offered), before, communications, keys)

    def average(self, params: Any) -> Any:
        """The averaged model.

        After a communication the shared leaves are equal, and this is the server's model. What is
        private is averaged too, to begin with in a new environment; no agent gets it. Statistics of
        observations are pooled: their variance also has the spread of the agents' means.
        """
        average = mean(params) if self.axis is None else mean_across(self.axis, params)
        seen = statistics(params)
        if not seen:
            return average
        if self.axis is not None:
            seen = gathered(self.axis, seen)
        return with_statistics(average, [Normaliser.pooled(stacked) for stacked in seen])

    def shape_of_models(self) -> Any:
        """The average, and where they have any also each agent's own; without numbers."""
        experiment = self.experiment
        params = jax.eval_shape(LocalEngine(experiment).first_params, jnp.int32(0))
        return jax.eval_shape(
            lambda params: with_own(self.average(params), params, experiment), params
        )

    def evaluate(
        self,
        params: Any,
        replicate: jax.Array,
        theta: jax.Array,
        trained: jax.Array,
        first: int | jax.Array = 0,
    ) -> Played:
        """Greedy returns of agents with these parameters, `first` being the first one's number.

        `theta` has their environments, then the held-out ones.
        """
        experiment = self.experiment
        everywhere = experiment.evaluation.where == "everywhere"
        play = partial(self.play, replicate=replicate, trained=trained)
        average = self.average(params)
        mine = jax.tree.leaves(params)[0].shape[0]
        numbers = jnp.concatenate(
            [first + jnp.arange(mine), experiment.agents + jnp.arange(experiment.held_out)]
        )
        returns = own = None
        if everywhere:
            shown = jax.tree.map(lambda leaf: leaf[None], average)
            if not experiment.communicates:
                everybody = params if self.axis is None else gathered(self.axis, params)
                shown = joined([shown, everybody])
            returns = play(shown, theta, numbers=numbers)
        if experiment.has_own_models and (experiment.communicates or not everywhere):
            own = play(params, theta[:mine], numbers=numbers[:mine], own=True)
        return Played(returns, own, average)

    def play(
        self,
        models: Any,
        theta: jax.Array,
        *,
        replicate: jax.Array,
        trained: jax.Array,
        own: bool = False,
        numbers: jax.Array | None = None,
    ) -> Returns:
        """Greedy returns of models after so much training (see `greedy_returns`)."""
        experiment, learner = self.experiment, self.experiment.learner
        key = replicate_key(experiment.seed, replicate, Purpose.EVALUATION)
        return greedy_returns(
            experiment.family,
            learner.policy,
            models,
            theta,
            jax.random.fold_in(key, trained),
            episodes=experiment.evaluation.episodes,
            gamma=learner.gamma,
            own=own,
            numbers=numbers,
        )


def with_own(average: Any, params: Any, experiment: Experiment) -> Any:
    """The models of one seed: the average, and the agents' own where they differ from it."""
    one = jax.tree.map(lambda leaf: leaf[None], average)
    return joined([one, params]) if experiment.has_own_models else one


def joined(trees: list[Any], axis: int = 0) -> Any:
    """Trees, one behind the other along an axis of each leaf."""
    if len(trees) == 1:
        return trees[0]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis), *trees)


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
        clock, communications = jax.tree.map(
            lambda leaf: leaf[0], (state.clock, state.communications)
        )

        def one(agents: Any, rows: Any, model: Any, *rest: Any) -> Any:
            federation = Federation(agents, rows, clock, model, communications)
            return program(federation, *rest, *given, **fixed)

        return jax.vmap(one)(state.agents, state.rows, state.model, *rest)

    return over_seeds


def spread(over_seeds: Callable[..., Any], mapped: int) -> Callable[..., Any]:
    """Arguments one by one, so that the first can be donated; the first few are of seeds."""

    def program(*arguments: Any, **fixed: Any) -> Any:
        return over_seeds(arguments[:mapped], *arguments[mapped:], **fixed)

    return program


def drawn_thetas(programs: Programs) -> Array:
    """The environments of every seed."""
    seeds = np.arange(programs.experiment.seeds, dtype=np.int32)
    return np.asarray(jax.jit(jax.vmap(programs.thetas))(seeds))
