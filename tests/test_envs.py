"""The environments as Gymnasium sees them."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

import fedrl.envs
from fedrl import FedrlError
from fedrl.envs import FamilyEnv
from fedrl.families import CartPoles, Hoppers
from fedrl.families.robots import rendering
from fedrl.families.robots.models import import_mujoco

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
    with pytest.raises(FedrlError, match=r"must be \d numbers? \(.*positive\)"):
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


CHEETAH, HOPPER = "fedrl/HalfCheetah-v0", "fedrl/Hopper-v0"
ROBOTS = {CHEETAH: (0.15, 0.12), HOPPER: 0.045}
GYMNASIUMS_ROBOTS = {CHEETAH: "HalfCheetah-v5", HOPPER: "Hopper-v5"}


@pytest.fixture
def drawing():
    """Skip where nothing can be drawn without a screen."""
    mujoco = import_mujoco()
    rendering._studio.close()
    try:
        mujoco.Renderer(mujoco.MjModel.from_xml_string("<mujoco/>"), 8, 8).close()
    except Exception as error:
        pytest.skip(f"no library that draws without a screen: {error!r}")
    yield
    rendering._studio.close()  # what draws is not to outlive the library it draws with


def robot(id, theta=None, **options):
    theta = ROBOTS[id] if theta is None else theta
    return gymnasium.make(f"fedrl.envs:{id}", theta=theta, **options)


# Gymnasium's own robots have no bound on what they observe either, and are warned of it as well.
unbounded = pytest.mark.filterwarnings("ignore:.*Box observation space m..imum value is -?infinity")


@unbounded
@pytest.mark.parametrize("id", ROBOTS)
def test_gymnasiums_own_checks_pass_for_robots(id):
    check_env(robot(id).unwrapped, skip_render_check=True)


@unbounded
@pytest.mark.parametrize("id", ROBOTS)
def test_gymnasiums_own_checks_of_pictures_pass_for_robots(id, drawing):
    check_env(robot(id, render_mode="rgb_array").unwrapped)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """MuJoCo writes what it has to say about Gymnasium's own file to the working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("id", ROBOTS)
def test_spaces_limit_and_frame_rate_of_robots_are_gymnasiums(id, elsewhere):
    ours, theirs = gymnasium.make(id), gymnasium.make(GYMNASIUMS_ROBOTS[id])
    assert ours.observation_space.shape == theirs.observation_space.shape
    assert (ours.observation_space.low == theirs.observation_space.low).all()
    assert (ours.observation_space.high == theirs.observation_space.high).all()
    assert ours.action_space == theirs.action_space
    assert ours.spec.max_episode_steps == theirs.spec.max_episode_steps == 1000
    assert ours.metadata["render_fps"] == theirs.unwrapped.metadata["render_fps"]


@pytest.mark.parametrize("id", ROBOTS)
def test_the_default_theta_is_gymnasiums_own_robot_and_another_one_is_not(id, elsewhere):
    ours, other, theirs = gymnasium.make(id), robot(id), gymnasium.make(GYMNASIUMS_ROBOTS[id])
    theirs.reset(seed=0)
    n = theirs.unwrapped.model.nq
    actions = np.random.default_rng(0).uniform(-1, 1, (10, *ours.action_space.shape))
    observations = rollout(ours, 3, np.float32(actions))
    differing = rollout(other, 3, np.float32(actions))
    np.testing.assert_array_equal(differing[0], observations[0])
    first = observations[0].astype(np.float64)
    # The first position is not observed, and does not matter.
    theirs.unwrapped.set_state(np.concatenate([[0.0], first[: n - 1]]), first[n - 1 :])
    expected = np.array([theirs.step(action)[0] for action in actions])
    # Theta has 32 bits, and the actions.
    np.testing.assert_allclose(observations[1:], expected, atol=1e-4)
    assert np.abs(differing[1:] - expected).max() > 1e-2


def test_a_half_cheetah_is_truncated_after_1000_steps_and_not_terminated():
    env = robot(CHEETAH)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for step in range(1, 1001):
        action = np.float32(rng.uniform(-1, 1, 6))
        observation, reward, terminated, truncated, _ = env.step(action)
        assert env.observation_space.contains(observation)
        assert isinstance(reward, float)
        assert not terminated
        assert truncated == (step == 1000)


def test_a_fallen_hopper_terminates_the_episode_and_steps_need_a_reset_then():
    env = robot(HOPPER)
    env.reset(seed=0)
    terminated, rewards = False, []
    while not terminated:
        _, reward, terminated, truncated, _ = env.step(np.ones(3, np.float32))
        rewards.append(reward)
        assert not truncated
    assert 5 < len(rewards) < 200
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(np.ones(3, np.float32))
    env.reset()
    env.step(np.ones(3, np.float32))


@pytest.mark.parametrize("id", ROBOTS)
@pytest.mark.parametrize(
    "change",
    [
        lambda action: action * 1.01,
        lambda action: -action * 1.01,
        lambda action: action * np.nan,
        lambda action: action[:-1],
        lambda action: [*action, 0.0],
        lambda action: action[None],
        lambda action: 1.0,
        lambda action: None,
        lambda action: "left",
        lambda action: [[1.0], 0.0],
    ],
)
def test_torques_that_are_none_are_refused(id, change):
    env = robot(id).unwrapped
    env.reset(seed=0)
    n = env.action_space.shape[0]
    with pytest.raises(FedrlError, match=f"action must be {n} numbers from -1 to 1, got"):
        env.step(change(np.ones(n, np.float32)))
    # Nothing has happened.
    after, *_ = env.step(np.zeros(n, np.float32))
    env.reset(seed=0)
    np.testing.assert_array_equal(env.step(np.zeros(n, np.float32))[0], after)


@pytest.mark.parametrize(
    ("id", "theta", "allowed"),
    [
        (CHEETAH, 0.15, "back_thigh from 0.01 to 0.5, front_thigh from 0.01 to 0.5"),
        (CHEETAH, (0.15, 0.6), "back_thigh from 0.01 to 0.5, front_thigh from 0.01 to 0.5"),
        (HOPPER, 0.3, "leg_radius from 0.005 to 0.2"),
        (HOPPER, (0.04, 0.04), "leg_radius from 0.005 to 0.2"),
        (HOPPER, None, "leg_radius from 0.005 to 0.2"),
    ],
)
def test_a_theta_that_makes_no_robot_is_refused_with_what_is_allowed(id, theta, allowed):
    with pytest.raises(FedrlError, match=allowed):
        gymnasium.make(id, theta=theta)


@pytest.mark.parametrize("id", ROBOTS)
def test_pictures_of_robots_change_as_they_move_and_with_theta(id, drawing):
    env = robot(id, render_mode="rgb_array")
    other = robot(id, {CHEETAH: (0.1, 0.165), HOPPER: 0.1}[id], render_mode="rgb_array")
    env.reset(seed=0)
    other.reset(seed=0)
    first = env.render()
    assert first.dtype == np.uint8
    assert first.shape == (400, 600, 3)
    assert np.ptp(first) > 100
    np.testing.assert_array_equal(env.render(), first)
    assert (other.render() != first).any(axis=2).sum() > 200  # pixels
    for _ in range(8):
        env.step(np.ones(env.action_space.shape, np.float32))
    assert (env.render() != first).any(axis=2).sum() > 200
    np.testing.assert_array_equal(first[:3, :3], env.render()[:3, :3])  # the sky is where it was


def test_the_picture_of_a_robot_does_not_depend_on_how_many_were_drawn_before(drawing):
    robots = [robot(HOPPER, theta=0.03 + 0.01 * i, render_mode="rgb_array") for i in range(6)]
    for env in robots:
        env.reset(seed=0)
    pictures = [env.render() for env in robots]
    again = [env.render() for env in robots]
    for env, picture, another in zip(robots, pictures, again, strict=True):
        rendering._studio.close()
        alone = env.render()
        np.testing.assert_array_equal(picture, alone)
        np.testing.assert_array_equal(another, alone)


DRAW_MANY = """
import gymnasium
for i in range(6):
    env = gymnasium.make(
        "fedrl.envs:fedrl/Hopper-v0", theta=0.03 + 0.01 * i, render_mode="rgb_array"
    )
    env.reset(seed=0)
    env.render()
    env.close()
"""


def test_nothing_is_said_when_a_program_that_drew_many_robots_ends(drawing, tmp_path):
    finished = subprocess.run(
        [sys.executable, "-c", DRAW_MANY], capture_output=True, text=True, cwd=tmp_path
    )
    assert finished.returncode == 0
    assert finished.stdout == finished.stderr == ""


def test_where_robots_cannot_be_drawn_it_is_said_what_to_install(monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("no EGL here")

    monkeypatch.setattr(import_mujoco(), "Renderer", fail)
    env = robot(HOPPER, theta=0.0437, render_mode="rgb_array")  # no picture of it was made before
    env.reset(seed=0)
    with pytest.raises(
        FedrlError, match=r"cannot be drawn here \(no EGL here\).*libegl1.*MUJOCO_GL"
    ):
        env.render()
    env.step(np.zeros(3, np.float32))  # everything else goes on
    monkeypatch.undo()


def test_robots_with_different_thetas_share_one_compilation():
    before = fedrl.envs._step._cache_size()
    for radius in (0.031, 0.041, 0.051):
        env = FamilyEnv(Hoppers(time_limit=77), radius)
        env.reset(seed=0)
        env.step(np.zeros(3))
    assert fedrl.envs._step._cache_size() == before + 1
