"""CartPoles against Gymnasium's own CartPole-v1, at the same constants."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrl import FedrlError
from fedrl.families import CONTROL_FAMILIES, CartPoles
from parity import recorded, running, stepping

pytestmark = pytest.mark.usefixtures("hasty")
LENGTHS = [0.2, 0.6, 1.0, 1.8]
FAMILY = CartPoles()
from_every_state, free_run = stepping(FAMILY), running(FAMILY)


def push_at_random(state, rng):
    return int(rng.integers(2))


def balance(state, rng):
    return int(state @ [0.3, 0.6, 10.0, 1.5] > 0)


def gymnasium_episode(length, policy, seed, limit=500):
    cart_pole = gymnasium.make("CartPole-v1").unwrapped
    cart_pole.length = length / 2
    cart_pole.polemass_length = cart_pole.masspole * cart_pole.length
    cart_pole.total_mass = cart_pole.masspole + cart_pole.masscart
    return recorded(cart_pole, policy, seed, limit)


def constants_of(length, dtype=np.float32):
    return FAMILY.constants(jnp.array([length], dtype))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("policy", "steps"), [(push_at_random, 4), (balance, 500)])
def test_every_step_of_whole_episodes_is_gymnasiums(length, policy, steps):
    for seed in range(3):
        episode = gymnasium_episode(length, policy, seed)
        assert len(episode.actions) >= steps
        before = episode.states[:-1].astype(np.float32)
        after, seen, rewards, terminated = from_every_state(
            before, episode.actions, constants_of(length)
        )
        assert after.dtype == seen.dtype == rewards.dtype == np.float32
        np.testing.assert_allclose(after, episode.states[1:], atol=1e-4)
        np.testing.assert_allclose(seen, episode.observations, atol=1e-4)
        np.testing.assert_array_equal(rewards, episode.rewards)
        np.testing.assert_array_equal(terminated, episode.terminated)
        assert terminated[-1] == (policy is push_at_random)


# While both are pushed alike, nothing balances their difference: it grows like a falling pole, from
# 1e-16 to 2e-9 in 100 steps of the shortest one. Random pushes end the episode long before.
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("policy", [push_at_random, balance])
def test_double_precision_left_alone_for_100_steps_stays_with_gymnasium(length, policy):
    episode = gymnasium_episode(length, policy, seed=11, limit=100)
    with jax.enable_x64(True):
        constants = constants_of(length, np.float64)
        states, rewards, terminated = free_run(episode.states[0], episode.actions, constants)
    assert states.dtype == np.float64
    np.testing.assert_allclose(states, episode.states[1:], atol=1e-7)
    np.testing.assert_array_equal(rewards, episode.rewards)
    np.testing.assert_array_equal(terminated, episode.terminated)


@pytest.mark.parametrize("stale", ["half_length", "mass_times_half_length"])
def test_a_constant_left_at_its_old_value_is_noticed(stale):
    episode = gymnasium_episode(0.2, push_at_random, seed=0)
    constants = constants_of(0.2)._replace(**{stale: getattr(constants_of(1.0), stale)})
    before = episode.states[:-1].astype(np.float32)
    after = from_every_state(before, episode.actions, constants)[0]
    assert np.abs(after - episode.states[1:]).max() > 1e-3


def test_the_power_of_the_push_is_what_the_energy_grows_by(rng):
    # A rod of mass 0.1 with moment of inertia m (2 l)^2 / 12 about its middle, at height l cos.
    def energy(state, half_length):
        _, speed, angle, spin = state
        middle_x = speed + half_length * spin * jnp.cos(angle)
        middle_y = -half_length * spin * jnp.sin(angle)
        moment = 0.1 * (2 * half_length) ** 2 / 12
        kinetic = (1.0 * speed**2 + 0.1 * (middle_x**2 + middle_y**2) + moment * spin**2) / 2
        return kinetic + 0.1 * 9.8 * half_length * jnp.cos(angle)

    def power(state, length):
        after, _, _ = FAMILY.step(state, jnp.array(1), FAMILY.constants(length[None]))
        return jax.grad(energy)(state, length / 2) @ (after - state) / 0.02

    states = rng.normal(size=(len(LENGTHS), 4))
    with jax.enable_x64(True):
        grows_by = jax.jit(jax.vmap(power))(states, np.array(LENGTHS))
    np.testing.assert_allclose(grows_by, 10.0 * states[:, 1], rtol=1e-9)


def test_an_episode_ends_beyond_2_4_or_12_degrees_to_either_side():
    edge = np.deg2rad(12)
    inside = [[2.399, 0, 0, 0], [-2.399, 0, 0, 0], [0, 0, edge - 1e-3, 0], [0, 0, 1e-3 - edge, 0]]
    beyond = [[2.401, 0, 0, 0], [-2.401, 0, 0, 0], [0, 0, edge + 1e-3, 0], [0, 0, -1e-3 - edge, 0]]
    states = np.array(inside + beyond, np.float32)
    _, _, rewards, terminated = from_every_state(states, np.ones(8, int), constants_of(1.0))
    assert terminated.tolist() == [False] * 4 + [True] * 4
    assert rewards.tolist() == [1.0] * 8


def test_first_states_are_uniform_and_small():
    states = np.asarray(jax.vmap(FAMILY.reset)(jax.random.split(jax.random.key(0), 4000)))
    assert states.shape == (4000, 4)
    assert states.dtype == np.float32
    assert -0.05 <= states.min() < -0.0499
    assert 0.0499 < states.max() <= 0.05
    np.testing.assert_allclose(states.mean(axis=0), 0, atol=4 * 0.1 / np.sqrt(12 * 4000))


def test_lengths_are_drawn_from_the_given_range():
    theta = np.asarray(CartPoles(length=(0.5, 0.7)).sample(jax.random.key(0), 1000))
    assert theta.shape == (1000, 1)
    assert 0.5 <= theta.min() < 0.501
    assert 0.699 < theta.max() <= 0.7


@pytest.mark.parametrize(
    "length", [(1.8, 0.2), (0.0, 1.0), (-1.0, 1.0), (0.5, np.inf), (np.nan, 1.0)]
)
def test_a_range_that_is_none_is_refused(length):
    with pytest.raises(FedrlError, match="length must be two positive numbers"):
        CartPoles(length=length)


def test_a_time_limit_that_is_no_number_of_steps_is_refused():
    with pytest.raises(FedrlError, match="time_limit must be an integer"):
        CartPoles(time_limit=0)


def is_orange(picture):
    return np.abs(picture.astype(int) - (0xD5, 0x5E, 0x00)).sum(axis=2) < 30


def test_pictures_show_the_length_of_the_pole():
    state = np.array([0.0, 0.0, 0.1, 0.0], np.float32)
    pictures = [FAMILY.draw(state, np.array([length])) for length in (0.4, 0.8)]
    heights = [np.ptp(np.nonzero(is_orange(picture))[0]) for picture in pictures]
    assert pictures[0].shape == (400, 600, 3)
    assert pictures[0].dtype == np.uint8
    # 0.4 longer, at 600 pixels for 5.4
    assert heights[1] - heights[0] == pytest.approx(0.4 * np.cos(0.1) * 600 / 5.4, abs=2)


def test_a_very_long_pole_still_fits_into_the_picture():
    picture = FAMILY.draw(np.zeros(4), np.array([5.0]))
    assert is_orange(picture).any()
    assert not is_orange(picture)[:5].any()


def test_the_family_is_found_by_its_name():
    assert CONTROL_FAMILIES["cartpoles"] is CartPoles


WIRED = CartPoles(wiring=(-1.0, 1.0))


@pytest.mark.parametrize("length", LENGTHS)
def test_wired_the_other_way_round_each_action_does_what_the_other_one_did(length, rng):
    states = rng.uniform(-1, 1, size=(50, 4)).astype(np.float32)
    pushed = stepping(WIRED)
    for action in (0, 1):
        usual = from_every_state(states, np.full(50, action), constants_of(length))
        for wiring in (-1.0, -1e-6, 0.0, 0.5, 1.0):
            constants = WIRED.constants(jnp.array([length, wiring], jnp.float32))
            given = np.full(50, action if wiring >= 0 else 1 - action)
            found = pushed(states, given, constants)
            for one, other in zip(found, usual, strict=True):
                assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    assert np.abs(found[0] - pushed(states, 1 - given, constants)[0]).max() > 0.1


def test_theta_says_how_a_cart_is_wired_where_that_differs():
    assert [varied.name for varied in FAMILY.varied] == ["length"]
    assert [varied.name for varied in WIRED.varied] == ["length", "wiring"]
    assert CartPoles(wiring=(1.0, 1.0)) == FAMILY
    assert len(CartPoles(wiring=(-1.0, -1.0)).varied) == 2
    theta = np.asarray(WIRED.sample(jax.random.key(0), 1000))
    assert theta.shape == (1000, 2)
    assert 0.2 <= theta[:, 0].min() < 0.21
    assert 1.79 < theta[:, 0].max() <= 1.8
    # Every second one, but for chance.
    assert abs((theta[:, 1] < 0).mean() - 0.5) < 4 * 0.5 / np.sqrt(1000)
    np.testing.assert_array_equal(WIRED.check_theta((1.0, -0.5)), np.float32([1.0, -0.5]))
    assert WIRED.draw(np.zeros(4), np.array([1.0, -1.0])).shape == (400, 600, 3)


@pytest.mark.parametrize("wiring", [(-1.1, 1.0), (-1.0, 1.5), (1.0, -1.0), (np.nan, 1.0), 1.0])
def test_a_wiring_that_is_none_is_refused(wiring):
    with pytest.raises(FedrlError, match="wiring must be two numbers"):
        CartPoles(wiring=wiring)


@pytest.mark.parametrize("theta", [1.0, (1.0, 2.0), (1.0, -1.1), (-1.0, 1.0), (1.0, 1.0, 1.0)])
def test_a_theta_that_no_wired_cart_has_is_refused(theta):
    with pytest.raises(FedrlError, match=r"2 numbers \(length, positive, wiring from -1 to 1"):
        WIRED.check_theta(theta)
    with pytest.raises(FedrlError, match=r"1 number \(length, positive\)"):
        FAMILY.check_theta((1.0, 1.0))
