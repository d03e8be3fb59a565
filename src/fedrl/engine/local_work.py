"""The local work of agents between two communications: units of acting and learning.

One unit is an update followed by the environment steps that go with it. In this order the batch is
read before anything is written, and the replay is updated in place; the other way round XLA copies
it every step. Learners that are on-policy act first: the parameters that an update begins with are
then those that took its steps, also after a communication.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from fedrl.engine.agent import (
    Agent,
    BatchDraws,
    Clock,
    Keys,
    OneAgent,
    StepDraws,
    finite,
    first_time,
)
from fedrl.engine.state import Environments, Federation, unless_waiting, where_active
from fedrl.experiment.settings import Experiment
from fedrl.families.control_family import without_idle
from fedrl.launches import few_launches
from fedrl.learners.learner import Correct
from fedrl.learners.replay import next_row, store
from fedrl.strategies.corrections import Broadcast, NoCorrection

Tree = TypeVar("Tree")

# Environment steps whose random numbers are drawn together, in whole units.
BLOCK = 32
# Units that are written out one after the other where launches of kernels are what takes the time.
UNROLLED = 4


class Draws(NamedTuple):
    """Random numbers of one unit."""

    steps: StepDraws
    batch: BatchDraws


@dataclass(frozen=True)
class LocalWork:
    """What the agents of an experiment do by themselves; every function is pure."""

    experiment: Experiment

    def do(self, federation: Federation, environments: Environments, E: jax.Array) -> Federation:
        """E units (or episodes) of every agent, in blocks that share the drawing of numbers."""
        size = self._block

        def block(
            count: jax.Array | int,
            federation: Federation,
            unroll: int | None = None,
            enough: jax.Array | None = None,
        ) -> Federation:
            draws = self._block_draws(federation.clock, environments.keys)

            def unit(j: jax.Array, now: Federation) -> Federation:
                return self._unit(now, environments, at(draws, j), enough)

            return repeat(count, unit, federation, unroll)

        if self.experiment.unit == "episodes":
            enough = federation.agents.seen.episodes + E
            done: Federation = jax.lax.while_loop(
                lambda now: jnp.any(now.agents.seen.episodes < enough),
                lambda now: block(size, now, enough=enough),
                federation,
            )
            return done
        if few_launches():
            # A loop of known length needs no host to say when it ends; what is left does.
            unroll = min(UNROLLED, size)
            whole = repeat(E // size, lambda _, now: block(size, now, unroll), federation)
            return block(E % size, whole)
        return repeat(
            (E + size - 1) // size,
            lambda i, now: block(jnp.minimum(E - i * size, size), now),
            federation,
        )

    def fill(self, federation: Federation, environments: Environments) -> Federation:
        """Let the agents explore until there is enough to learn from in the first unit."""
        learner = self.experiment.learner
        acts_first = learner.update_every if learner.on_policy else 0
        draw = jax.vmap(self._one.step_draws, in_axes=(0, self._clock_axis))

        def step(_: jax.Array, now: Federation) -> Federation:
            return self._interact(now, environments, draw(environments.keys, now.clock.steps))

        return repeat(max(learner.learning_starts - acts_first, 0), step, federation)

    def rejoin(self, federation: Federation, environments: Environments) -> Federation:
        """Agents whose environments are there: a run that goes on has lost those on its host."""
        if not self.experiment.family.keeps_environments:
            return federation
        agents = federation.agents
        worlds = jax.vmap(self._one.rejoined, in_axes=(0, 0, 0, self._clock_axis))(
            agents.world, environments.constants, environments.keys, federation.clock.steps
        )
        return federation._replace(agents=agents._replace(world=worlds))

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
        if self.experiment.learner.on_policy:
            return self._learn(self._act(federation, environments, draws, enough), draws, enough)
        return self._act(self._learn(federation, draws, enough), environments, draws, enough)

    def _learn(self, federation: Federation, draws: Draws, enough: jax.Array | None) -> Federation:
        """One update of every agent that is not waiting."""
        agents, rows, clock = federation[:3]
        # Agents that work from models of different rounds have each received something else.
        apart = federation.underway != ()
        received = federation.underway.received if apart else federation.server.sent

        correction = self.experiment.correction
        plain = type(correction) is NoCorrection

        def learned(
            agent: Agent, rows: jax.Array, clock: Clock, draws: BatchDraws, received: Broadcast
        ) -> Agent:
            correct = None if plain else Correct(correction, received)
            return self._one.learn(agent, rows, clock, draws, correct)

        learnt = jax.vmap(learned, in_axes=(0, 0, self._clock_axis, 0, 0 if apart else None))(
            agents, rows, clock, draws.batch, received
        )
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

        def step(i: jax.Array | int, now: Federation) -> Federation:
            return self._interact(now, environments, at(draws.steps, i), enough)

        k = self.experiment.learner.update_every
        return step(0, federation) if k == 1 else repeat(k, step, federation)

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
        agents, new = jax.vmap(self._one.interact, in_axes=(0, self._clock_axis, 0, 0))(
            agents, clock, environments.constants, draws
        )
        if enough is not None:
            # A waiting agent writes what is there already.
            new = where_active(active, new, jax.vmap(next_row)(rows, clock.stored))
        rows = jax.vmap(store, in_axes=(0, 0, self._clock_axis))(rows, new, clock.stored)
        clock = clock._replace(steps=clock.steps + 1, stored=clock.stored + 1)
        after = federation._replace(agents=agents, rows=rows, clock=clock)
        return after if enough is None else unless_waiting(federation, after, enough)

    def _block_draws(self, clock: Clock, keys: Keys) -> Draws:
        """The random numbers of the next units: units first, then steps in a unit, then agents."""
        k, both = self.experiment.learner.update_every, (0, self._clock_axis)
        draw_steps = jax.vmap(self._one.step_draws, in_axes=both)
        draw_batches = jax.vmap(self._one.batch_draws, in_axes=both)
        units, within = jnp.arange(self._block), jnp.arange(k)

        def steps_of_unit(j: jax.Array) -> StepDraws:
            draws: StepDraws = jax.vmap(lambda i: draw_steps(keys, clock.steps + j * k + i))(within)
            return draws

        return Draws(
            jax.vmap(steps_of_unit)(units),
            jax.vmap(lambda j: draw_batches(keys, clock.updates + j))(units),
        )

    @property
    def _one(self) -> OneAgent:
        return OneAgent(self.experiment.family, self.experiment.learner)

    @property
    def _block(self) -> int:
        """Units whose random numbers are drawn together."""
        return max(BLOCK // self.experiment.learner.update_every, 1)

    @property
    def _clock_axis(self) -> int | None:
        return None if self.experiment.lockstep else 0


def notice(federation: Federation) -> Federation:
    """The agents, knowing whether the parameters are finite that their next update begins with."""
    agents, updates = federation.agents, federation.clock.updates + 1
    bad = ~jax.vmap(finite)(agents.learned.params)
    seen = agents.seen._replace(bad_update=first_time(bad, agents.seen.bad_update, updates))
    return federation._replace(agents=agents._replace(seen=seen))


def repeat(
    count: jax.Array | int,
    body: Callable[[jax.Array, Federation], Federation],
    federation: Federation,
    unroll: int | None = None,
) -> Federation:
    """body(count - 1, ... body(1, body(0, federation))); only a known count can be unrolled."""
    result: Federation = jax.lax.fori_loop(0, count, body, federation, unroll=unroll)
    return result


def at(tree: Tree, index: jax.Array | int) -> Tree:
    """Entry `index` along the first axis of every leaf."""
    result: Tree = jax.tree.map(
        lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, 0, keepdims=False), tree
    )
    return result
