"""One agent in an environment of its owner's: anything that Gymnasium can step."""

from functools import partial
from math import inf
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.engine.agent import agent_keys, offer, receive, untrained
from fedrl.engine.host_loop import actions_of, episode_seed, host_programs, reset, step
from fedrl.experiment.settings import Experiment
from fedrl.families.gymnasium_making import make
from fedrl.files import Array
from fedrl.keys import Purpose
from fedrl.learners.learner import Learned
from fedrl.learners.replay import Transition
from fedrl.network.agent_client import REPLICATE
from fedrl.network.federated_networks import SimulatedClient, one
from fedrl.strategies.corrections import Broadcast, Offer
from fedrl.trees import refilled


class HostState(NamedTuple):
    """An agent between two rounds; the environment itself cannot be kept, its episode ends."""

    learned: Learned
    received: Broadcast
    rows: jax.Array
    steps: jax.Array
    stored: jax.Array
    updates: jax.Array
    met: jax.Array
    """Since somebody last asked: updates, return collected, episodes."""


class GymnasiumClient(SimulatedClient):
    """An agent in an environment of its owner's; the family only says what it looks like.

    Its first parameters and what is private of them do not depend on the environment.
    """

    def __init__(self, experiment: Experiment, agent: int, environment: str) -> None:
        """`environment` is an id, or `module:function` for one that makes it."""
        super().__init__(experiment, agent)
        self.env = make(environment, {})
        family = experiment.family
        self._actions = actions_of(self.env, family)
        spec = getattr(self.env, "spec", None)
        limited = spec is not None and spec.max_episode_steps is not None
        self._longest = inf if limited else family.time_limit
        keys = agent_keys(experiment.seed, REPLICATE, jnp.int32(agent))
        programs = host_programs(family, experiment.learner, keys, experiment.correction)
        self._act, self._learn = programs
        self._greedy = jax.jit(experiment.learner.policy)
        self._receive = jax.jit(partial(receive, experiment))

    def begin(self, received: Broadcast | None) -> HostState:
        experiment, family = self.experiment, self.experiment.family
        params = one(self.first(received))
        received = self.sent_first(params) if received is None else received
        rows, zero = experiment.learner.empty(*family.remembered), jnp.int32(0)
        learned = untrained(experiment, params)
        return HostState(learned, received, rows, zero, zero, zero, jnp.zeros(3))

    def receive(self, state: HostState, received: Broadcast, counted: bool) -> HostState:
        learned = self._receive(state.learned, received, counted)
        stored = state.stored if self.experiment.survives.replay else jnp.int32(0)
        return state._replace(learned=learned, received=received, stored=stored)

    def work(self, state: HostState, E: int, trained: int, scale: float) -> HostState:
        """E updates or episodes; before the first one the memory is filled."""
        learner = self.experiment.learner
        learned, rows = state.learned, state.rows
        steps, stored, learnt = int(state.steps), int(state.stored), int(state.updates)
        updates, collected, episodes = (float(x) for x in state.met)
        by_update = self.experiment.unit == "updates"
        done = age = 0
        total = 0.0
        # From where it is in its work: no episode is played twice.
        seen, noise = reset(self.env, seed=self._seed(Purpose.ACTING, steps)), self._noise()
        while done < E:
            action, noise = self._act(learned, seen, noise, steps, learnt)
            after, reward, terminated, truncated = step(
                self.env, self._actions(np.asarray(learner.executed(action)))
            )
            what = (seen, action, jnp.float32(reward), after, jnp.asarray(terminated))
            steps, age, total = steps + 1, age + 1, total + reward
            filled = stored + 1 >= learner.learning_starts
            due = filled and (stored + 1) % learner.update_every == 0
            learnt += due
            over = terminated or truncated or age >= self._longest
            done += due if by_update else over
            # The end of the round cuts the episode off, too.
            learned, rows = self._learn(
                *(learned, rows, Transition(*what), over or done == E),
                *(stored, learnt, due, state.received),
            )
            stored, updates, seen = stored + 1, updates + due, after
            if over:
                collected, episodes, total, age = collected + total, episodes + 1, 0.0, 0
                seen, noise = reset(self.env), self._noise()
        return HostState(
            learned,
            state.received,
            rows,
            steps=jnp.int32(steps),
            stored=jnp.int32(stored),
            updates=jnp.int32(learnt),
            met=jnp.array([updates, collected, episodes]),
        )

    def offer(self, state: HostState) -> Offer:
        return offer(self.experiment, state.learned)

    def evaluate(self, state: HostState, trained: int) -> tuple[HostState, dict[str, float]]:
        experiment = self.experiment
        episodes, gamma = experiment.evaluation.episodes, experiment.learner.gamma
        returns = np.zeros(2)
        for episode in range(episodes):
            start = self._seed(Purpose.EVALUATION, trained, episode)
            seen, over, age = reset(self.env, seed=start), False, 0
            while not over:
                action = np.asarray(self._greedy(state.learned.params, seen))
                seen, reward, terminated, truncated = step(self.env, self._actions(action))
                returns += reward * np.array([1.0, gamma**age]) / episodes
                age += 1
                over = terminated or truncated or age >= self._longest
        updates, collected, played = (float(x) for x in state.met)
        metrics = self.returns(*map(float, returns)) | {"updates": updates}
        if played:
            metrics["explored_return"] = collected / played
        return state._replace(met=jnp.zeros(3)), metrics

    def restore(self, leaves: list[Array]) -> HostState | None:
        return refilled(self.begin(None), leaves)

    def _seed(self, *numbers: int) -> int:
        """The seed of an episode of this agent."""
        return episode_seed(self.experiment.seed, self.agent, *numbers)

    def _noise(self) -> Any:
        return self.experiment.learner.noise(self.experiment.family.actions)
