"""DQN of a single agent written in JAX from end to end, vectorised over agents.

What somebody would write who knows PureJaxRL: environment, replay and update are one compiled loop,
and `vmap` makes many agents of one. Each has its own pole, as everybody's; nothing is averaged.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from benchmarks.peers.dqn import common
from benchmarks.peers.dqn.common import half_lengths
from benchmarks.peers.group import Work
from benchmarks.peers.jaxgroup import Vectorised, jax_for

GRAVITY, CART, POLE, FORCE, SECONDS = 9.8, 1.0, 0.1, 10.0, 0.02
FURTHEST, STEEPEST = 2.4, 12 * 2 * np.pi / 360


class Replay(NamedTuple):
    """Transitions, the oldest overwritten first."""

    observation: Any
    action: Any
    reward: Any
    following: Any
    terminal: Any


class State(NamedTuple):
    """Everything about one agent."""

    params: Any
    target: Any
    moments: Any
    replay: Replay
    observation: Any
    age: Any
    latest: Any
    """The return of its latest episode."""
    steps: Any
    length: Any
    key: Any


def move(jnp: Any, observation: Any, action: Any, length: Any) -> Any:
    """One step of Gymnasium's CartPole."""
    _, speed, angle, turning = observation
    push = jnp.where(action == 1, FORCE, -FORCE)
    mass = CART + POLE
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    force = (push + POLE * length * turning**2 * sine) / mass
    angular = (GRAVITY * sine - cosine * force) / (length * (4 / 3 - POLE * cosine**2 / mass))
    along = force - POLE * length * angular * cosine / mass
    change = jnp.stack([speed, along, turning, angular])
    return observation + SECONDS * change


class Program:
    """The functions that are compiled."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.jax = jax_for(work)
        import jax.numpy as jnp
        import optax

        self.jnp, self.optax = jnp, optax
        self.optimiser = optax.adam(common.LEARNING_RATE)

    def init(self, key: Any, length: Any) -> State:
        jax, jnp = self.jax, self.jnp
        sizes = (common.OBSERVATION, *self.work.hidden, common.ACTIONS)
        params = []
        for i, (inputs, outputs) in enumerate(pairwise(sizes)):
            drawn = jax.random.uniform(jax.random.fold_in(key, i), (inputs + 1, outputs))
            drawn = (2 * drawn - 1) * inputs**-0.5
            params.append({"weights": drawn[:-1], "bias": drawn[-1]})
        numbers = (common.CAPACITY,)
        replay = Replay(
            jnp.zeros((*numbers, common.OBSERVATION)),
            jnp.zeros(numbers, jnp.int32),
            jnp.zeros(numbers),
            jnp.zeros((*numbers, common.OBSERVATION)),
            jnp.zeros(numbers),
        )
        key, start = jax.random.split(key)
        copy = jax.tree.map(jnp.copy, params)
        zero = jnp.zeros((), jnp.int32)
        return State(
            params,
            copy,
            self.optimiser.init(params),
            replay,
            self.beginning(start),
            zero,
            jnp.zeros(()),
            zero,
            length,
            key,
        )

    def beginning(self, key: Any) -> Any:
        return self.jax.random.uniform(key, (common.OBSERVATION,), minval=-0.05, maxval=0.05)

    def values(self, params: Any, x: Any) -> Any:
        for layer in params[:-1]:
            x = self.jax.nn.relu(x @ layer["weights"] + layer["bias"])
        return x @ params[-1]["weights"] + params[-1]["bias"]

    def loss(self, params: Any, target: Any, batch: Replay) -> Any:
        jnp = self.jnp
        best = self.values(target, batch.following).max(-1)
        wanted = batch.reward + common.GAMMA * (1 - batch.terminal) * best
        found = self.values(params, batch.observation)
        taken = jnp.take_along_axis(found, batch.action[:, None], 1)[:, 0]
        return ((taken - wanted) ** 2).mean()

    def learn(self, state: State, key: Any) -> State:
        """One update on a batch from the replay, and perhaps a new target."""
        jax, optax = self.jax, self.optax
        stored = self.jnp.minimum(state.steps, common.CAPACITY)
        rows = jax.random.randint(key, (self.work.batch,), 0, stored)
        batch = jax.tree.map(lambda leaf: leaf[rows], state.replay)
        slope = jax.grad(self.loss)(state.params, state.target, batch)
        change, moments = self.optimiser.update(slope, state.moments, state.params)
        params = optax.apply_updates(state.params, change)
        now = (state.steps - common.LEARNING_STARTS) % common.TARGET_INTERVAL == 0
        target = jax.lax.cond(now, lambda: params, lambda: state.target)
        return state._replace(params=params, target=target, moments=moments)

    def step(self, state: State) -> State:
        """One step of the environment, stored, and an update."""
        jax, jnp = self.jax, self.jnp
        key, explore, choose, again, sample = jax.random.split(state.key, 5)
        share = state.steps / common.EPSILON_STEPS
        epsilon = jnp.maximum(common.EPSILON_FINAL, 1 - (1 - common.EPSILON_FINAL) * share)
        greedy = self.values(state.params, state.observation).argmax()
        random = jax.random.randint(choose, (), 0, common.ACTIONS)
        action = jnp.where(jax.random.uniform(explore) < epsilon, random, greedy)
        following = move(jnp, state.observation, action, state.length)
        terminal = (jnp.abs(following[0]) > FURTHEST) | (jnp.abs(following[2]) > STEEPEST)
        age = state.age + 1
        over = terminal | (age >= common.TIME_LIMIT)
        new = Replay(state.observation, action, 1.0, following, terminal.astype(jnp.float32))
        at = state.steps % common.CAPACITY
        replay = jax.tree.map(lambda leaf, one: leaf.at[at].set(one), state.replay, new)
        state = state._replace(
            replay=replay,
            observation=jnp.where(over, self.beginning(again), following),
            age=jnp.where(over, 0, age),
            latest=jnp.where(over, age, state.latest),
            steps=state.steps + 1,
            key=key,
        )
        learns = state.steps > common.LEARNING_STARTS
        params, target, moments = jax.lax.cond(
            learns,
            lambda: self.learn(state, sample)[:3],
            lambda: state[:3],
        )
        return state._replace(params=params, target=target, moments=moments)

    def train(self, state: State, steps: Any) -> State:
        trained: State = self.jax.lax.fori_loop(0, steps, lambda _, one: self.step(one), state)
        return trained


def build(work: Work, agents: list[int]) -> Vectorised:
    program = Program(work)
    jax = program.jax
    keys = jax.vmap(jax.random.key)(np.array(agents, np.uint32))
    lengths = half_lengths(work.agents)[agents].astype(np.float32)
    states = jax.jit(jax.vmap(program.init))(keys, lengths)
    train = jax.vmap(program.train, in_axes=(0, None))
    return Vectorised(work, states, train, lambda states: states.latest)
