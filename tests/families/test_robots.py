"""HalfCheetahs and Hoppers against Gymnasium's own, whose descriptions are edited as text."""

import threading
import xml.etree.ElementTree as ElementTree
from contextlib import chdir
from functools import cache, partial
from importlib.resources import files
from itertools import product
from math import inf, nan
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedrl import FedrlError
from fedrl.engine.evaluation import greedy_returns
from fedrl.families import CONTROL_FAMILIES, HalfCheetahs, Hoppers
from fedrl.families.robots import host, models
from fedrl.keys import numbered
from fedrl.learners.ddpg import DDPG

# Not imported here: our import of it says how to draw, and the first one counts.
mujoco = host.mujoco

CHEETAHS, HOPPERS = HalfCheetahs(), Hoppers()
# Dyadic ends: every way to go from one to the other by theta gives the same bits.
TOGETHER = HalfCheetahs(thighs="together", back_thigh=(0.125, 0.1875), front_thigh=(0.125, 0.15625))
GYMNASIUMS_OWN = {"half_cheetah.xml": "HalfCheetah-v5", "hopper.xml": "Hopper-v5"}
# What theta is in the file: which number of which geom's size.
SIZES = {"half_cheetah.xml": (("bthigh", 1), ("fthigh", 1)), "hopper.xml": (("leg_geom", 0),)}


@partial(jax.jit, static_argnums=(0, 2))
def resets(family, key, count):
    return jax.vmap(family.reset)(jax.random.split(key, count))


def as_64_bits(*theta):
    """Theta as the physics gets it, after it was a number of JAX."""
    return tuple(np.float32(theta).tolist())


CORNERS = [as_64_bits(*corner) for corner in product((0.1005, 0.1855), (0.1005, 0.1655))]
NOMINAL = as_64_bits(0.145, 0.133)
RADII = [as_64_bits(radius) for radius in (0.03, 0.04, 0.05)]
BODIES = [(CHEETAHS, theta, theta) for theta in (NOMINAL, *CORNERS)]
BODIES += [
    (TOGETHER, (0.0,), (0.125, 0.125)),
    (TOGETHER, (0.25,), (0.140625, 0.1328125)),
    (TOGETHER, (1.0,), (0.1875, 0.15625)),
]
BODIES += [(HOPPERS, theta, theta) for theta in RADII]
each_body = pytest.mark.parametrize(("family", "theta", "sizes"), BODIES)
each_family = pytest.mark.parametrize("family", [CHEETAHS, HOPPERS], ids=lambda f: f.name)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path):
    """MuJoCo writes what it has to say about HalfCheetah's file to the working directory."""
    with chdir(tmp_path):
        yield


def edited(family, sizes):
    """Gymnasium's description with other sizes, changed as text; in the working directory."""
    text = (files("gymnasium") / "envs/mujoco/assets" / family.asset).read_text("utf-8")
    root = ElementTree.fromstring(text)
    for (name, place), size in zip(SIZES[family.asset], sizes, strict=True):
        (geom,) = (geom for geom in root.iter("geom") if geom.get("name") == name)
        numbers = geom.get("size").split()
        numbers[place] = repr(size)
        geom.set("size", " ".join(numbers))
    return ElementTree.tostring(root, "unicode")


def gymnasiums(family, sizes):
    """Gymnasium's environment with a robot of these sizes."""
    Path("robot.xml").write_text(edited(family, sizes))
    return gymnasium.make(GYMNASIUMS_OWN[family.asset], xml_file="./robot.xml").unwrapped


def state_of(robot):
    return np.concatenate([robot.data.qpos, robot.data.qvel, robot.data.qacc_warmstart])


class Episode(NamedTuple):
    """Or several, side by side in second axes."""

    states: np.ndarray  # one more than there are steps
    actions: np.ndarray
    observations: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray


def recorded(robot, seed, steps, strength=1.0):
    """Steps of Gymnasium's robot, also beyond the end of the episode."""
    rng = np.random.default_rng(seed)
    robot.reset(seed=seed)
    actions = np.float32(rng.uniform(-strength, strength, (steps, robot.model.nu)))
    states, seen = [state_of(robot)], []
    for action in actions:
        # With 32 bits Gymnasium would add up the squares of the action in 32 bits.
        seen.append(robot.step(action.astype(np.float64))[:3])
        states.append(state_of(robot))
    return Episode(np.array(states), actions, *map(np.array, zip(*seen, strict=True)))


def side_by_side(episodes):
    return Episode(*(np.stack(parts, axis=1) for parts in zip(*episodes, strict=True)))


@partial(jax.jit, static_argnums=0)
def played(family, first, actions, thetas):
    """Ours from first states, (robots, ...), with actions (steps, robots, ...)."""
    constants = jax.vmap(family.constants)(thetas)

    def step(state, action):
        state, reward, terminated = jax.vmap(family.step)(state, action, constants)
        return state, (state, jax.vmap(family.observe)(state), reward, terminated)

    return jax.lax.scan(step, first, actions)[1]


def ours(family, episodes, thetas):
    """The same episodes, each from its first state on, with numbers of 64 bits in states."""
    first = host.split(episodes.states[0])
    states, *rest = played(family, first, episodes.actions, np.float32(thetas))
    return host.join(np.asarray(states)), *map(np.asarray, rest)


def assert_bits_are_gymnasiums(family, episodes, thetas):
    states, seen, rewards, terminated = ours(family, episodes, thetas)
    assert states.dtype == np.float64
    assert seen.dtype == rewards.dtype == np.float32
    assert np.isfinite(states).all()
    np.testing.assert_array_equal(states, episodes.states[1:])
    np.testing.assert_array_equal(seen, np.float32(episodes.observations))
    np.testing.assert_array_equal(rewards, np.float32(episodes.rewards))
    np.testing.assert_array_equal(terminated, episodes.terminated)


@pytest.mark.parametrize("family", [CHEETAHS, TOGETHER])
def test_every_bit_of_an_episode_with_half_cheetahs_is_gymnasiums(family):
    thetas, sizes = zip(*(body[1:] for body in BODIES if body[0] is family), strict=True)
    episodes = [recorded(gymnasiums(family, s), seed, 1000) for seed, s in enumerate(sizes)]
    assert_bits_are_gymnasiums(family, side_by_side(episodes), thetas)


@pytest.mark.parametrize(("strength", "lives"), [(1.0, 10), (0.3, 20), (0.02, 30)])
def test_every_bit_of_episodes_with_hoppers_is_gymnasiums_until_and_after_the_fall(strength, lives):
    thetas = [theta for theta in RADII for _ in range(3)]
    robots = [gymnasiums(HOPPERS, theta) for theta in RADII]
    episodes = side_by_side(
        [recorded(robot, seed, 250, strength) for robot in robots for seed in range(3)]
    )
    falls = episodes.terminated.argmax(axis=0)
    assert episodes.terminated.any(axis=0).all()
    assert falls.min() >= lives
    assert_bits_are_gymnasiums(HOPPERS, episodes, thetas)


def stale(family, theta):
    """A robot whose geometry is changed after its masses were found, as released code does."""
    sizes = {CHEETAHS: NOMINAL, HOPPERS: RADII[1]}[family]
    model = mujoco.MjModel.from_xml_string(edited(family, sizes))
    for (name, place), size in zip(SIZES[family.asset], theta, strict=True):
        model.geom(name).size[place] = size
    return model


# What says its total mass in an old way is Gymnasium's file; here it is compiled by MuJoCo alone.
@pytest.mark.filterwarnings("ignore:.*settotalmass")
@pytest.mark.parametrize(("family", "theta"), [(CHEETAHS, CORNERS[3]), (HOPPERS, RADII[2])])
def test_a_body_whose_masses_are_left_at_their_old_values_is_noticed(family, theta, monkeypatch):
    episode = side_by_side([recorded(gymnasiums(family, theta), 0, 20)])
    assert_bits_are_gymnasiums(family, episode, [theta])
    monkeypatch.setattr(host, "model", stale)
    monkeypatch.setattr(host, "_garage", cache(host.Garage))  # the real one keeps its models
    states, *_ = ours(family, episode, [theta])
    assert np.abs(states - episode.states[1:]).max() > 1e-3
    with pytest.raises(AssertionError, match="not equal"):
        assert_bits_are_gymnasiums(family, episode, [theta])


@pytest.mark.filterwarnings("ignore:.*settotalmass")  # as above
@each_body
def test_masses_and_inertias_are_those_of_mujocos_compiler(family, theta, sizes):
    compiled = mujoco.MjModel.from_xml_string(edited(family, sizes))
    model = models.model(family, theta)
    for name in ("body_mass", "body_inertia", "body_ipos", "geom_size", "dof_invweight0", "qpos0"):
        np.testing.assert_array_equal(getattr(model, name), getattr(compiled, name))
    if family is not HOPPERS:
        assert model.body_mass.sum() == pytest.approx(14, abs=1e-12)
    nominal = {"half_cheetah.xml": NOMINAL, "hopper.xml": RADII[1]}[family.asset]
    if sizes != nominal:
        others = mujoco.MjModel.from_xml_string(edited(family, nominal))
        assert np.abs(model.body_mass - others.body_mass).max() > 1e-2
        assert np.abs(model.body_inertia - others.body_inertia).max() > 1e-4
        in_place = stale(HOPPERS if family is HOPPERS else CHEETAHS, sizes)
        np.testing.assert_array_equal(in_place.geom_size, model.geom_size)
        np.testing.assert_array_equal(in_place.body_mass, others.body_mass)


def test_the_leg_weighs_what_a_capsule_of_its_size_weighs():
    # Density 1000, as MuJoCo says by default; a cylinder of length 0.5 between two half spheres.
    for (radius,) in RADII:
        volume = np.pi * radius**2 * 0.5 + 4 / 3 * np.pi * radius**3
        mass = models.model(HOPPERS, (radius,)).body("leg").mass[0]
        assert mass == pytest.approx(1000 * volume, rel=1e-9)


@pytest.mark.parametrize(
    ("family", "thetas"),
    [
        (CHEETAHS, [(0.01, 0.01), (0.5, 0.5), (0.01, 0.5)]),
        (HOPPERS, [(0.005,), (0.2,)]),
    ],
)
def test_bodies_at_the_limits_of_what_is_possible_can_be_simulated(family, thetas):
    thetas = np.array([family.check_theta(theta) for theta in thetas])
    first = resets(family, jax.random.key(0), len(thetas))
    actions = np.float32(np.random.default_rng(0).uniform(-1, 1, (20, *first.shape[:1], 1)))
    actions = np.broadcast_to(actions, (*actions.shape[:2], family.actions))
    states = np.asarray(played(family, first, actions, thetas)[0])
    assert np.isfinite(states).all()
    speeds = host.join(states)[..., family.joints : 2 * family.joints]
    assert 1 < np.abs(speeds).max() < 1e4


def many(family, count, thetas, seed=0):
    rng = np.random.default_rng(seed)
    states = resets(family, jax.random.key(seed), count)
    actions = np.float32(rng.uniform(-1, 1, (count, family.actions)))
    thetas = np.float32([thetas[i % len(thetas)] for i in range(count)])
    # A few steps on, so that all three parts of numbers and the warm start are in use.
    return played(family, states, np.tile(actions, (3, 1, 1)), thetas)[0][-1], actions, thetas


@partial(jax.jit, static_argnums=0)
def step_of_many(family, states, actions, thetas):
    return jax.vmap(family.step)(states, actions, jax.vmap(family.constants)(thetas))


def stepped(family, *rows):
    """All arrays of a step of many robots."""
    return [np.asarray(array) for array in step_of_many(family, *rows)]


@pytest.mark.parametrize(("family", "thetas"), [(CHEETAHS, CORNERS), (HOPPERS, RADII)])
def test_robots_of_one_call_have_each_its_own_body_in_any_order(family, thetas):
    states, actions, thetas = many(family, 12, thetas)
    # All alike but for the body.
    states, actions = (np.broadcast_to(x[:1], x.shape) for x in (np.asarray(states), actions))
    order = np.random.default_rng(1).permutation(12)
    together = stepped(family, states, actions, thetas)
    permuted = stepped(family, states[order], actions[order], thetas[order])
    for array, other in zip(together, permuted, strict=True):
        np.testing.assert_array_equal(array[order], other)
    for i, j in product(range(12), repeat=2):
        same_body = np.array_equal(thetas[i], thetas[j])
        assert np.array_equal(together[0][i], together[0][j]) == same_body


@pytest.mark.parametrize(("family", "thetas"), [(CHEETAHS, CORNERS), (HOPPERS, RADII)])
def test_many_robots_on_several_cores_are_the_same_bits_as_one_at_a_time(
    family, thetas, monkeypatch
):
    rows = many(family, 300, thetas)
    some = [*range(0, 300, 5), 299]
    alone = [stepped(family, *(row[i : i + 1] for row in rows)) for i in some]
    threads, step = set(), host.Garage.step

    def watched(*arguments):
        threads.add(threading.current_thread().name)
        return step(*arguments)

    monkeypatch.setattr(host.Garage, "step", watched)
    monkeypatch.setattr(host.os, "cpu_count", lambda: 4)
    host._workers.cache_clear()
    for _ in range(5):
        together = stepped(family, *rows)
        for array, *others in zip(together, *alone, strict=True):
            np.testing.assert_array_equal(array[some], np.concatenate(others))
    assert len(threads) > 1
    host._workers().shutdown()
    host._workers.cache_clear()


@pytest.mark.parametrize("cores", [1, 2, 3, 16, None])
def test_every_robot_is_stepped_exactly_once(cores, monkeypatch):
    monkeypatch.setattr(host, "os", SimpleNamespace(cpu_count=lambda: cores))
    for count in (0, 1, 7, 15, 16, 17, 33, 100):
        done = []
        host.over_cores(done.extend, count)
        assert sorted(done) == list(range(count))


def test_what_fails_for_one_robot_is_not_lost_on_the_way_from_its_thread():
    def fail(robots):
        if 90 in robots:
            raise ZeroDivisionError("robot 90")

    with pytest.raises(ZeroDivisionError, match="robot 90"):
        host.over_cores(fail, 100)


magnitudes = st.floats(1e-20, 1e8)
numbers = st.one_of(magnitudes, magnitudes.map(lambda x: -x), st.just(0.0))


@given(st.lists(numbers, min_size=1, max_size=30))
def test_three_numbers_of_32_bits_hold_one_of_64_exactly(values):
    values = np.array(values)
    parts = host.split(values)
    assert parts.dtype == np.float32
    assert parts.shape == (3, len(values))
    np.testing.assert_array_equal(host.join(parts), values)


def test_states_survive_the_way_through_compiled_programs_bit_for_bit(rng):
    values = rng.choice([-1.0, 1.0], (500, 27)) * 10.0 ** rng.uniform(-20, 8, (500, 27))
    values[rng.random((500, 27)) < 0.1] = 0.0

    @jax.jit
    def through(parts):
        def one(carry, part):
            row = jnp.concatenate([jnp.ones(2), part.reshape(-1)])
            return carry, jnp.where(part[0, 0] > inf, jnp.nan, row[2:].reshape(part.shape))

        return jax.lax.scan(one, 0, parts)[1]

    parts = through(jnp.asarray(host.split(values)))
    assert parts.dtype == jnp.float32
    np.testing.assert_array_equal(host.join(np.asarray(parts)), values)


@pytest.mark.parametrize("parts", [1, 2])
def test_fewer_parts_would_not_hold_a_state(parts, rng):
    values = rng.normal(size=100)
    fewer = host.split(values)
    fewer[parts:] = 0
    assert (host.join(fewer) != values).mean() > 0.5


@pytest.mark.parametrize(
    ("family", "positions", "velocities"),
    [
        (CHEETAHS, stats.uniform(-0.1, 0.2), stats.norm(scale=0.1)),
        (HOPPERS, stats.uniform(-5e-3, 1e-2), stats.uniform(-5e-3, 1e-2)),
    ],
    ids=["cheetahs", "hoppers"],
)
def test_first_states_are_distributed_as_gymnasium_says(family, positions, velocities):
    robot = gymnasiums(family, {CHEETAHS: NOMINAL, HOPPERS: RADII[1]}[family])
    theirs = []
    for seed in range(500):
        robot.reset(seed=seed)
        theirs.append(state_of(robot))
    theirs = np.array(theirs)
    n = family.joints
    states = np.asarray(resets(family, jax.random.key(3), 4000))
    assert states.shape == (4000, *family.state_shape)
    assert not states[:, 1:].any()
    nominal = robot.init_qpos
    np.testing.assert_allclose(states[:, 0, :n].mean(0), nominal, atol=4 * positions.std() / 63)
    np.testing.assert_allclose(states[:, 0, n : 2 * n].mean(0), 0, atol=4 * velocities.std() / 63)
    assert not states[:, 0, 2 * n :].any()
    assert not theirs[:, 2 * n :].any()  # nor is there a warm start in Gymnasium's first states
    low, high = positions.support()
    noise = states[:, 0, :n] - nominal
    # 1.25 + noise is a number of 32 bits.
    assert low - 1e-7 <= noise.min() < 0.99 * low
    assert 0.99 * high < noise.max() <= high + 1e-7
    for i in range(n):
        assert stats.kstest(noise[:, i], positions.cdf).pvalue > 1e-3
        assert stats.kstest(states[:, 0, n + i], velocities.cdf).pvalue > 1e-3
        assert stats.ks_2samp(states[:, 0, i], theirs[:, i]).pvalue > 1e-3
        assert stats.ks_2samp(states[:, 0, n + i], theirs[:, n + i]).pvalue > 1e-3
    together = np.corrcoef(states[:, 0, : 2 * n].T) - np.eye(2 * n)
    assert np.abs(together).max() < 5 / 63  # independent of each other


UPRIGHT = [0.0, 1.25, 0.0, 0.0, 0.0, 0.0] + [0.0] * 6
AROUND_THE_LIMITS = [
    *((1, limit) for limit in (0.7 - 1e-9, 0.7, 0.7 + 1e-9, 0.5, -1.0, 99.0, 150.0)),
    *((2, s * limit) for s in (-1, 1) for limit in (0.2 - 1e-9, 0.2, 0.2 + 1e-9, 3.0)),
    *(
        (place, s * limit)
        for place in (3, 4, 5, 6, 7, 8, 9, 10, 11)
        for s in (-1, 1)
        for limit in (100 - 1e-9, 100.0, 100 + 1e-9)
    ),
    *((0, x) for x in (-1e4, 99.0, 101.0, 1e4)),  # how far it has come is no limit
]


def test_a_hopper_has_fallen_where_gymnasium_says_so():
    robot = gymnasiums(HOPPERS, RADII[1])
    robot.reset(seed=0)
    healthy = []
    for place, value in AROUND_THE_LIMITS:
        state = np.array(UPRIGHT)
        state[place] = value
        robot.set_state(state[:6], state[6:])
        healthy.append(robot.is_healthy)
        reward, terminated = HOPPERS.outcome(np.float64(2.5), state[:6], state[6:], np.ones(3), np)
        assert terminated == (not robot.is_healthy), (place, value)
        expected, _ = robot._get_rew(2.5, np.ones(3))
        assert reward == expected, (place, value)
    assert 10 < sum(healthy) < len(healthy) - 10


def test_a_hopper_on_a_device_has_fallen_where_gymnasium_says_so():
    robot = gymnasiums(HOPPERS, RADII[1])
    robot.reset(seed=0)
    steps = 1e-4 * np.array([-1, 1])  # beyond the rounding of 100 to 32 bits
    limits = [(1, 0.7), (2, 0.2), (2, -0.2), (3, 100), (5, -100), (6, 100), (11, -100)]
    states = []
    for (place, limit), step in product(limits, steps):
        state = np.array(UPRIGHT)
        state[place] = limit + step
        states.append(state)
    expected = []
    for state in states:
        robot.set_state(state[:6], state[6:])
        expected.append(not robot.is_healthy)
    states = jnp.asarray(np.array(states), jnp.float32)
    outcome = jax.jit(jax.vmap(lambda s: HOPPERS.outcome(0.0, s[:6], s[6:], jnp.zeros(3), jnp)))
    rewards, terminated = outcome(states)
    assert terminated.tolist() == expected == (np.asarray(rewards) == 0).tolist()
    assert sum(expected) == len(limits)


def test_a_half_cheetah_never_ends_an_episode():
    upside_down = np.array([0.0, -0.4, np.pi] + [0.0] * 6)
    fast = np.full(9, 1e3)
    reward, terminated = CHEETAHS.outcome(np.float64(-3.0), upside_down, fast, np.ones(6), np)
    assert reward == pytest.approx(-3.0 - 0.1 * 6)
    assert not terminated


def test_velocities_of_a_hopper_are_seen_up_to_10_and_those_of_a_half_cheetah_as_they_are():
    for family, seen in ((HOPPERS, 10.0), (CHEETAHS, 250.0)):
        state = np.zeros(family.state_shape, np.float32)
        state[0, family.joints] = -250.0
        state[0, 2 * family.joints - 1] = 250.0
        observation = np.asarray(family.observe(state))
        assert observation.shape == (family.observation_size,)
        assert observation[family.joints - 1] == -seen
        assert observation[-1] == seen


@each_family
@pytest.mark.parametrize("wrong", [nan, inf, -inf])
def test_what_is_not_a_number_stays_so_and_leaves_others_alone(family, wrong):
    middle = [tuple((varied.low + varied.high) / 2 for varied in family.varied)]
    rows = [np.array(row) for row in many(family, 20, middle)]
    expected = stepped(family, *rows)
    rows[0][3, 0, 4] = wrong
    rows[1][11, 0] = wrong
    bad = [3, 11]
    good = [i for i in range(20) if i not in bad]
    no_torque = np.zeros_like(rows[1])
    states, rewards, terminated = stepped(family, *rows)
    for array, other in zip((states, rewards, terminated), expected, strict=True):
        np.testing.assert_array_equal(array[good], other[good])
    for _ in range(2):
        assert np.isnan(states[bad]).all()
        assert np.isnan(rewards[bad]).all()
        assert (terminated[bad] == (family is HOPPERS)).all()
        states, rewards, terminated = stepped(family, states, no_torque, rows[2])
    assert np.isfinite(states[good]).all()


def test_greedy_returns_are_those_of_the_same_policy_in_gymnasiums_hopper():
    # So few steps that some episodes end by a fall and some by the limit.
    family, gamma, limit = Hoppers(time_limit=40), 0.9, 40
    learner, key = DDPG(hidden=(8,), action_layer=0), jax.random.key(4)
    init = jax.vmap(lambda key: learner.init(key, family.observation_size, family.actions).params)
    networks = jax.jit(init)(jax.random.split(jax.random.key(5), 3))
    thetas = np.float32([RADII[0], RADII[2]])
    play = partial(greedy_returns, family, learner.policy, episodes=2, gamma=gamma)
    returns = jax.jit(play)(networks, thetas, key)
    act, reset = jax.jit(learner.policy), jax.jit(family.reset)
    lengths = []
    for j, environment in enumerate(numbered(key, 2)):
        robot = gymnasiums(family, as_64_bits(*thetas[j]))
        for i in range(3):
            network = jax.tree.map(lambda leaf, i=i: leaf[i], networks)
            undiscounted, discounted = [], []
            for start in numbered(environment, 2):
                first = np.asarray(reset(start))[0].astype(np.float64)
                robot.reset(seed=0)
                robot.set_state(first[:6], first[6:12])
                observation, rewards, terminated = robot._get_obs(), [], False
                while not terminated and len(rewards) < limit:
                    action = np.asarray(act(network, np.float32(observation)), np.float64)
                    observation, reward, terminated, _, _ = robot.step(action)
                    rewards.append(reward)
                undiscounted.append(sum(rewards))
                discounted.append(np.array(rewards) @ gamma ** np.arange(len(rewards)))
                lengths.append(len(rewards))
            assert returns.undiscounted[i, j] == pytest.approx(np.mean(undiscounted), abs=1e-4)
            assert returns.discounted[i, j] == pytest.approx(np.mean(discounted), abs=1e-4)
    assert min(lengths) < limit == max(lengths)


@pytest.mark.parametrize(
    ("family", "allowed", "thetas"),
    [
        (
            CHEETAHS,
            "2 numbers (back_thigh from 0.01 to 0.5, front_thigh from 0.01 to 0.5)",
            [(0.009, 0.12), (0.12, 0.51), (0.0, 0.12), (0.12, -0.12), 0.145, (0.145, 0.133, 0.1)],
        ),
        (
            TOGETHER,
            "1 number (thighs from 0 to 1)",
            [-0.01, 1.01, (0.145, 0.133)],
        ),
        (
            HOPPERS,
            "1 number (leg_radius from 0.005 to 0.2)",
            [0.0049, 0.201, 0.0, -0.04, (0.04, 0.04)],
        ),
    ],
    ids=["independent", "together", "hoppers"],
)
def test_a_theta_that_makes_no_body_is_refused_with_what_is_allowed(family, allowed, thetas):
    for theta in [*thetas, (), nan, inf, 1e60, "long", None]:
        with pytest.raises(FedrlError) as refused:
            family.check_theta(theta)
        assert f"theta of {family.name} must be {allowed}, got" in str(refused.value)


def test_thetas_at_the_limits_and_outside_the_range_drawn_from_are_allowed():
    assert HOPPERS.check_theta(0.005).tolist() == [np.float32(0.005)]
    assert HOPPERS.check_theta([0.2]).tolist() == [np.float32(0.2)]
    assert CHEETAHS.check_theta((0.01, 0.5)).tolist() == [np.float32(0.01), 0.5]
    assert TOGETHER.check_theta(0).tolist() == [0.0]
    assert TOGETHER.check_theta(1).tolist() == [1.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(Hoppers, leg_radius=(0.0, 1.0)), "family.leg_radius must be two numbers from 0.0"),
        (partial(Hoppers, leg_radius=(0.05, 0.03)), "from 0.005 to 0.2, the smaller one first"),
        (partial(Hoppers, leg_radius=(0.03, nan)), "family.leg_radius must be two numbers from"),
        (partial(Hoppers, leg_radius=0.04), "family.leg_radius must be two numbers, got 0.04"),
        (partial(HalfCheetahs, back_thigh=(0.1, 0.6)), "back_thigh must be two numbers from 0.01"),
        (partial(HalfCheetahs, front_thigh=(0.0, 0.2)), "front_thigh must be two numbers from"),
        (partial(HalfCheetahs, front_thigh=(0.2, 0.1)), "front_thigh must be .* smaller one first"),
        (partial(HalfCheetahs, thighs="apart"), "family.thighs 'apart'"),
        (
            partial(HalfCheetahs, simulator="bullet"),
            "family.simulator 'bullet': choose from 'mjx', 'mujoco'",
        ),
        (partial(Hoppers, simulator="bullet"), "family.simulator 'bullet'"),
        (partial(Hoppers, mjx_iterations=0), "family.mjx_iterations must be an integer"),
        (partial(Hoppers, mjx_line_search=101), "family.mjx_line_search must be an integer"),
        (partial(Hoppers, time_limit=0), "family.time_limit must be an integer"),
    ],
)
def test_settings_that_make_no_robots_are_refused(make, message):
    with pytest.raises(FedrlError, match=message):
        make()


@pytest.mark.parametrize("family", [CHEETAHS, HOPPERS, HalfCheetahs(thighs="together")])
def test_thetas_are_uniform_in_their_range_and_the_first_ones_do_not_depend_on_how_many(family):
    thetas = np.asarray(family.sample(jax.random.key(0), 2000))
    assert thetas.shape == (2000, len(family.varied))
    assert thetas.dtype == np.float32
    for column, varied in zip(thetas.T, family.varied, strict=True):
        low, high = np.float32(varied.low), np.float32(varied.high)
        assert low <= column.min()
        assert column.max() <= high
        assert stats.kstest(column, stats.uniform(low, high - low).cdf).pvalue > 1e-3
        for theta in (column.min(), column.max()):
            assert varied.allows(theta)
    if thetas.shape[1] == 2:
        assert abs(np.corrcoef(thetas.T)[0, 1]) < 0.1
    np.testing.assert_array_equal(family.sample(jax.random.key(0), 3), thetas[:3])
    assert not np.array_equal(family.sample(jax.random.key(1), 3), thetas[:3])


def test_ranges_are_the_papers():
    drawn_from = {(varied.name, varied.low, varied.high) for varied in CHEETAHS.varied}
    assert drawn_from == {("back_thigh", 0.1005, 0.1855), ("front_thigh", 0.1005, 0.1655)}
    (thighs,) = HalfCheetahs(thighs="together").varied
    assert (thighs.low, thighs.high) == (0.0, 1.0)
    (leg,) = HOPPERS.varied
    assert (leg.low, leg.high) == (0.03, 0.05)


# In the released experiments theta = 1 made the same robot as theta = 0.
def test_one_theta_for_both_thighs_goes_from_one_end_of_both_ranges_to_the_other():
    family = HalfCheetahs(thighs="together")
    shortest, longest = models.model(family, (0.0,)), models.model(family, (1.0,))
    for name, high in (("bthigh", 0.1855), ("fthigh", 0.1655)):
        assert shortest.geom(name).size[1] == pytest.approx(0.1005, abs=1e-15)
        assert longest.geom(name).size[1] == pytest.approx(high, abs=1e-15)
        half = models.model(family, (0.5,)).geom(name).size[1]
        assert half == pytest.approx((0.1005 + high) / 2, abs=1e-15)
        # The whole robot weighs 14 either way: longer thighs have a larger share of it.
        assert longest.body(name).mass > shortest.body(name).mass + 0.1


@each_family
def test_the_observation_has_gymnasiums_size_and_no_bounds(family):
    robot = gymnasium.make(GYMNASIUMS_OWN[family.asset])
    assert robot.observation_space.shape == (family.observation_size,)
    assert robot.action_space.shape == (family.actions,)
    assert (robot.action_space.low == -1).all()
    assert (robot.action_space.high == 1).all()
    assert robot.spec.max_episode_steps == family.time_limit
    np.testing.assert_array_equal(robot.observation_space.high, family.observation_bounds)
    assert robot.unwrapped.frame_skip == family.frame_skip
    assert robot.unwrapped.model.nq == robot.unwrapped.model.nv == family.joints


def test_the_families_are_found_by_their_names():
    assert CONTROL_FAMILIES["halfcheetahs"] is HalfCheetahs
    assert CONTROL_FAMILIES["hoppers"] is Hoppers
