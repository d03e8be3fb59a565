"""The agents' side of a round: begin, receive, work, offer, evaluate.

A `Client` is about any agents of one replicate, given by their environments: all of them, a wave,
those of a device, or the only one that lives on a machine of a network. Its functions are pure.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from fedrl.engine.agent import (
    Agent,
    Clock,
    World,
    agent_keys,
    nothing_seen,
    offer,
    receive,
    stacked,
    untrained,
)
from fedrl.engine.evaluation import Returns, greedy_returns
from fedrl.engine.local_work import LocalWork, notice
from fedrl.engine.simulated_time import after_work, draw_pace, first_underway
from fedrl.engine.state import Environments, Federation, server_keys
from fedrl.experiment.settings import Experiment
from fedrl.families.control_family import Constants
from fedrl.keys import Purpose, replicate_key, with_numbers
from fedrl.learners.learner import Learned
from fedrl.learners.personalisation import Normaliser, of_each
from fedrl.strategies.aggregators import gathered, mean, mean_across
from fedrl.strategies.corrections import Offer
from fedrl.strategies.strategy import ServerState

# The "step" whose numbers an agent's first world is made from; steps count from 0.
FIRST_RESET = (1 << 32) - 1


class Played(NamedTuple):
    """What comes of an evaluation of one seed."""

    returns: Returns | None
    """(models, environments): training environments of the agents at hand, then the held-out ones.
    The average is model 0; without communication the agents' own models follow. None where only
    each agent's own environment counts."""
    own: Returns | None
    """(agents,): each agent's own model in its own environment, where `returns` has no such."""
    average: Any
    """The averaged model."""


@dataclass(frozen=True)
class Client(LocalWork):
    """Agents of an experiment, in one program."""

    axis: str | None = None
    """Of a mesh of devices, over which the agents are spread; each device then has some of them."""

    def thetas(self, replicate: jax.Array) -> jax.Array:
        """What the agents' environments are drawn as."""
        key = replicate_key(self.experiment.seed, replicate, Purpose.ENVIRONMENTS)
        return self.experiment.family.sample(key, self.experiment.agents)

    def all_thetas(self, replicate: jax.Array) -> jax.Array:
        """Training environments, then held-out ones; the first few do not depend on how many."""
        experiment = self.experiment
        key = replicate_key(experiment.seed, replicate, Purpose.HELD_OUT)
        held_out = experiment.family.sample(key, experiment.held_out)
        return jnp.concatenate([self.thetas(replicate), held_out])

    def environments(
        self, replicate: jax.Array, theta: jax.Array, agents: jax.Array | None = None
    ) -> Environments:
        """The environments of all agents, or of those with these numbers.

        Their random numbers do not depend on theta.
        """
        experiment = self.experiment
        agents = jnp.arange(experiment.agents) if agents is None else agents
        keys = jax.vmap(lambda agent: agent_keys(experiment.seed, replicate, agent))(agents)
        constants = jax.vmap(experiment.family.constants)(theta)
        pace = draw_pace(experiment, replicate)
        return Environments(constants, keys, server_keys(experiment.seed, replicate), pace)

    def first_params(self, replicate: jax.Array, agents: jax.Array | None = None) -> Any:
        """Parameters that nobody has trained, for all agents or those with these numbers."""
        key = replicate_key(self.experiment.seed, replicate, Purpose.NETWORK)
        family, learner = self.experiment.family, self.experiment.learner
        agents = jnp.arange(self.experiment.agents) if agents is None else agents

        def drawn(key: jax.Array) -> Any:
            return learner.init(key, family.observation_size, family.actions).params

        if self.experiment.initialisation == "shared":
            params = stacked(drawn(jax.random.fold_in(key, 0)), agents.size)
        else:
            params = jax.vmap(drawn)(with_numbers(key, agents))
        # Also where everything else is shared, an embedding is the agent's own from the start.
        key = replicate_key(self.experiment.seed, replicate, Purpose.EMBEDDING)
        return jax.vmap(learner.personal.with_new_embeddings)(params, with_numbers(key, agents))

    def begin(self, params: Any, environments: Environments) -> Federation:
        """Agents with these parameters that have explored just enough to begin to learn."""
        family, learner = self.experiment.family, self.experiment.learner
        shared, _ = learner.split(params)
        model = jax.tree.map(lambda leaf: leaf[0], shared)
        server = self.experiment.strategy.begin(model, learner.parts(model))

        def world(key: jax.Array, constants: Constants) -> World:
            start = family.begin(family.reset(jax.random.fold_in(key, FIRST_RESET)), constants)
            return self._one.new_world(start)

        worlds = jax.vmap(world)(environments.keys.acting, environments.constants)
        n = worlds.steps.shape[0]
        learned = jax.vmap(partial(untrained, self.experiment))(params)
        agents = Agent(learned, worlds, stacked(nothing_seen(), n))
        rows = stacked(learner.empty(*family.remembered), n)
        zero = jnp.zeros(() if self.experiment.lockstep else (n,), jnp.int32)
        begun = Federation(agents, rows, Clock(zero, zero, zero), server)
        begun = first_underway(self.experiment, begun, environments)
        return self.fill(begun, environments)

    def receive(
        self,
        federation: Federation,
        server: ServerState,
        environments: Environments,
        counted: jax.Array | bool = True,
    ) -> Federation:
        """Give every agent what the server has sent.

        `counted` says whether the server has used what the agents offered last.
        """
        experiment, sent = self.experiment, server.sent
        agents, clock = federation.agents, federation.clock

        def one(learned: Learned) -> Learned:
            return receive(experiment, learned, sent, counted)

        agents = agents._replace(learned=jax.vmap(one)(agents.learned))
        federation = federation._replace(agents=agents, server=server)
        if experiment.survives.replay:
            return federation
        emptied = federation._replace(clock=clock._replace(stored=jnp.zeros_like(clock.stored)))
        return self.fill(self.rejoin(emptied, environments), environments)

    def work(self, federation: Federation, environments: Environments, E: jax.Array) -> Federation:
        """E units of local work of every agent at hand, while the others do theirs."""
        everybody = jnp.arange(self.experiment.agents)
        worked = self.do(self.rejoin(federation, environments), environments, E)
        return notice(after_work(self.experiment, worked, environments, everybody, E))

    def offer(self, federation: Federation) -> Offer:
        """What leaves the agents: the shared parameters, and what the correction adds to them."""
        offers: Offer = jax.vmap(partial(offer, self.experiment))(federation.agents.learned)
        return offers

    def evaluate(
        self,
        params: Any,
        server: ServerState,
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
        average = self.shown(params, server)
        mine = jax.tree.leaves(params)[0].shape[0]
        numbers = jnp.concatenate(
            [first + jnp.arange(mine), experiment.agents + jnp.arange(experiment.held_out)]
        )
        returns = own = None
        if everywhere:
            shown = jax.tree.map(lambda leaf: leaf[None], average)
            if not experiment.communicates:
                everybody = params if self.axis is None else gathered(self.axis, params)
                shown = concatenate([shown, everybody])
            returns = play(shown, theta, numbers=numbers)
        if experiment.has_own_models and (experiment.communicates or not everywhere):
            own = play(params, theta[:mine], numbers=numbers[:mine], own=True)
        return Played(returns, own, average)

    def shown(self, params: Any, server: ServerState) -> Any:
        """The model that is evaluated and kept: the averaged one."""
        average = self.average(params)
        if not self.experiment.timing.arrivals:
            return average
        # Agents still have older models than the server.
        _, private = self.experiment.learner.split(average)
        return eqx.combine(server.sent.model, private)

    def average(self, params: Any) -> Any:
        """The averaged model.

        After a communication the shared leaves are equal, and this is the server's model. What is
        private is averaged too, to begin with in a new environment; no agent gets it. Statistics of
        observations are pooled: their variance also has the spread of the agents' means.
        """
        average = mean(params) if self.axis is None else mean_across(self.axis, params)

        def pooled(seen: Normaliser, _: Normaliser) -> Normaliser:
            return Normaliser.pooled(seen if self.axis is None else gathered(self.axis, seen))

        return of_each(Normaliser, pooled, params, average)

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
    return concatenate([one, params]) if experiment.has_own_models else one


def shape_of_models(experiment: Experiment) -> Any:
    """The average, and where they have any also each agent's own; without numbers."""
    client = Client(experiment)
    params = jax.eval_shape(client.first_params, jnp.int32(0))
    return jax.eval_shape(
        lambda params: with_own(client.average(params), params, experiment), params
    )


def concatenate(trees: list[Any], axis: int = 0) -> Any:
    """Concatenate trees along an axis of each leaf."""
    if len(trees) == 1:
        return trees[0]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis), *trees)
