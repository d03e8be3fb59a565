"""PPO's rollouts: which policy took them, and where their episodes end."""

import sys
from dataclasses import replace
from itertools import product
from math import inf
from types import ModuleType

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import engines
from fedrl.engine.host_loop import adapt_in
from fedrl.experiment.settings import Survives
from fedrl.families import CartPoles
from fedrl.learners.personalisation import Personal
from fedrl.learners.ppo import PPO, advantages
from fedrl.network.gymnasium_client import GymnasiumClient
from fedrl.strategies.corrections import Broadcast
from probes import EndedOrCutOff, Endless
from tiny import TINY, begin, go_on

pytestmark = pytest.mark.usefixtures("kept", "hasty")

ROLLOUT, LIMIT, GAMMA, LAMBDA = 16, 5, 0.9, 0.8
# One gradient step for each update, and a large one: policies differ clearly.
SETTINGS = {
    "hidden": (8,),
    "rollout": ROLLOUT,
    "batch": ROLLOUT,
    "epochs": 1,
    "lr": 0.05,
    "gamma": GAMMA,
    "gae_lambda": LAMBDA,
}
EVERYTHING = Personal(embedding=2, head=True, normalisation=True)
ratios = []


class Watched(PPO):
    """Tells the ratios of probabilities in every gradient step."""

    def _loss(self, params, samples):
        now, _ = self._of_actions(params, samples.observation, samples.action)
        jax.debug.callback(ratios.append, jnp.exp(now - samples.log_probability))
        return super()._loss(params, samples)


@pytest.fixture(autouse=True)
def nothing_watched():
    ratios.clear()


def assert_ratios_of_one(updates):
    jax.effects_barrier()
    assert np.shape(ratios) == (updates, ROLLOUT)
    np.testing.assert_allclose(ratios, 1, atol=1e-5)


class Same(gymnasium.Env):
    """Always looks the same; episodes end or are cut off after LIMIT steps, in turns."""

    observation_space = spaces.Box(-1.0, 1.0, (4,))
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.rng, self.episodes, self.met = np.random.default_rng(0), 0, []

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.full(4, 0.5, np.float32), {}

    def step(self, action):
        self.steps += 1
        last, ends = self.steps == LIMIT, self.episodes % 2
        self.episodes += last
        reward = float(np.float32(self.rng.normal()))
        self.met.append((reward, last and ends, last and not ends))
        return np.full(4, 0.5, np.float32), reward, bool(last and ends), bool(last and not ends), {}


class Changing(Same):
    """Random observations."""

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self.rng.normal(size=4).astype(np.float32), {}

    def step(self, action):
        _, *rest = super().step(action)
        return self.rng.normal(size=4).astype(np.float32), *rest


@pytest.fixture
def client_in(monkeypatch):
    """An agent of a federation in an environment of its owner's."""
    module = ModuleType("rollouts_of_mine")
    module.Same, module.Changing = Same, Changing
    monkeypatch.setitem(sys.modules, "rollouts_of_mine", module)

    def client(kind, learner, survives):
        experiment = replace(TINY, learner=learner, survives=survives, seeds=1, E=2)
        return GymnasiumClient(experiment, 0, f"rollouts_of_mine:{kind}")

    return client


def engine_of(learner, family, **changes):
    return engines.engine_of(
        family, learner, **{"agents": 2, "initialisation": "per-agent", **changes}
    )


EVERY_KIND = [Survives(*kept) for kept in product((True, False), repeat=3)]


@pytest.mark.parametrize("survives", EVERY_KIND, ids=str)
def test_an_update_begins_with_the_policy_that_acted(survives):
    """Whatever agents keep when they are sent an average that differs from what they had."""
    engine = engine_of(Watched(**SETTINGS), CartPoles(time_limit=12), survives=survives)
    jax.jit(lambda: go_on(engine, begin(engine, 0), 0, 3, 2))().rows.block_until_ready()
    assert_ratios_of_one(2 * 3 * 2)


@pytest.mark.parametrize(
    "engine",
    [
        engine_of(Watched(**SETTINGS, personal=EVERYTHING), CartPoles(time_limit=12)),
        engine_of(Watched(**SETTINGS, actions="continuous"), EndedOrCutOff()),
        engine_of(Watched(**SETTINGS), CartPoles(time_limit=12), agents=4, participation=0.5),
    ],
    ids=["private parts", "continuous", "half of the agents take part"],
)
def test_it_also_does_so_in_other_federations(engine):
    jax.jit(lambda: go_on(engine, begin(engine, 0), 0, 3, 2))().rows.block_until_ready()
    assert_ratios_of_one(2 * 3 * 2)


@pytest.mark.parametrize("survives", EVERY_KIND, ids=str)
def test_it_does_so_in_an_environment_of_its_owners(client_in, survives):
    client = client_in("Changing", Watched(**SETTINGS, personal=EVERYTHING), survives)
    state = client.begin(None)
    for trained in (0, 2, 4):
        state = client.work(state, 2, trained, 1.0)
        jax.effects_barrier()
        half = jax.tree.map(lambda leaf: 0.5 * leaf, client.offer(state).model)
        state = client.receive(state, Broadcast(half), True)
    assert_ratios_of_one(3 * 2)


def adapted(learner, env, updates, params):
    return adapt_in(
        *(env, CartPoles(), learner, params),
        **{"updates": updates, "unit": "updates", "every": 1, "episodes": 1, "seed": 0},
        told=lambda *_: None,
    )


def test_it_does_so_while_it_adapts_to_an_environment():
    learner = Watched(**SETTINGS)
    adapted(learner, Changing(), 3, learner.init(jax.random.key(0), 4, 2).params)
    assert_ratios_of_one(3)


def numpy_advantages(reward, ended, cut, value, following):
    """Schulman's recursion, one step after the other."""
    found, later = np.zeros(len(reward)), 0.0
    for t in reversed(range(len(reward))):
        goes_on = not (ended[t] or cut[t])
        delta = reward[t] + (0 if ended[t] else GAMMA * following[t]) - value[t]
        later = found[t] = delta + (GAMMA * LAMBDA * later if goes_on else 0.0)
    return found


def advantages_in(learner, rows, size):
    batch = learner.recalled(rows, jnp.zeros(0), jnp.int32(ROLLOUT), size)
    return advantages(batch, GAMMA, LAMBDA)


def test_constant_observations_do_not_join_episodes_in_an_environment_of_its_owners(client_in):
    learner = PPO(**SETTINGS)
    client = client_in("Same", learner, Survives())
    before = client.begin(None)
    after = client.work(before, 1, 0, 1.0)
    reward, ended, cut = np.transpose(client.env.met)
    assert ended.sum() == 1
    assert cut.sum() == 2
    value = np.full(ROLLOUT, float(before.learned.params.critic(jnp.full(4, 0.5))[0]))
    expected = numpy_advantages(reward, ended, cut, value, value)
    found = advantages_in(learner, after.rows, 4)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_constant_observations_do_not_join_episodes_in_a_simulated_environment():
    learner, family = PPO(**SETTINGS), Endless(time_limit=LIMIT)
    engine = engine_of(learner, family, E=inf)
    before = jax.jit(lambda: begin(engine, 0))()
    after = jax.jit(lambda state: go_on(engine, state, 0, 1, 1))(before)
    cut = np.arange(ROLLOUT) % LIMIT == LIMIT - 1
    for agent in range(2):
        params = jax.tree.map(lambda leaf, i=agent: leaf[i], before.agents.learned.params)
        value = np.full(ROLLOUT, float(params.critic(jnp.ones(1))[0]))
        expected = numpy_advantages(np.ones(ROLLOUT), 0 * cut, cut, value, value)
        found = advantages_in(learner, after.rows[agent], 1)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
