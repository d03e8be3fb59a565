"""One agent in its own environment: acting, remembering, learning.

Everything here is about a single agent; engines run many with `vmap`. The counters that agents in
lock-step share stay outside `Agent`, so that an engine can leave them unbatched: a ring written at
one common position is an in-place update, at many it is a scatter.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from fedrl.experiment.settings import Experiment
from fedrl.families.control_family import Constants, ControlFamily, State
from fedrl.keys import Purpose, replicate_key
from fedrl.learners.learner import Correct, Learned, Learner
from fedrl.learners.replay import Transition
from fedrl.strategies.corrections import Broadcast, Offer
from fedrl.strategies.purity import hiding_nothing


class World(NamedTuple):
    """An environment in the middle of an episode."""

    state: State
    steps: jax.Array
    collected: jax.Array
    """Undiscounted return so far."""
    noise: Any
    """What the agent's exploration remembers."""


class Seen(NamedTuple):
    """Sums since somebody last looked, and when the agent first met what is no finite number."""

    loss: jax.Array
    updates: jax.Array
    collected: jax.Array
    episodes: jax.Array
    bad_reward: jax.Array
    """Updates done when a reward was first not finite; or NEVER."""
    bad_update: jax.Array
    """The first update with a loss, or parameters before it, that were not finite; or NEVER."""

    def cleared(self) -> "Seen":
        """With sums of nothing; what was not finite is not forgotten."""
        zeros: Seen = jax.tree.map(jnp.zeros_like, self)
        return zeros._replace(bad_reward=self.bad_reward, bad_update=self.bad_update)


class Agent(NamedTuple):
    """What is private to an agent but for its memory and counters."""

    learned: Learned
    world: World
    seen: Seen


class Clock(NamedTuple):
    """How far an agent is."""

    steps: jax.Array
    updates: jax.Array
    stored: jax.Array
    """Steps remembered since the replay was last emptied."""


class StepDraws(NamedTuple):
    """Random numbers of one environment step."""

    action: Any
    reset: State


class BatchDraws(NamedTuple):
    """Random numbers of one update."""

    pick: jax.Array
    update: Any


NEVER = -1
"""In place of a number of updates."""


class Keys(NamedTuple):
    """Roots of an agent's random numbers."""

    acting: jax.Array
    sampling: jax.Array


def nothing_seen() -> Seen:
    """Sums of nothing."""
    return Seen(
        loss=jnp.float32(0),
        updates=jnp.int32(0),
        collected=jnp.float32(0),
        episodes=jnp.int32(0),
        bad_reward=jnp.int32(NEVER),
        bad_update=jnp.int32(NEVER),
    )


def first_time(bad: jax.Array, before: jax.Array, now: jax.Array) -> jax.Array:
    """When something was first `bad`: `before`, unless that is NEVER and it is so `now`."""
    return jnp.where(bad & (before == NEVER), now, before)


def finite(tree: Any) -> jax.Array:
    """Whether every number of a tree is finite."""
    leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]
    return jnp.all(jnp.stack(leaves)) if leaves else jnp.bool_(True)


def agent_keys(seed: int, replicate: jax.Array, agent: jax.Array) -> Keys:
    """Keys of one agent of one replicate."""

    def key(purpose: Purpose) -> jax.Array:
        return jax.random.fold_in(replicate_key(seed, replicate, purpose), agent)

    return Keys(key(Purpose.ACTING), key(Purpose.SAMPLING))


@dataclass(frozen=True)
class OneAgent:
    """What a single agent does in its own environment; every function is pure."""

    family: ControlFamily
    learner: Learner

    def new_world(self, state: State) -> World:
        """The beginning of an episode."""
        noise = self.learner.noise(self.family.actions)
        return World(state, jnp.int32(0), jnp.float32(0), noise)

    def step_draws(self, keys: Keys, step: jax.Array) -> StepDraws:
        """The random numbers of step number `step`, whatever was drawn before."""
        key = jax.random.fold_in(keys.acting, step)
        return StepDraws(
            action=self.learner.acting_draws(jax.random.fold_in(key, 0), self.family.actions),
            reset=self.family.reset(jax.random.fold_in(key, 1)),
        )

    def batch_draws(self, keys: Keys, update: jax.Array) -> BatchDraws:
        """The random numbers of update number `update`."""
        key = jax.random.fold_in(keys.sampling, update)
        return BatchDraws(
            pick=jax.random.uniform(key, (self.learner.batch,)),
            update=self.learner.update_draws(jax.random.fold_in(key, 0), self.family.actions),
        )

    def rejoined(self, world: World, constants: Constants, keys: Keys, step: jax.Array) -> World:
        """The same world; where its environment is gone, as after a resume, a new episode in it."""
        key = jax.random.fold_in(jax.random.fold_in(keys.acting, step), 2)
        state, lost = self.family.rejoin(world.state, constants, self.family.reset(key))
        afresh = self.new_world(state)
        same: World = jax.tree.map(lambda new, old: jnp.where(lost, new, old), afresh, world)
        return same

    def interact(
        self, agent: Agent, clock: Clock, constants: Constants, draws: StepDraws
    ) -> tuple[Agent, jax.Array]:
        """One environment step, and what to remember of it. After an episode a new one begins."""
        family, learner, world = self.family, self.learner, agent.world
        observation = family.observe(world.state)
        action, noise = learner.act(
            agent.learned.params, observation, world.noise, draws.action, clock.updates
        )
        state, reward, terminated, cut, first = family.step_and_renew(
            world.state, learner.executed(action), constants, draws.reset
        )
        transition = Transition(observation, action, reward, family.observe(state), terminated)
        steps, collected = world.steps + 1, world.collected + reward
        cut = cut | (steps >= family.time_limit)
        done = terminated | cut
        seen = agent.seen._replace(
            collected=agent.seen.collected + jnp.where(done, collected, 0.0),
            episodes=agent.seen.episodes + done,
            # Where the action is none either, the agent is to blame and not the environment.
            bad_reward=first_time(
                ~jnp.isfinite(reward) & finite(action), agent.seen.bad_reward, clock.updates
            ),
        )
        learned, row = self.remember(agent.learned, transition, cut)
        going_on, afresh = World(state, steps, collected, noise), self.new_world(first)
        world = jax.tree.map(lambda old, new: jnp.where(done, new, old), going_on, afresh)
        return Agent(learned, world, seen), row

    def remember(
        self, learned: Learned, step: Transition, cut: jax.Array
    ) -> tuple[Learned, jax.Array]:
        """What an agent has learnt after a step taken with `learned`, and the row to store."""
        seen = self.learner.witness(learned, step.observation)
        return seen, self.learner.row(learned.params, step, cut)

    def learn(
        self,
        agent: Agent,
        rows: jax.Array,
        clock: Clock,
        draws: BatchDraws,
        correct: Correct | None,
    ) -> Agent:
        """One update from a batch of the agent's own memory."""
        number = clock.updates + 1
        learned, loss = self.improve(agent.learned, rows, clock.stored, number, draws, correct)
        seen = agent.seen._replace(
            loss=agent.seen.loss + loss,
            updates=agent.seen.updates + 1,
            bad_update=first_time(~jnp.isfinite(loss), agent.seen.bad_update, number),
        )
        return agent._replace(learned=learned, seen=seen)

    def improve(
        self,
        learned: Learned,
        rows: jax.Array,
        stored: jax.Array,
        number: jax.Array,
        draws: BatchDraws,
        correct: Correct | None = None,
    ) -> tuple[Learned, jax.Array]:
        """The update of this number, from what is remembered of `stored` steps; also the loss."""
        batch = self.learner.recalled(rows, draws.pick, stored, self.family.observation_size)
        return self.learner.update(learned, batch, draws.update, number, correct)


def untrained(experiment: Experiment, params: Any) -> Learned:
    """An agent that has these parameters and has learnt nothing with them."""
    learner, correction = experiment.learner, experiment.correction
    shared, _ = learner.split(params)
    memory = {part: correction.init(leaves) for part, leaves in learner.parts(shared).items()}
    return learner.adopt(params)._replace(memory=memory)


def receive(
    experiment: Experiment, learned: Learned, sent: Broadcast, counted: jax.Array | bool
) -> Learned:
    """What an agent has learnt, with what the server sends.

    `counted` says whether the server has used what the agent offered last.
    """
    learner, survives, correction = experiment.learner, experiment.survives, experiment.correction
    with hiding_nothing(correction):
        memory = {part: correction.receive(x, counted) for part, x in learned.memory.items()}
    _, private = learner.split(learned.params)
    params = eqx.combine(sent.model, private)
    fresh = learner.adopt(params)
    return Learned(
        params=params,
        target=learned.target if survives.target else fresh.target,
        optimizer=learned.optimizer if survives.optimizer else fresh.optimizer,
        memory=memory,
    )


def offer(experiment: Experiment, learned: Learned) -> Offer:
    """What leaves an agent: the shared parameters, and what the correction adds to them."""
    model, _ = experiment.learner.split(learned.params)
    with hiding_nothing(experiment.correction):
        added = {part: experiment.correction.offer(x) for part, x in learned.memory.items()}
    return Offer(model, added)


def stacked(tree: Any, n: int) -> Any:
    """n copies of a tree, with the agents first."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (n, *jnp.shape(leaf))), tree)
