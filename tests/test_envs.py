"""The environments as Gymnasium sees them."""

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

import fedrl.envs
from fedrl import FedrlError
from fedrl.envs import FamilyEnv
from fedrl.families import CartPoles

IDS = ["fedrl/CartPole-v0", "fedrl/Acrobot-v0"]
GYMNASIUMS_OWN = {"fedrl/CartPole-v0": "CartPole-v1", "fedrl/Acrobot-v0": "Acrobot-v1"}


def balance(observation):
    return int(observation @ [0.3, 0.6, 10.0, 1.5] > 0)


def do_nothing(observation):
    return 1


def rollout(env, seed, actions):
    observations = [env.reset(seed=seed)[0]]
    for action in actions:
        observation, _, terminated, _, _ = env.step(action)
        observations.append(observation)
        if terminated:
            break
    return np.array(observations)


# Gymnasium's own cart pole has no bound on the speeds either, and is warned of it as well.
@pytest.mark.filterwarnings("ignore:.*Box observation space m..imum value is -?infinity")
@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("theta", [0.5, 1.0, 1.5])
def test_gymnasiums_own_checks_pass(id, theta):
    check_env(gymnasium.make(id, theta=theta, render_mode="rgb_array").unwrapped)
    check_env(gymnasium.make(id, theta=theta).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("id", IDS)
def test_spaces_limit_and_frame_rate_are_gymnasiums(id):
    ours, theirs = gymnasium.make(id), gymnasium.make(GYMNASIUMS_OWN[id])
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.spec.max_episode_steps == theirs.spec.max_episode_steps == 500
    assert ours.metadata["render_fps"] == theirs.metadata["render_fps"]


def test_registering_again_changes_nothing():
    before = {id: gymnasium.registry[id] for id in IDS}
    fedrl.envs.register()  # Gymnasium warns of ids registered twice, and warnings fail tests
    assert {id: gymnasium.registry[id] for id in IDS} == before


@pytest.mark.parametrize("id", IDS)
def test_the_id_with_its_module_needs_no_import(id):
    env = gymnasium.make(f"fedrl.envs:{id}", theta=0.5)
    assert isinstance(env.unwrapped, FamilyEnv)
    assert env.unwrapped.theta.tolist() == [0.5]


def test_the_acrobot_takes_a_mass_or_a_mass_and_a_length():
    assert gymnasium.make("fedrl/Acrobot-v0").unwrapped.theta.tolist() == [1.0]
    assert gymnasium.make("fedrl/Acrobot-v0", theta=[0.5]).unwrapped.theta.tolist() == [0.5]
    both = gymnasium.make("fedrl/Acrobot-v0", theta=np.array([0.5, 1.25]))
    assert both.unwrapped.theta.tolist() == [0.5, 1.25]
    one_length = gymnasium.make("fedrl/Acrobot-v0", theta=(0.5, 1.0))
    just_mass = gymnasium.make("fedrl/Acrobot-v0", theta=0.5)
    actions = np.random.default_rng(0).integers(3, size=20)
    np.testing.assert_array_equal(rollout(one_length, 1, actions), rollout(just_mass, 1, actions))
    assert not np.allclose(rollout(both, 1, actions), rollout(just_mass, 1, actions), atol=1e-3)


@pytest.mark.parametrize(
    ("id", "policy"), [("fedrl/CartPole-v0", balance), ("fedrl/Acrobot-v0", do_nothing)]
)
def test_an_episode_without_an_end_is_truncated_after_500_steps_and_not_terminated(id, policy):
    env = gymnasium.make(id)
    observation, _ = env.reset(seed=0)
    for step in range(1, 501):
        observation, _, terminated, truncated, _ = env.step(policy(observation))
        assert not terminated
        assert truncated == (step == 500)


def test_a_fallen_pole_terminates_the_episode_and_steps_need_a_reset_then():
    env = gymnasium.make("fedrl/CartPole-v0", theta=0.5)
    env.reset(seed=0)
    terminated, rewards = False, []
    while not terminated:
        _, reward, terminated, truncated, _ = env.step(1)
        rewards.append(reward)
        assert not truncated
    assert 3 < len(rewards) < 20
    assert set(rewards) == {1.0}
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(1)
    env.reset()
    env.step(1)


def test_steps_and_pictures_need_a_first_reset():
    env = FamilyEnv(CartPoles(), 1.0, render_mode="rgb_array")
    with pytest.raises(ResetNeeded, match="before step"):
        env.step(0)
    with pytest.raises(ResetNeeded, match="before render"):
        env.render()


@pytest.mark.parametrize("id", IDS)
def test_one_seed_gives_one_sequence_of_episodes(id):
    env, again = gymnasium.make(id), gymnasium.make(id)
    actions = [1, 0, 1, 1, 0]
    np.testing.assert_array_equal(rollout(env, 5, actions), rollout(again, 5, actions))
    second = env.reset()[0]
    np.testing.assert_array_equal(second, again.reset()[0])
    assert not np.array_equal(second, env.reset()[0])
    assert not np.array_equal(env.reset(seed=5)[0], env.reset(seed=6)[0])


def test_observations_belong_to_the_caller():
    env = FamilyEnv(CartPoles(), 1.0)
    observation, _ = env.reset(seed=0)
    observation[:] = 100.0
    after, _, terminated, _, _ = env.step(0)
    assert not terminated
    assert np.abs(after).max() < 1


def test_theta_is_what_the_steps_are_made_with():
    env = FamilyEnv(CartPoles(), 0.3)
    observation, _ = env.reset(seed=0)
    expected, _, _ = CartPoles().step(
        observation, np.int32(1), CartPoles().constants(np.array([0.3], np.float32))
    )
    np.testing.assert_allclose(env.step(1)[0], expected, atol=1e-6)


@pytest.mark.parametrize("id", IDS)
def test_pictures_are_not_blank_and_differ_with_theta(id):
    pictures = []
    for theta in (0.5, 1.5):
        env = gymnasium.make(id, theta=theta, render_mode="rgb_array")
        env.reset(seed=0)
        pictures.append(env.render())
        env.close()
    assert all(picture.dtype == np.uint8 and np.ptp(picture) > 100 for picture in pictures)
    assert (pictures[0] != pictures[1]).any()


def test_rendering_without_a_mode_warns_and_gives_nothing():
    env = FamilyEnv(CartPoles(), 1.0)
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="nothing is rendered"):
        assert env.render() is None


def test_an_unknown_render_mode_is_refused():
    with pytest.raises(FedrlError, match="unknown render_mode 'human'"):
        FamilyEnv(CartPoles(), 1.0, render_mode="human")


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize(
    "theta", [0.0, -1.0, np.nan, np.inf, 1e60, "long", None, [], [[1.0]], [1.0, 2.0, 3.0]]
)
def test_a_theta_that_is_none_is_refused(id, theta):
    with pytest.raises(FedrlError, match="positive number"):
        gymnasium.make(id, theta=theta)


@pytest.mark.parametrize("action", [2, -1, 0.5, "left"])
def test_an_action_that_is_none_is_refused(action):
    env = FamilyEnv(CartPoles(), 1.0)
    env.reset(seed=0)
    with pytest.raises(FedrlError, match="action must be an integer from 0 to 1"):
        env.step(action)


def test_environments_with_different_thetas_share_one_compilation():
    before = fedrl.envs._step._cache_size()
    for theta in (0.3, 0.6, 0.9):
        env = FamilyEnv(CartPoles(time_limit=77), theta)
        env.reset(seed=0)
        env.step(0)
    assert fedrl.envs._step._cache_size() == before + 1


def test_several_thetas_run_side_by_side_in_gymnasiums_vector_environment():
    thetas = (0.3, 1.0, 1.7)
    makers = [lambda theta=theta: gymnasium.make(IDS[0], theta=theta) for theta in thetas]
    envs = gymnasium.vector.SyncVectorEnv(makers)
    envs.reset(seed=0)
    ended = np.zeros(len(thetas), int)
    for _ in range(60):
        ended += envs.step(np.ones(len(thetas), int))[2]
    assert ended[0] > ended[2] > 0  # a short pole falls sooner, and starts again
