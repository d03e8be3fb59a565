"""Acrobots against Gymnasium's own Acrobot-v1, at the same constants."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrl import FedrlError
from fedrl.families import CONTROL_FAMILIES, Acrobots
from fedrl.families.acrobots import _derivative
from parity import recorded, running, stepping

pytestmark = pytest.mark.usefixtures("hasty")
FAMILY = Acrobots(length=(0.5, 1.5))
from_every_state, free_run = stepping(FAMILY), running(FAMILY)
THETAS = [(0.5, 1.0), (1.0, 1.0), (1.5, 1.0), (0.5, 0.7), (1.5, 1.3)]


def twist_at_random(state, rng):
    return int(rng.integers(3))


def pump(state, rng):
    """Always along the motion of the elbow, which adds energy; now and then at random."""
    return int(rng.integers(3)) if rng.random() < 0.2 else 1 + int(np.sign(state[3]))


def gymnasium_episode(theta, policy, seed, limit=500):
    acrobot = gymnasium.make("Acrobot-v1").unwrapped
    acrobot.LINK_MASS_1, acrobot.LINK_LENGTH_1 = theta
    acrobot.LINK_COM_POS_1 = acrobot.LINK_LENGTH_1 / 2
    return recorded(acrobot, policy, seed, limit)


def constants_of(theta, dtype=np.float32):
    return FAMILY.constants(jnp.array(theta, dtype))


def difference(ours, theirs):
    """Of states; of angles modulo a full turn."""
    apart = np.asarray(ours, np.float64) - theirs
    apart[..., :2] = np.angle(np.exp(1j * apart[..., :2]))
    return np.abs(apart).max()


@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize("policy", [twist_at_random, pump])
def test_every_step_of_whole_episodes_is_gymnasiums(theta, policy):
    episode = gymnasium_episode(theta, policy, seed=0)
    before = episode.states[:-1].astype(np.float32)
    after, seen, rewards, terminated = from_every_state(
        before, episode.actions, constants_of(theta)
    )
    assert after.dtype == seen.dtype == rewards.dtype == np.float32
    assert difference(after, episode.states[1:]) < 1e-4
    np.testing.assert_allclose(seen, episode.observations, atol=1e-4)
    np.testing.assert_array_equal(rewards, episode.rewards)
    np.testing.assert_array_equal(terminated, episode.terminated)


def test_pumping_swings_up_and_so_covers_the_end_of_an_episode():
    episode = gymnasium_episode((1.0, 1.0), pump, seed=0)
    assert episode.terminated[-1]
    assert episode.rewards[-1] == 0
    assert (episode.rewards[:-1] == -1).all()


# The acrobot is chaotic, but 500 steps (100 seconds) are not enough for rounding errors to show:
# over these episodes they grow from 1e-16 to 1e-8 at worst, when random twists swing it far.
@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize("policy", [twist_at_random, pump])
def test_whole_episodes_in_double_precision_stay_with_gymnasium(theta, policy):
    episode = gymnasium_episode(theta, policy, seed=3)
    with jax.enable_x64(True):
        start = episode.states[0].astype(np.float64)
        constants = constants_of(theta, np.float64)
        states, rewards, terminated = free_run(start, episode.actions, constants)
    assert states.dtype == np.float64
    assert difference(states, episode.states[1:]) < 1e-6
    np.testing.assert_array_equal(rewards, episode.rewards)
    np.testing.assert_array_equal(terminated, episode.terminated)


@pytest.mark.parametrize("stale", ["inertia", "coupling", "weight"])
def test_a_constant_left_at_its_old_value_is_noticed(stale):
    episode = gymnasium_episode((1.5, 1.3), twist_at_random, seed=0)
    old = getattr(constants_of((1.0, 1.0)), stale)
    constants = constants_of((1.5, 1.3))._replace(**{stale: old})
    before = episode.states[:-1].astype(np.float32)
    after = from_every_state(before, episode.actions, constants)[0]
    assert difference(after, episode.states[1:]) > 1e-3


def energy(state, mass, length):
    """Of two bodies with moment of inertia 1 about their middles, from their velocities."""
    angle, bend, spin, spin_2 = state
    both, spin_both = angle + bend, spin + spin_2
    elbow_x, elbow_y = length * spin * jnp.cos(angle), length * spin * jnp.sin(angle)
    middle_x = elbow_x + 0.5 * spin_both * jnp.cos(both)
    middle_y = elbow_y + 0.5 * spin_both * jnp.sin(both)
    first = mass * (length / 2 * spin) ** 2 + spin**2
    second = middle_x**2 + middle_y**2 + spin_both**2
    height_1, height_2 = -length * jnp.cos(angle), -0.5 * jnp.cos(both)
    return (first + second) / 2 + 9.8 * (mass * height_1 / 2 + height_1 + height_2)


def test_the_power_of_the_torque_is_what_the_energy_grows_by(rng):
    def power(state, torque, theta):
        rates = jnp.stack(_derivative(tuple(state), torque, FAMILY.constants(theta)))
        return jax.grad(energy)(state, *theta) @ rates

    thetas, n = np.repeat(THETAS, 20, axis=0), 20 * len(THETAS)
    states, torques = rng.normal(size=(n, 4)) * 3, rng.uniform(-1, 1, size=n)
    with jax.enable_x64(True):
        grows_by = jax.jit(jax.vmap(power))(states, torques, thetas)
    np.testing.assert_allclose(grows_by, torques * states[:, 3], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("theta", THETAS)
def test_a_free_swing_of_ten_seconds_keeps_its_energy_but_for_the_coarse_steps(theta):
    start = np.array([1.0, -0.5, 0.0, 0.0], np.float32)
    swing = free_run(start, np.ones(50, int), constants_of(theta))[0]
    energies = np.array(jax.vmap(energy, (0, None, None))(swing, *theta))
    at_rest = energy(np.zeros(4), *theta)
    first = energy(start, *theta)
    np.testing.assert_allclose(energies, first, atol=0.02 * float(first - at_rest))


def test_speeds_are_cut_off_at_4_pi_and_9_pi():
    fast = np.array([[0, 0, 12.5, 28], [0, 0, -12.5, -28], [0, 0, 40, -90]], np.float32)
    after, seen, _, _ = from_every_state(fast, np.ones(3, int), constants_of((1.0, 1.0)))
    limits = np.array([4 * np.pi, 9 * np.pi], np.float32)
    assert (np.abs(after[:, 2:]) <= limits).all()
    assert (np.abs(after[:, 2:]) == limits).any()
    assert (np.abs(after[:, :2]) <= np.float32(np.pi)).all()
    assert (np.abs(seen) <= FAMILY.observation_bounds).all()


def test_without_a_range_of_lengths_theta_is_the_mass_and_the_length_is_one():
    just_mass = Acrobots()
    assert [varied.name for varied in just_mass.varied] == ["mass"]
    assert [varied.name for varied in FAMILY.varied] == ["mass", "length"]
    expected = constants_of((0.7, 1.0))
    np.testing.assert_array_equal(just_mass.constants(jnp.array([0.7])), expected)


def test_first_states_are_uniform_and_small():
    states = np.asarray(jax.vmap(FAMILY.reset)(jax.random.split(jax.random.key(0), 4000)))
    assert states.shape == (4000, 4)
    assert states.dtype == np.float32
    assert -0.1 <= states.min() < -0.0998
    assert 0.0998 < states.max() <= 0.1
    np.testing.assert_allclose(states.mean(axis=0), 0, atol=4 * 0.2 / np.sqrt(12 * 4000))


def test_masses_and_lengths_are_drawn_from_the_given_ranges():
    family = Acrobots(mass=(2.0, 3.0), length=(0.5, 0.7))
    theta = np.asarray(family.sample(jax.random.key(0), 1000))
    assert theta.shape == (1000, 2)
    assert ((theta >= [2.0, 0.5]) & (theta <= np.float32([3.0, 0.7]))).all()
    np.testing.assert_allclose(np.ptp(theta, axis=0), [1.0, 0.2], rtol=0.02)
    assert abs(np.corrcoef(theta.T)[0, 1]) < 0.13
    assert Acrobots().sample(jax.random.key(0), 3).shape == (3, 1)


@pytest.mark.parametrize(
    ("setting", "range"), [("mass", (1.5, 0.5)), ("mass", (0.0, 1.0)), ("length", (1.0, -1.0))]
)
def test_a_range_that_is_none_is_refused(setting, range):
    with pytest.raises(FedrlError, match=f"{setting} must be two positive numbers"):
        Acrobots(**{setting: range})


def test_pictures_show_the_mass_and_the_length_of_the_first_link():
    def blue(theta):
        picture = FAMILY.draw(np.array([np.pi / 2, 0.3, 0.0, 0.0]), np.array(theta))
        assert picture.shape == (500, 500, 3)
        assert picture.dtype == np.uint8
        rows, columns = np.nonzero(np.abs(picture.astype(int) - (0, 0x72, 0xB2)).sum(axis=2) < 30)
        return np.ptp(rows), np.ptp(columns)

    light, heavy, long = blue((0.5, 1.0)), blue((1.5, 1.0)), blue((0.5, 1.4))
    assert heavy[0] > 2 * light[0]
    assert long[1] - light[1] == pytest.approx(0.4 * 500 / 5.4, abs=2)


def test_the_family_is_found_by_its_name():
    assert CONTROL_FAMILIES["acrobots"] is Acrobots
