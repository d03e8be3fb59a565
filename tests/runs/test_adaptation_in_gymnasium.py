"""Adaptation to one environment of Gymnasium, whatever it is made of."""

from dataclasses import replace

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

from fedrl import FedrlError
from fedrl.engine.host_loop import Adapted
from fedrl.learners import replay
from fedrl.trees import named_leaves
from published import PENDULUM, PERSONAL, is_private, models, publish, same_bits
from tiny import LEARNER, TINY

SHORT = {"updates": 20, "every": 10, "episodes": 2, "progress": False}


pytestmark = pytest.mark.usefixtures("kept", "hasty")


@pytest.fixture(scope="module")
def run(kept, tmp_path_factory):
    return publish(PERSONAL, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def pendulum(kept, tmp_path_factory):
    return publish(PENDULUM, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def adapted(run):
    """Adaptations to Gymnasium's CartPole, by method and seed; each is made once."""
    made = {}

    def adapt(method, seed=0):
        if (method, seed) not in made:
            env = gymnasium.make("CartPole-v1")
            made[method, seed] = run.adapt(env, method=method, seed=seed, **SHORT)
        return made[method, seed]

    return adapt


def leaves(model):
    return {name: np.asarray(leaf) for name, leaf in named_leaves(model).items()}


def equal(model, other):
    one, other = leaves(model), leaves(other)
    return one.keys() == other.keys() and all(same_bits(one[name], other[name]) for name in one)


class Fake(gymnasium.Env):
    """Random observations, episodes of so many steps; remembers what was done in it."""

    def __init__(self, observations, action_space, steps=5, reward=lambda action: 1.0):
        self.observation_space = spaces.Box(-2.0, 2.0, (observations,))
        self.action_space = action_space
        self.limit, self.reward = steps, reward
        self.done = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def _look(self):
        self.seen = self.np_random.uniform(-2, 2, self.observation_space.shape).astype(np.float32)
        return self.seen

    def step(self, action):
        assert self.action_space.contains(action)
        before = self.seen
        self.steps += 1
        self.done.append((before, action, self._look()))
        return self.seen, self.reward(action), False, self.steps == self.limit, {}


class Ends(Fake):
    """Its episodes are over, not cut off, after their steps."""

    def step(self, action):
        observation, reward, _, over, info = super().step(action)
        return observation, reward, over, False, info


def test_an_adaptation_gives_a_policy_a_curve_and_a_model(run, adapted):
    found = adapted("e-update")
    assert isinstance(found, Adapted)
    assert found.updates.tolist() == [0, 10, 20]
    assert found.returns.shape == (3,)
    assert ((found.returns >= 1) & (found.returns <= 500)).all()
    assert jax.tree.structure(found.model) == jax.tree.structure(run.model())
    env = gymnasium.make("CartPole-v1")
    actions = []
    for observation in np.random.default_rng(0).normal(0, 3, size=(100, 4)):
        actions.append(found.policy(observation))
        assert env.action_space.contains(actions[-1])
        assert actions[-1] == np.argmax(found.model(observation.astype(np.float32)))
    assert set(actions) == {0, 1}
    # Nothing is written.
    assert {file.name for file in run.path.iterdir()} == {"experiment.toml", "models.npz"}


def test_methods_train_what_they_say_also_here(run, adapted):
    published = models(run)
    trained = {
        "e-update": is_private,
        "n-update": lambda name, experiment: not is_private(name, experiment),
        "en-update": lambda name, experiment: True,
        "phi-update": lambda name, experiment: False,
    }
    for method, changes in trained.items():
        for name, leaf in leaves(adapted(method).model).items():
            kept = same_bits(leaf, published[name][0, 0])
            assert kept != changes(name, PERSONAL), (method, name)


def test_all_methods_begin_with_the_published_policy_and_the_same_episodes(run, adapted):
    env = Fake(4, spaces.Discrete(2))
    run.adapt(env, method="phi-update", **SHORT)
    assert len(env.done) == 2 * 5
    policy = run.policy()
    assert all(action == policy(observation) for observation, action, _ in env.done)
    untrained = {adapted(m).returns[0] for m in ("e-update", "n-update", "en-update", "phi-update")}
    assert len(untrained) == 1


def test_phi_update_trains_nothing(adapted):
    found = adapted("phi-update")
    assert (found.updates.tolist(), found.returns.shape) == ([0], (1,))


def test_another_seed_meets_other_episodes(run):
    first = []
    for seed in (0, 1, 0):
        env = Fake(4, spaces.Discrete(2))
        run.adapt(env, method="phi-update", seed=seed, **SHORT)
        first.append(env.done[0][0].tolist())
    assert first[0] == first[2] != first[1]


def test_the_same_seed_gives_the_same_and_another_one_starts_from_its_own_models(run, adapted):
    once = adapted("en-update")
    again = run.adapt(gymnasium.make("CartPole-v1"), method="en-update", **SHORT)
    assert equal(again.model, once.model)
    assert same_bits(again.returns, once.returns)
    other = adapted("phi-update", seed=1)
    assert equal(other.model, run.model(seed=1))
    assert not equal(other.model, run.model(seed=0))
    with pytest.raises(FedrlError, match="seed must be an integer of at least 0 and at most 1"):
        run.adapt(gymnasium.make("CartPole-v1"), seed=2, **SHORT)


def test_a_random_embedding_can_be_begun_with(run):
    def embedding(how):
        env = gymnasium.make("CartPole-v1")
        return run.adapt(env, method="phi-update", embedding=how, **SHORT).model.view.embedding

    average, random = embedding("average"), embedding("random")
    assert not np.isclose(average, random).any()
    assert np.abs(random).max() <= 0.5


def test_environments_of_the_family_are_like_all_others(run):
    env = gymnasium.make("fedrl.envs:fedrl/CartPole-v0", theta=0.7)
    found = run.adapt(env, **SHORT)
    assert found.updates.tolist() == [0, 10, 20]
    observation, _ = env.reset(seed=0)
    assert env.action_space.contains(found.policy(observation))
    assert equal(found.model, run.adapt(env, **SHORT).model)
    other = gymnasium.make("fedrl.envs:fedrl/CartPole-v0", theta=0.3)
    assert not equal(found.model, run.adapt(other, **SHORT).model)


@pytest.fixture(scope="module")
def plain(kept, tmp_path_factory):
    """A run whose updates come with two steps each."""
    experiment = replace(TINY, learner=replace(LEARNER, update_every=2))
    return publish(experiment, tmp_path_factory.mktemp("runs"))


def test_an_agent_first_looks_around_and_then_learns_at_its_pace(plain):
    env = Fake(4, spaces.Discrete(2))
    plain.adapt(env, method="n-update", updates=20, every=10, episodes=3, progress=False)
    # Three evaluations of three episodes of five steps; the first update after 8 steps, the others
    # 2 steps later each.
    assert len(env.done) == 3 * 3 * 5 + 8 + 2 * 19


# Q-values: the reward where that is the end; 1 + 0.9 + 0.81 + ... where it is only cut off.
@pytest.mark.parametrize(("kind", "values"), [(Ends, (-1, 1)), (Fake, (8, 10))])
def test_it_learns_from_rewards_and_not_from_being_cut_off(plain, kind, values):
    env = kind(4, spaces.Discrete(2, start=5), 1, lambda action: 1.0 if action == 6 else -1.0)
    found = plain.adapt(env, method="n-update", updates=1500, every=1500, progress=False)
    seen = np.random.default_rng(0).uniform(-2, 2, (200, 4)).astype(np.float32)
    np.testing.assert_allclose(np.mean(found.model(seen), 0), values, rtol=0.15)
    assert found.returns[-1] == 1
    assert {found.policy(observation) for observation in seen} == {6}


def test_batches_consist_of_what_was_met(plain, monkeypatch):
    batches, sample = [], replay.sample

    def watched(rows, pick, stored):
        picked = sample(rows, pick, stored)
        jax.debug.callback(lambda x: batches.append(replay.unpack(np.asarray(x), 4)), picked)
        return picked

    monkeypatch.setattr(replay, "sample", watched)
    env = Fake(4, spaces.Discrete(2))
    plain.adapt(env, method="n-update", updates=20, every=20, episodes=1, progress=False)
    jax.effects_barrier()
    assert len(batches) == 20
    met = {seen.tobytes(): (action, after.tobytes()) for seen, action, after in env.done}
    for batch in batches:
        assert (batch.reward == 1).all()
        assert not batch.terminated.any()
        for seen, action, after in zip(
            batch.observation, batch.action[:, 0], batch.next_observation, strict=True
        ):
            assert met[seen.tobytes()] == (action, after.tobytes())


def test_actions_are_stretched_to_what_the_environment_takes(pendulum):
    low, high = np.float32([-3.0]), np.float32([1.0])
    env = Fake(3, spaces.Box(low, high))
    pendulum.adapt(env, method="phi-update", **SHORT)
    policy = pendulum.policy()
    assert len(env.done) == 2 * 5
    for observation, action, _ in env.done:
        expected = low + (policy(observation) + 1) / 2 * (high - low)
        assert action.dtype == np.float32
        np.testing.assert_allclose(action, expected, rtol=1e-6)
    assert np.ptp([action for _, action, _ in env.done]) > 1


def test_what_is_learnt_does_not_depend_on_the_units_of_actions(pendulum):
    wide, unit = (
        Fake(3, spaces.Box(np.float32([low]), np.float32([high])))
        for low, high in ((-6, 2), (-1, 1))
    )
    one, other = (pendulum.adapt(env, method="en-update", **SHORT) for env in (wide, unit))
    assert equal(one.model, other.model)
    assert not equal(one.model, pendulum.model())
    done = [np.array([action for _, action, _ in env.done]) for env in (wide, unit)]
    np.testing.assert_allclose(done[0], 4 * done[1] - 2, atol=1e-5)
    shown = one.policy(np.zeros(3)), other.policy(np.zeros(3))
    np.testing.assert_allclose(shown[0], 4 * shown[1] - 2, atol=1e-5)


def test_e_update_keeps_what_is_shared_also_in_gymnasiums_pendulum(pendulum):
    env = gymnasium.make("Pendulum-v1", max_episode_steps=30)
    found = pendulum.adapt(env, **SHORT)
    published = models(pendulum)
    for name, leaf in leaves(found.model).items():
        private = is_private(name, pendulum.experiment)
        assert same_bits(leaf, published[name][0, 0]) != private, name
    action = found.policy(np.array([1.0, 0.0, 0.0]))
    assert env.action_space.contains(action)


@pytest.mark.parametrize(
    ("kind", "env", "message"),
    [
        ("run", Fake(3, spaces.Discrete(2)), r"observe Box\(4,\), this environment gives Box"),
        ("run", Fake(4, spaces.Discrete(3)), r"choose from Discrete\(2\), .* takes Discrete\(3\)"),
        ("run", Fake(4, spaces.Box(-1, 1, (2,))), r"choose from Discrete\(2\), .* takes Box"),
        ("pendulum", Fake(4, spaces.Box(-1, 1, (1,))), r"observe Box\(3,\)"),
        ("pendulum", Fake(3, spaces.Discrete(2)), r"act in Box\(1,\), .* takes Discrete\(2\)"),
        ("pendulum", Fake(3, spaces.Box(-1, 1, (2,))), r"act in Box\(1,\), .* takes Box"),
        ("pendulum", Fake(3, spaces.Box(-np.inf, 1, (1,))), "actions must be bounded"),
    ],
)
def test_an_environment_of_another_shape_is_refused(kind, env, message, request):
    with pytest.raises(FedrlError, match=message):
        request.getfixturevalue(kind).adapt(env, **SHORT)
    assert env.done == []


def test_a_picture_is_no_observation(run):
    env = Fake(4, spaces.Discrete(2))
    env.observation_space = spaces.Discrete(4)
    with pytest.raises(FedrlError, match=r"observe Box\(4,\), this environment gives Discrete"):
        run.adapt(env, **SHORT)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_reward_that_is_not_finite_stops_an_adaptation(plain, wrong):
    env = Fake(4, spaces.Discrete(2), reward=lambda action: wrong)
    with pytest.raises(FedrlError, match="diverged, the reward is not a finite number"):
        plain.adapt(env, method="n-update", updates=5, progress=False)


def test_parameters_that_are_not_finite_stop_an_adaptation(plain):
    env = Fake(4, spaces.Discrete(2), reward=lambda action: 3e38)
    with pytest.raises(FedrlError, match="diverged, a parameter after 5 updates is not a finite"):
        plain.adapt(env, method="n-update", updates=5, every=5, progress=False)
