"""All agents of one replicate in one compiled program: local work, then a communication, in rounds.

One unit of local work is an update followed by the environment steps that go with it. In this order
the batch is read before anything is written, and the replay is updated in place; the other way
round XLA copies it every step. Learners that are on-policy act first: the parameters that an update
begins with are then those that took its steps, also after a communication.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from fedrl.engine.agent import (
    Agent,
    BatchDraws,
    Clock,
    Keys,
    StepDraws,
    World,
    agent_keys,
    batch_draws,
    finite,
    first_time,
    interact,
    learn,
    new_world,
    nothing_seen,
    receive,
    rejoined,
    stacked,
    step_draws,
)
from fedrl.engine.state import (
    Environments,
    Federation,
    ServerKeys,
    chosen,
    put_back,
    server_keys,
    some,
    unless_waiting,
    where_active,
)
from fedrl.experiment.settings import Experiment
from fedrl.families.control_family import Constants, ControlFamily, without_idle
from fedrl.keys import Purpose, replicate_key, with_numbers
from fedrl.launches import few_launches
from fedrl.learners.learner import Learner
from fedrl.learners.replay import next_row, store
from fedrl.strategies.aggregators import Communication

Tree = TypeVar("Tree")

# Environment steps whose random numbers are drawn together, in whole units.
BLOCK = 32
# Units that are written out one after the other where launches of kernels are what takes the time.
UNROLLED = 4
# The "step" whose numbers an agent's first world is made from; steps count from 0.
FIRST_RESET = (1 << 32) - 1


class Draws(NamedTuple):
    """Random numbers of one unit."""

    steps: StepDraws
    batch: BatchDraws


@dataclass(frozen=True)
class LocalEngine:
    """The programs of an experiment; every function is pure and about one replicate."""

    experiment: Experiment
    axis: str | None = None
    """Of a mesh of devices, over which the agents are spread; each device then has some of them."""

    @property
    def _family(self) -> ControlFamily:
        return self.experiment.family

    @property
    def _learner(self) -> Learner:
        return self.experiment.learner

    def thetas(self, replicate: jax.Array) -> jax.Array:
        """What the agents' environments are drawn as."""
        key = replicate_key(self.experiment.seed, replicate, Purpose.ENVIRONMENTS)
        return self._family.sample(key, self.experiment.agents)

    def environments(
        self, replicate: jax.Array, theta: jax.Array, agents: jax.Array | None = None
    ) -> Environments:
        """The environments of all agents, or of those with these numbers.

        Their random numbers do not depend on theta.
        """
        agents = jnp.arange(self.experiment.agents) if agents is None else agents
        keys = jax.vmap(lambda agent: agent_keys(self.experiment.seed, replicate, agent))(agents)
        constants = jax.vmap(self._family.constants)(theta)
        return Environments(constants, keys, server_keys(self.experiment.seed, replicate))

    def first_params(self, replicate: jax.Array, agents: jax.Array | None = None) -> Any:
        """Parameters that nobody has trained, for all agents or those with these numbers."""
        key = replicate_key(self.experiment.seed, replicate, Purpose.NETWORK)
        family, learner = self._family, self._learner
        agents = jnp.arange(self.experiment.agents) if agents is None else agents

        def untrained(key: jax.Array) -> Any:
            return learner.init(key, family.observation_size, family.actions).params

        if self.experiment.initialisation == "shared":
            params = stacked(untrained(jax.random.fold_in(key, 0)), agents.size)
        else:
            params = jax.vmap(untrained)(with_numbers(key, agents))
        # Also where everything else is shared, an embedding is the agent's own from the start.
        key = replicate_key(self.experiment.seed, replicate, Purpose.EMBEDDING)
        return jax.vmap(learner.personal.with_new_embeddings)(params, with_numbers(key, agents))

    def init(self, params: Any, environments: Environments) -> Federation:
        """Agents with these parameters that have explored just enough to begin to learn."""
        family, learner = self._family, self._learner
        first = jax.vmap(learner.adopt)(params)

        def world(key: jax.Array, constants: Constants) -> World:
            start = family.begin(family.reset(jax.random.fold_in(key, FIRST_RESET)), constants)
            return new_world(family, learner, start)

        worlds = jax.vmap(world)(environments.keys.acting, environments.constants)
        n = worlds.steps.shape[0]
        agents = Agent(first, worlds, stacked(nothing_seen(), n))
        rows = stacked(learner.empty(*family.remembered), n)
        zero = jnp.zeros(() if self.experiment.lockstep else (n,), jnp.int32)
        model = jax.tree.map(lambda leaf: leaf[0], self._learner.split(params)[0])
        begun = Federation(agents, rows, Clock(zero, zero, zero), model, jnp.int32(0))
        return self._fill(begun, environments)

    def advance(
        self,
        federation: Federation,
        environments: Environments,
        rounds: jax.Array,
        E: jax.Array,
        *,
        communicates: bool = True,
    ) -> Federation:
        """`rounds` times: E units of local work, then a communication (if there is any)."""
        communicates = communicates and self.experiment.communicates

        def one_round(_: jax.Array, federation: Federation) -> Federation:
            if self.experiment.participants == self.experiment.agents:
                federation = self._local_work(federation, environments, E)
            else:
                who = self._chosen(federation, environments)
                after = self._local_work(*some(federation, environments, who), E)
                federation = put_back(federation, after, who)
            return self._communicate(federation, environments) if communicates else federation

        return _noticed(_repeat(rounds, one_round, self._rejoined(federation, environments)))

    def _rejoined(self, federation: Federation, environments: Environments) -> Federation:
        """Agents whose environments are there: a run that goes on has lost those on its host."""
        if not self._family.keeps_environments:
            return federation
        agents = federation.agents
        worlds = jax.vmap(
            partial(rejoined, self._family, self._learner),
            in_axes=(0, 0, 0, self._clock_axis),
        )(agents.world, environments.constants, environments.keys, federation.clock.steps)
        return federation._replace(agents=agents._replace(world=worlds))

    def _chosen(self, federation: Federation, environments: Environments) -> jax.Array:
        """Who takes part in the round that is under way."""
        key = jax.random.fold_in(environments.server.choosing, federation.communications)
        return chosen(key, self.experiment.agents, self.experiment.participants)

    def _communicate(self, federation: Federation, environments: Environments) -> Federation:
        shared = self.offered(federation)
        if self.experiment.participants < self.experiment.agents:
            who = self._chosen(federation, environments)
            shared = jax.tree.map(lambda leaf: leaf[who], shared)
        model = self.aggregated(
            shared, federation.model, federation.communications, environments.server
        )
        return self.receive(federation, model, environments)

    def offered(self, federation: Federation) -> Any:
        """What leaves the agents: only what is shared, and only that comes back."""
        shared, _ = self._learner.split(federation.agents.learned.params)
        return shared

    def aggregated(
        self, shared: Any, before: Any, communications: jax.Array, server: ServerKeys
    ) -> Any:
        """What the server makes of it, after so many communications."""
        choosing = jax.random.fold_in(server.choosing, communications)
        communication = Communication(
            before=before if self.experiment.initialisation == "shared" else None,
            agents=chosen(choosing, self.experiment.agents, self.experiment.participants),
            key=jax.random.fold_in(server.noise, communications),
        )
        if self.axis is None:
            return self.experiment.aggregator.apply(shared, communication)
        return self.experiment.aggregator.across(self.axis, shared, communication)

    def receive(self, federation: Federation, model: Any, environments: Environments) -> Federation:
        """Every agent gets the shared leaves from the server."""
        agents, clock = federation.agents, federation.clock
        adopt = partial(receive, self._learner, self.experiment.survives, model=model)
        learned = jax.vmap(adopt)(agents.learned)
        federation = federation._replace(
            agents=agents._replace(learned=learned),
            model=model,
            communications=federation.communications + 1,
        )
        if self.experiment.survives.replay:
            return federation
        emptied = federation._replace(clock=clock._replace(stored=jnp.zeros_like(clock.stored)))
        return self._fill(self._rejoined(emptied, environments), environments)

    def _fill(self, federation: Federation, environments: Environments) -> Federation:
        """Let the agents explore until there is enough to learn from in the first unit."""
        axis, learner = self._clock_axis, self._learner
        acts_first = learner.update_every if learner.on_policy else 0

        def step(_: jax.Array, federation: Federation) -> Federation:
            draw = jax.vmap(
                partial(step_draws, self._family, self._learner),
                in_axes=(0, axis),
            )
            draws = draw(environments.keys, federation.clock.steps)
            return self._interact(federation, environments, draws)

        return _repeat(max(learner.learning_starts - acts_first, 0), step, federation)

    def _local_work(
        self, federation: Federation, environments: Environments, E: jax.Array
    ) -> Federation:
        """E units (or episodes) of every agent, in blocks that share the drawing of numbers."""
        if self.experiment.unit == "updates":
            size = self._block

            def block(
                count: jax.Array | int, federation: Federation, unroll: int | None = None
            ) -> Federation:
                draws = self._block_draws(federation.clock, environments.keys)
                return _repeat(
                    count,
                    lambda j, federation: self._unit(federation, environments, _at(draws, j)),
                    federation,
                    unroll,
                )

            if few_launches():
                # A loop of known length needs no host to say when it ends; what is left does.
                unroll = min(UNROLLED, size)
                whole = _repeat(E // size, lambda _, now: block(size, now, unroll), federation)
                return block(E % size, whole)
            return _repeat(
                (E + size - 1) // size,
                lambda i, now: block(jnp.minimum(E - i * size, size), now),
                federation,
            )

        enough = federation.agents.seen.episodes + E

        def unfinished(federation: Federation) -> jax.Array:
            return jnp.any(federation.agents.seen.episodes < enough)

        def episodes_block(federation: Federation) -> Federation:
            draws = self._block_draws(federation.clock, environments.keys)
            return _repeat(
                self._block,
                lambda j, federation: self._unit(federation, environments, _at(draws, j), enough),
                federation,
            )

        done: Federation = jax.lax.while_loop(unfinished, episodes_block, federation)
        return done

    def _unit(
        self,
        federation: Federation,
        environments: Environments,
        draws: Draws,
        enough: jax.Array | None = None,
    ) -> Federation:
        """One update of every agent, and after or before it the environment steps that go with it.

        Agents that have finished `enough` episodes wait: nothing of theirs changes.
        """
        if self._learner.on_policy:
            return self._learn(self._act(federation, environments, draws, enough), draws, enough)
        return self._act(self._learn(federation, draws, enough), environments, draws, enough)

    def _learn(self, federation: Federation, draws: Draws, enough: jax.Array | None) -> Federation:
        """One update of every agent that is not waiting."""
        agents, rows, clock = federation[:3]
        learnt = jax.vmap(
            partial(learn, self._family, self._learner),
            in_axes=(0, 0, self._clock_axis, 0),
        )(agents, rows, clock, draws.batch)
        clock = clock._replace(updates=clock.updates + 1)
        after = federation._replace(agents=learnt, clock=clock)
        return after if enough is None else unless_waiting(federation, after, enough)

    def _act(
        self,
        federation: Federation,
        environments: Environments,
        draws: Draws,
        enough: jax.Array | None,
    ) -> Federation:
        """The environment steps of a unit."""
        if self._learner.update_every == 1:
            return self._interact(federation, environments, _at(draws.steps, 0), enough)
        return _repeat(
            self._learner.update_every,
            lambda i, now: self._interact(now, environments, _at(draws.steps, i), enough),
            federation,
        )

    def _interact(
        self,
        federation: Federation,
        environments: Environments,
        draws: StepDraws,
        enough: jax.Array | None = None,
    ) -> Federation:
        """One environment step of every agent that is not waiting."""
        agents, rows, clock = federation[:3]
        if enough is not None:
            # The environments of waiting agents stay where they are, also those on a host.
            active = agents.seen.episodes < enough
            world = agents.world._replace(state=without_idle(active, agents.world.state))
            agents = agents._replace(world=world)
        agents, new = jax.vmap(
            partial(interact, self._family, self._learner),
            in_axes=(0, self._clock_axis, 0, 0),
        )(agents, clock, environments.constants, draws)
        if enough is not None:
            # A waiting agent writes what is there already.
            new = where_active(active, new, jax.vmap(next_row)(rows, clock.stored))
        rows = jax.vmap(store, in_axes=(0, 0, self._clock_axis))(rows, new, clock.stored)
        clock = clock._replace(steps=clock.steps + 1, stored=clock.stored + 1)
        after = federation._replace(agents=agents, rows=rows, clock=clock)
        return after if enough is None else unless_waiting(federation, after, enough)

    def _block_draws(self, clock: Clock, keys: Keys) -> Draws:
        """The random numbers of the next units: units first, then steps in a unit, then agents."""
        k = self._learner.update_every
        axis = self._clock_axis
        both = (self._family, self._learner)
        draw_steps = jax.vmap(partial(step_draws, *both), in_axes=(0, axis))
        draw_batches = jax.vmap(partial(batch_draws, *both), in_axes=(0, axis))
        units, within = jnp.arange(self._block), jnp.arange(k)

        def steps_of_unit(j: jax.Array) -> StepDraws:
            draws: StepDraws = jax.vmap(lambda i: draw_steps(keys, clock.steps + j * k + i))(within)
            return draws

        return Draws(
            jax.vmap(steps_of_unit)(units),
            jax.vmap(lambda j: draw_batches(keys, clock.updates + j))(units),
        )

    @property
    def _block(self) -> int:
        """Units whose random numbers are drawn together."""
        return max(BLOCK // self._learner.update_every, 1)

    @property
    def _clock_axis(self) -> int | None:
        return None if self.experiment.lockstep else 0


def _noticed(federation: Federation) -> Federation:
    """The agents, knowing whether the parameters are finite that their next update begins with."""
    agents, updates = federation.agents, federation.clock.updates + 1
    bad = ~jax.vmap(finite)(agents.learned.params)
    seen = agents.seen._replace(bad_update=first_time(bad, agents.seen.bad_update, updates))
    return federation._replace(agents=agents._replace(seen=seen))


def _repeat(
    count: jax.Array | int,
    body: Callable[[jax.Array, Federation], Federation],
    federation: Federation,
    unroll: int | None = None,
) -> Federation:
    """body(count - 1, ... body(1, body(0, federation))); only a known count can be unrolled."""
    result: Federation = jax.lax.fori_loop(0, count, body, federation, unroll=unroll)
    return result


def _at(tree: Tree, index: jax.Array | int) -> Tree:
    """Entry `index` along the first axis of every leaf."""
    result: Tree = jax.tree.map(
        lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, 0, keepdims=False), tree
    )
    return result
