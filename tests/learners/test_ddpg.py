"""DDPG and TD3 against NumPy, linear-quadratic control, small environments and a pendulum."""

from dataclasses import replace
from functools import cache
from math import inf

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg, stats

from engines import engine_of
from fedrl import Experiment, FedrlError
from fedrl.engine.agent import (
    Agent,
    Clock,
    OneAgent,
    StepDraws,
    nothing_seen,
)
from fedrl.engine.evaluation import greedy_returns
from fedrl.families import CartPoles, HalfCheetahs
from fedrl.learners import replay
from fedrl.learners.ddpg import DDPG, ActingDraws, ActorCritic, actor_loss, critic_loss
from fedrl.learners.dqn import DQN
from fedrl.learners.replay import Transition
from finite_differences import slopes
from parity import recorded, stepping
from probes import Aim, EndedOrCutOff, Pendulum
from tiny import begin, go_on

pytestmark = pytest.mark.usefixtures("hasty")
OBSERVATIONS, ACTIONS, BATCH = 3, 2, 6
TERMINATED = np.array([0, 1, 0, 0, 1, 0], bool)
SMALL = DDPG(
    hidden=(5, 4), gamma=0.9, batch=BATCH, actor_lr=0.01, critic_lr=0.03, tau=0.2, action_layer=1
)
TD3 = replace(SMALL, twin=True, actor_every=2, smoothing=0.4, smoothing_clip=0.3)


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


def random_batch(rng):
    return Transition(
        observation=rng.normal(size=(BATCH, OBSERVATIONS)),
        action=rng.uniform(-1, 1, size=(BATCH, ACTIONS)),
        reward=3 * rng.normal(size=BATCH),
        next_observation=3 * rng.normal(size=(BATCH, OBSERVATIONS)),
        terminated=TERMINATED.astype(np.float64),
    )


def fresh(learner, seed=0, observations=OBSERVATIONS, actions=ACTIONS):
    return learner.init(jax.random.key(seed), observations, actions)


def different_target(learner):
    """An agent whose targets are other networks than its own."""
    return fresh(learner)._replace(target=fresh(learner, seed=1).params)


def same(one, other):
    return all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))


def nothing_equal(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return not any(np.isin(a, b).any() for a, b in pairs)


# Networks, losses and updates once more, in NumPy and one by one.


def arrays(tree):
    return [np.array(leaf) for leaf in jax.tree.leaves(tree)]


def numpy_actor(leaves, observation):
    *hidden, last = zip(leaves[::2], leaves[1::2], strict=True)
    x = observation
    for weight, bias in hidden:
        x = np.maximum(x @ weight + bias, 0)
    return np.tanh(x @ last[0].T + last[1])


def numpy_critic(leaves, observation, action, action_layer):
    *layers, action_weight = leaves
    pairs = list(zip(layers[::2], layers[1::2], strict=True))
    x = observation
    for number, (weight, bias) in enumerate(pairs):
        if number == len(pairs) - 1:
            weight = weight.T
        if number == action_layer:
            x, weight = np.concatenate([x, action], -1), np.vstack([weight, action_weight])
        x = x @ weight + bias
        if number < len(pairs) - 1:
            x = np.maximum(x, 0)
    return x[..., 0]


def numpy_critic_loss(leaves, batch, y, action_layer):
    return ((numpy_critic(leaves, batch.observation, batch.action, action_layer) - y) ** 2).mean()


def numpy_actor_loss(leaves, critic, observation, action_layer):
    return -numpy_critic(critic, observation, numpy_actor(leaves, observation), action_layer).mean()


class ObviousAdam:
    def __init__(self, lr, leaves):
        self.lr, self.number = lr, 0
        self.m, self.v = ([np.zeros_like(leaf) for leaf in leaves] for _ in range(2))

    def step(self, leaves, gradient):
        self.number += 1
        for leaf, g, m, v in zip(leaves, gradient, self.m, self.v, strict=True):
            m += 0.1 * (g - m)
            v += 0.001 * (g**2 - v)
            m_hat, v_hat = m / (1 - 0.9**self.number), v / (1 - 0.999**self.number)
            leaf -= self.lr * m_hat / (np.sqrt(v_hat) + 1e-8)


class ObviousAgent:
    def __init__(self, learner, learned):
        self.learner, self.believed = learner, set()
        self.actor = arrays(learned.params.actor)
        self.critics = [arrays(critic) for critic in learned.params.critics]
        self.target_actor = arrays(learned.target.actor)
        self.target_critics = [arrays(critic) for critic in learned.target.critics]
        self.actor_adam = ObviousAdam(learner.actor_lr, self.actor)
        self.critic_adams = [ObviousAdam(learner.critic_lr, critic) for critic in self.critics]

    def target(self, reward, after, terminated, normal):
        if terminated:
            return reward
        action = numpy_actor(self.target_actor, after)
        if normal is not None:
            for k in range(ACTIONS):
                move = self.learner.smoothing * normal[k]
                move = min(max(move, -self.learner.smoothing_clip), self.learner.smoothing_clip)
                action[k] = min(max(action[k] + move, -1), 1)
        layer = self.learner.action_layer
        worth = [numpy_critic(critic, after, action, layer) for critic in self.target_critics]
        self.believed.add(int(np.argmin(worth)))
        return reward + self.learner.gamma * min(worth)

    def update(self, batch, normal, number):
        layer = self.learner.action_layer
        y = np.array(
            [
                self.target(
                    batch.reward[i],
                    batch.next_observation[i],
                    TERMINATED[i],
                    normal[i] if self.learner.smoothing else None,
                )
                for i in range(BATCH)
            ]
        )
        loss = 0.0
        for critic, adam in zip(self.critics, self.critic_adams, strict=True):
            loss += numpy_critic_loss(critic, batch, y, layer)
            adam.step(critic, slopes(lambda x: numpy_critic_loss(x, batch, y, layer), critic))
        if number % self.learner.actor_every == 0:
            gradient = slopes(
                lambda x: numpy_actor_loss(x, self.critics[0], batch.observation, layer), self.actor
            )
            self.actor_adam.step(self.actor, gradient)
            for target, new in zip(
                [self.target_actor, *self.target_critics], [self.actor, *self.critics], strict=True
            ):
                for old, now in zip(target, new, strict=True):
                    old += self.learner.tau * (now - old)
        return loss

    def leaves(self):
        """In the order of the learner's params and target."""
        networks = [self.actor, *self.critics, self.target_actor, *self.target_critics]
        return [leaf for network in networks for leaf in network]


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    ("hidden", "twin", "action_layer"),
    [((5, 4), False, 0), ((5, 4), True, 1), ((5, 4, 3), False, 2)],
    ids=["action first", "twin", "action late"],
)
def test_losses_and_their_gradients_are_those_of_numpy_and_its_differences(
    rng, hidden, twin, action_layer
):
    learner = replace(SMALL, hidden=hidden, twin=twin, action_layer=action_layer)
    params = fresh(learner).params
    actor, critics = arrays(params.actor), [arrays(critic) for critic in params.critics]
    assert len(critics) == 1 + twin
    batch, y = random_batch(rng), rng.normal(size=BATCH)

    value, gradient = jax.jit(jax.value_and_grad(critic_loss))(params.critics, batch, y)
    each = [lambda x: numpy_critic_loss(x, batch, y, action_layer)] * len(critics)
    assert value == pytest.approx(sum(f(x) for f, x in zip(each, critics, strict=True)), rel=1e-12)
    expected = [slope for f, x in zip(each, critics, strict=True) for slope in slopes(f, x)]
    for ours, theirs in zip(arrays(gradient), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-8)

    value, gradient = jax.jit(jax.value_and_grad(actor_loss))(
        params.actor, params.critics[0], batch.observation
    )
    of_actor = lambda x: numpy_actor_loss(x, critics[0], batch.observation, action_layer)  # noqa: E731
    assert value == pytest.approx(of_actor(actor), rel=1e-12)
    expected = slopes(of_actor, actor)
    assert max(np.abs(slope).max() for slope in expected) > 1e-3
    for ours, theirs in zip(arrays(gradient), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-8)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    "learner",
    [SMALL, replace(SMALL, action_layer=0, actor_every=3), TD3],
    ids=["ddpg", "actor seldom", "td3"],
)
def test_updates_are_what_a_plain_loop_does(rng, learner):
    learned = different_target(learner)
    obvious = ObviousAgent(learner, learned)
    update = jax.jit(learner.update)
    for number in range(1, 5):
        batch, normal = random_batch(rng), rng.normal(size=(BATCH, ACTIONS))
        draws = normal if learner.smoothing else ()
        learned, loss = update(learned, batch, draws, jnp.int32(number))
        assert loss == pytest.approx(obvious.update(batch, normal, number), rel=1e-6)
        ours = arrays((learned.params, learned.target))
        for one, other in zip(ours, obvious.leaves(), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)
    # Of two target critics each has been the smaller one.
    assert len(obvious.believed) == len(learned.target.critics)


@pytest.mark.parametrize("learner", [SMALL, TD3], ids=["ddpg", "td3"])
def test_what_follows_a_terminal_state_does_not_matter_and_what_follows_a_time_limit_does(
    rng, learner
):
    batch = jax.tree.map(np.float32, random_batch(rng))
    draws = rng.normal(size=(BATCH, ACTIONS)).astype(np.float32) if learner.smoothing else ()
    update = jax.jit(learner.update)
    learned = different_target(learner)

    def after(rows):
        changed = batch.next_observation.copy()
        changed[rows] = 100 * rng.normal(size=(rows.sum(), OBSERVATIONS))
        return update(learned, batch._replace(next_observation=changed), draws, jnp.int32(2))

    expected = after(np.zeros(BATCH, bool))
    assert same(after(TERMINATED), expected)
    # A time limit is a row like any other that is not terminal.
    for row in np.flatnonzero(~TERMINATED):
        (learned_otherwise, loss) = after(np.arange(BATCH) == row)
        assert loss != expected[1]
        assert not same(learned_otherwise.params.critics, expected[0].params.critics)


# Linear-quadratic control: s' = A s + B u, reward -(s'Ms + u'Nu). The value of u = -K s, and what
# the best K is, are solutions of Lyapunov's and Riccati's equations.

GAMMA = 0.9
A = np.array([[0.9, 0.3], [-0.2, 1.0]])
B = np.array([[0.5, 0.1], [-0.1, 0.4]])
M = np.array([[1.0, 0.2], [0.2, 0.5]])
N = np.array([[0.3, 0.05], [0.05, 0.4]])
AB = np.hstack([A, B])


def cost_to_go(K):
    """P, so that the value of u = -K s is -s'Ps."""
    return linalg.solve_discrete_lyapunov(np.sqrt(GAMMA) * (A - B @ K).T, M + K.T @ N @ K)


def quadratic_q(P):
    """H, so that Q(s, u) = -(s, u)'H(s, u), if the value of what follows is -s'Ps."""
    return linalg.block_diag(M, N) + GAMMA * AB.T @ P @ AB


RICCATI = linalg.solve_discrete_are(np.sqrt(GAMMA) * A, np.sqrt(GAMMA) * B, M, N)
BEST_GAIN = np.linalg.solve(N + GAMMA * B.T @ RICCATI @ B, GAMMA * B.T @ RICCATI @ A)
WRONG_GAIN = np.array([[0.4, -0.5], [0.3, 0.2]])


class Gain(eqx.Module):
    """An actor with u = -K s, as long as that is in (-1, 1)."""

    K: jax.Array

    def __call__(self, observation):
        return jnp.arctanh(-observation @ self.K.T)


class Quadratic(eqx.Module):
    """A critic."""

    H: jax.Array

    def __call__(self, observation, action):
        x = jnp.concatenate([observation, action], -1)
        return -jnp.sum(x @ self.H * x, -1)


def linear_quadratic(K, H):
    return ActorCritic(Gain(jnp.asarray(K)), (Quadratic(jnp.asarray(H)),))


def quadratic_form(matrix, rows):
    return np.einsum("bi,ij,bj->b", rows, matrix, rows)


def linear_quadratic_batch(rng, rows=40):
    observation, action = rng.uniform(-0.3, 0.3, size=(2, rows, 2))
    reward = -quadratic_form(M, observation) - quadratic_form(N, action)
    after = observation @ A.T + action @ B.T
    return Transition(observation, action, reward, after, np.zeros(rows))


def test_the_gains_are_stable_and_only_one_is_the_best():
    for K in (BEST_GAIN, WRONG_GAIN):
        assert np.abs(np.linalg.eigvals(np.sqrt(GAMMA) * (A - B @ K))).max() < 1
    np.testing.assert_allclose(cost_to_go(BEST_GAIN), RICCATI, rtol=1e-10)
    assert (np.linalg.eigvalsh(cost_to_go(WRONG_GAIN) - RICCATI) > 0.1).all()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("K", [BEST_GAIN, WRONG_GAIN], ids=["best gain", "wrong gain"])
def test_the_critic_rests_exactly_at_the_value_of_the_targets_policy(rng, K):
    batch = linear_quadratic_batch(rng)
    H = quadratic_q(cost_to_go(K))
    at_next = quadratic_form(cost_to_go(K), batch.next_observation)
    loss, gradient = jax.jit(jax.value_and_grad(critic_loss))(
        linear_quadratic(K, H).critics, batch, batch.reward - GAMMA * at_next
    )
    assert loss < 1e-28
    np.testing.assert_allclose(gradient[0].H, 0, atol=1e-14)

    # The same with the targets that the learner makes.
    learner = DDPG(gamma=GAMMA)
    update = jax.jit(learner.update)
    learned = learner.adopt(linear_quadratic(K, H))
    after, loss = update(learned, batch, (), jnp.int32(1))
    assert loss < 1e-28
    np.testing.assert_allclose(after.params.critics[0].H, H, atol=1e-7)
    # But not with other targets: they differ by as much as their policies or their critics do.
    for other_K, other_H in ((K + 0.1, H), (K, H + 0.1)):
        target = linear_quadratic(other_K, other_H)
        _, loss = update(learned._replace(target=target), batch, (), jnp.int32(1))
        policy = np.hstack([np.eye(2), -other_K.T])
        otherwise = quadratic_form(policy @ other_H @ policy.T, batch.next_observation)
        expected = np.mean(GAMMA**2 * (otherwise - at_next) ** 2)
        assert expected > 1e-10
        assert loss == pytest.approx(expected, rel=1e-6)


@pytest.mark.usefixtures("double")
def test_the_actor_rests_at_the_best_gain_and_elsewhere_goes_towards_it(rng):
    observation = linear_quadratic_batch(rng).observation
    critic = linear_quadratic(BEST_GAIN, quadratic_q(RICCATI)).critics[0]

    @jax.jit
    def gradient(K):
        return jax.grad(actor_loss)(Gain(K), critic, observation).K

    np.testing.assert_allclose(gradient(BEST_GAIN), 0, atol=1e-14)
    for _ in range(20):
        away = 0.3 * rng.normal(size=(2, 2))
        for side in (-away, away):
            assert np.vdot(gradient(BEST_GAIN + side), side) > 1e-4


@pytest.mark.usefixtures("double")
def test_the_actors_gradient_is_that_of_the_return_if_states_are_seen_as_the_policy_visits_them():
    K, start = WRONG_GAIN, 0.01 * np.array([[1.0, 0.3], [0.3, 2.0]])

    def minus_return(leaves):
        return np.trace(cost_to_go(leaves[0]) @ start)

    # Discounted visits of u = -K s from random starts, as as many states with the same moments.
    visits = linalg.solve_discrete_lyapunov(np.sqrt(GAMMA) * (A - B @ K), start)
    states = np.sqrt(2) * np.linalg.cholesky(visits).T
    np.testing.assert_allclose(states.T @ states / 2, visits)
    params = linear_quadratic(K, quadratic_q(cost_to_go(K)))
    ours = jax.grad(actor_loss)(params.actor, params.critics[0], states).K
    np.testing.assert_allclose(ours, slopes(minus_return, [K.copy()])[0], rtol=1e-6)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("twin", [False, True])
def test_updates_move_a_wrong_gain_to_the_best_one(rng, twin):
    learner = DDPG(gamma=GAMMA, actor_lr=1e-3, critic_lr=1e-2, tau=0.05, twin=twin)
    batch = linear_quadratic_batch(rng)
    params = linear_quadratic(WRONG_GAIN, np.zeros((4, 4)))
    learned = learner.adopt(params._replace(critics=params.critics * (1 + twin)))

    @jax.jit
    def train(learned):
        return jax.lax.fori_loop(
            0, 10_000, lambda i, now: learner.update(now, batch, (), i + 1)[0], learned
        )

    learned = train(learned)
    np.testing.assert_allclose(learned.params.actor.K, BEST_GAIN, atol=0.01)
    for critic in (*learned.params.critics, *learned.target.critics):
        np.testing.assert_allclose(critic.H, quadratic_q(RICCATI), atol=0.02)


# TD3.


class Always(eqx.Module):
    """An actor that does the same everywhere."""

    action: jax.Array

    def __call__(self, observation):
        shape = (*observation.shape[:-1], self.action.shape[-1])
        return jnp.broadcast_to(jnp.arctanh(self.action), shape)


class Linear(eqx.Module):
    """A critic: Q = offset + slope a."""

    offset: jax.Array
    slope: jax.Array

    def __call__(self, observation, action):
        return self.offset + action @ self.slope


def linear(offset, slope):
    return Linear(jnp.float32(offset), jnp.atleast_1d(jnp.float32(slope)))


def believed(learner, target, draws):
    """What the learner thinks a step with reward 10 is worth, for each of the draws."""
    zero = ActorCritic(target.actor, tuple(linear(0, 0) for _ in target.critics))
    learned = learner.adopt(zero)._replace(target=target)
    row = jnp.ones((1, 1))
    once = Transition(row, row, 10 * row[0], row, 0 * row[0])
    losses = losses_by_draw(learner)(learned, once, draws)
    # Critics that say 0 miss y by y.
    return np.sqrt(np.asarray(losses) / len(target.critics))


@cache
def losses_by_draw(learner):
    def loss(learned, batch, draws):
        return learner.update(learned, batch, draws, jnp.int32(1))[1]

    return jax.jit(jax.vmap(loss, in_axes=(None, None, 0)))


@pytest.mark.parametrize(("first", "second"), [(2.0, 5.0), (5.0, 2.0), (-3.0, 2.0), (2.0, -3.0)])
def test_of_two_target_critics_the_smaller_value_is_believed(first, second):
    critics = (linear(first, 0), linear(second, 0))
    target = ActorCritic(Always(jnp.zeros(1)), critics)
    no_draws = jnp.zeros((1, 0))
    alone = believed(DDPG(gamma=0.5), target._replace(critics=critics[:1]), no_draws)
    np.testing.assert_allclose(alone, 10 + 0.5 * first, rtol=1e-6)
    both = believed(DDPG(gamma=0.5, twin=True), target, no_draws)
    np.testing.assert_allclose(both, 10 + 0.5 * min(first, second), rtol=1e-6)


@pytest.mark.parametrize("action", [0.0, 0.8, -0.9])
def test_a_targets_action_gets_noise_that_is_clipped_and_stays_an_action(action):
    learner = DDPG(gamma=0.5, smoothing=0.2, smoothing_clip=0.5)
    target = ActorCritic(Always(jnp.full(1, action)), (linear(0, 1),))
    normal = np.linspace(-4, 4, 81, dtype=np.float32)
    smoothed = (believed(learner, target, normal[:, None, None]) - 10) / 0.5
    expected = np.clip(action + np.clip(0.2 * normal, -0.5, 0.5), -1, 1)
    np.testing.assert_allclose(smoothed, expected, atol=1e-5)
    # Both limits have been met, and what is between.
    assert (np.abs(expected) < 1).any()
    assert np.abs(expected - action).max() == pytest.approx(0.5)
    assert (np.abs(expected).max() == 1) == (action != 0)


def test_smoothing_draws_standard_normal_numbers_and_nothing_else_draws_any():
    draws = replace(TD3, batch=5000).update_draws(jax.random.key(0), ACTIONS)
    assert draws.shape == (5000, ACTIONS)
    assert stats.kstest(np.ravel(draws), "norm").pvalue > 1e-6
    assert abs(stats.pearsonr(*np.transpose(draws)).statistic) < 5 / np.sqrt(5000)
    assert SMALL.update_draws(jax.random.key(0), ACTIONS) == ()


def test_actor_and_targets_wait_for_every_second_update_and_the_critics_do_not(rng):
    learned = fresh(TD3)
    update = jax.jit(TD3.update)
    for number in range(1, 7):
        batch = jax.tree.map(np.float32, random_batch(rng))
        normal = rng.normal(size=(BATCH, ACTIONS)).astype(np.float32)
        before, (learned, _) = learned, update(learned, batch, normal, jnp.int32(number))
        assert not same(learned.params.critics[0], before.params.critics[0])
        assert not same(learned.params.critics[1], before.params.critics[1])
        waits = number % 2 == 1
        assert same(learned.params.actor, before.params.actor) == waits
        assert same(learned.optimizer.actor, before.optimizer.actor) == waits
        assert same(learned.target.actor, before.target.actor) == waits
        for i in range(2):
            assert same(learned.target.critics[i], before.target.critics[i]) == waits


def test_networks_start_different_from_each_other_and_equal_to_their_targets():
    learned = fresh(TD3)
    assert same(learned.params, learned.target)
    assert nothing_equal(*learned.params.critics)
    one_critic = fresh(SMALL).params.critics
    assert len(one_critic) == 1
    assert same(one_critic, learned.params.critics[:1])
    other = fresh(TD3, seed=1)
    assert nothing_equal(learned.params, other.params)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(learned.optimizer))


@pytest.mark.parametrize("action_layer", [0, 1])
def test_weights_start_uniform_within_one_over_the_root_of_what_enters_a_layer(action_layer):
    learner = DDPG(hidden=(400, 300), action_layer=action_layer)
    actor, (critic,) = fresh(learner, 0, 17, 6).params
    for layers, entering in ((actor.network.layers, 0), (critic.network.layers, 6)):
        inputs = [17, 400, 300]
        inputs[action_layer] += entering
        for layer, n in zip(layers, inputs, strict=True):
            for values in (layer.weight, layer.bias):
                assert stats.kstest(np.ravel(values), symmetric(1 / np.sqrt(n))).pvalue > 1e-6
        if entering:
            bound = 1 / np.sqrt(inputs[action_layer])
            assert critic.network.action_weight.shape == (6, (400, 300)[action_layer])
            assert (
                stats.kstest(np.ravel(critic.network.action_weight), symmetric(bound)).pvalue > 1e-6
            )


def symmetric(bound):
    """Of uniform numbers between minus that and that."""
    return stats.uniform(-bound, 2 * bound).cdf


# Exploration.

DRAWS = 20_000
POLICY = np.array([0.2, -0.1], np.float32)


@cache
def explored(learner, updates, steps=1, policy=tuple(POLICY)):
    """Actions and noise (draws, steps, numbers) of many agents from the beginning of an episode."""
    params = ActorCritic(Always(jnp.array(policy)), ())

    def episode(key):
        def step(noise, key):
            draws = learner.acting_draws(key, len(policy))
            action, noise = learner.act(params, jnp.ones(1), noise, draws, jnp.int32(updates))
            return noise, (action, noise)

        return jax.lax.scan(step, learner.noise(len(policy)), jax.random.split(key, steps))[1]

    actions, noise = jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), DRAWS))
    return np.asarray(actions), noise


@pytest.mark.parametrize(("warmup", "updates"), [("uniform", 1), ("policy", 0), ("policy", 7)])
def test_gaussian_noise_has_its_size_and_no_memory(warmup, updates):
    learner = DDPG(sigma=0.05, warmup=warmup)
    actions, noise = explored(learner, updates, steps=2)
    assert noise == ()
    moves = (actions - POLICY).astype(np.float64)
    assert np.abs(moves.mean(0)).max() < 5 * 0.05 / np.sqrt(DRAWS)
    assert np.abs(moves.std(0) - 0.05).max() < 5 * 0.05 / np.sqrt(2 * DRAWS)
    for column in moves.reshape(DRAWS, -1).T:
        assert stats.kstest(column / 0.05, "norm").pvalue > 1e-6
    # Neither from step to step nor from number to number.
    correlations = np.corrcoef(moves.reshape(DRAWS, -1).T) - np.eye(4)
    assert np.abs(correlations).max() < 5 / np.sqrt(DRAWS)


@pytest.mark.parametrize("theta", [0.15, 0.5])
def test_ornstein_uhlenbeck_noise_has_the_variance_and_the_memory_of_its_process(theta):
    sigma, steps = 0.04, 100
    learner = DDPG(exploration="ou", ou_theta=theta, sigma=sigma, warmup="policy")
    actions, noise = explored(learner, 1, steps)
    noise = np.asarray(noise, np.float64)
    np.testing.assert_allclose(actions, POLICY + noise, atol=1e-6)
    # The first step begins from nothing; after 100 that is forgotten to 0.85^100 = 1e-7.
    stationary = sigma**2 / (1 - (1 - theta) ** 2)
    for step, variance in ((0, sigma**2), (steps - 2, stationary), (steps - 1, stationary)):
        error = variance * np.sqrt(2 / DRAWS)
        assert np.abs(noise[:, step].var(0) - variance).max() < 5 * error
        assert np.abs(noise[:, step].mean(0)).max() < 5 * np.sqrt(variance / DRAWS)
    for number in range(2):
        last, before = noise[:, -1, number], noise[:, -2, number]
        error = (1 - (1 - theta) ** 2) / np.sqrt(DRAWS)
        assert abs(stats.pearsonr(last, before).statistic - (1 - theta)) < 5 * error
    assert abs(stats.pearsonr(*noise[:, -1].T).statistic) < 5 / np.sqrt(DRAWS)


def test_noise_is_remembered_within_an_episode_and_starts_anew_with_the_next():
    family, learner = EndedOrCutOff(), DDPG(exploration="ou", ou_theta=0.25, sigma=0.1)
    start = -jnp.ones(1)  # never ended
    one = OneAgent(family, learner)
    world = one.new_world(start)
    agent = Agent(learner.adopt(ActorCritic(Always(jnp.zeros(1)), ())), world, nothing_seen())
    draws = StepDraws(ActingDraws(jnp.ones(1), jnp.zeros(1)), start)
    step = jax.jit(lambda agent: one.interact(agent, clock, jnp.ones(1), draws))
    clock = Clock(*(jnp.int32(1) for _ in range(3)))
    # 0.1, then three quarters of it and 0.1 again, then a third time; the limit is 3 steps.
    for action, noise in [(0.1, 0.1), (0.175, 0.175), (0.23125, 0.0)] * 2:
        agent, row = step(agent)
        assert float(replay.unpack(row, 1).action[0]) == pytest.approx(action, rel=1e-6)
        assert float(agent.world.noise[0]) == pytest.approx(noise, rel=1e-6)


@pytest.mark.parametrize("exploration", ["gaussian", "ou"])
@pytest.mark.parametrize("updates", [0, 1])
def test_actions_stay_within_their_limits(exploration, updates):
    learner = DDPG(exploration=exploration, sigma=2.0)
    actions, _ = explored(learner, updates, steps=5, policy=(0.9, -0.9))
    assert np.abs(actions).max() <= 1
    assert ((np.abs(actions) == 1).mean() > 0.3) == (updates == 1)


def test_warming_up_tries_all_actions_alike_until_the_first_update():
    learner = DDPG(sigma=0.0)
    actions, _ = explored(learner, 0, steps=2)
    for column in actions.reshape(DRAWS, -1).T:
        assert stats.kstest(column, symmetric(1)).pvalue > 1e-6
    correlations = np.corrcoef(actions.reshape(DRAWS, -1).T) - np.eye(4)
    assert np.abs(correlations).max() < 5 / np.sqrt(DRAWS)
    for other, updates in ((learner, 1), (replace(learner, warmup="policy"), 0)):
        actions, _ = explored(other, updates, steps=2)
        np.testing.assert_allclose(actions, np.broadcast_to(POLICY, actions.shape), atol=1e-6)


def test_the_policy_is_the_actors_action_without_noise_for_one_observation_or_many(rng):
    learner = replace(SMALL, sigma=0.5)
    params = fresh(learner).params
    observations = rng.normal(size=(4, 7, OBSERVATIONS)).astype(np.float32)
    many = learner.policy(params, observations)
    expected = numpy_actor([x.astype(np.float64) for x in arrays(params.actor)], observations)
    np.testing.assert_allclose(many, expected, atol=1e-6)
    np.testing.assert_array_equal(learner.policy(params, observations), many)
    np.testing.assert_allclose(learner.policy(params, observations[2, 3]), many[2, 3], atol=1e-6)


# Settings.


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden", 64),
        ("hidden", "64"),
        ("hidden", (0,)),
        ("hidden", (8.0, 8)),
        ("action_layer", 3),
        ("action_layer", -1),
        ("action_layer", 1.0),
        ("actor_lr", 0.0),
        ("actor_lr", float("nan")),
        ("critic_lr", 0.0),
        ("critic_lr", -1e-3),
        ("critic_lr", float("inf")),
        ("gamma", 1.0),
        ("batch", 0),
        ("replay", 0),
        ("learning_starts", 0),
        ("update_every", 0),
        ("tau", 0.0),
        ("tau", 1.1),
        ("tau", float("nan")),
        ("warmup", "none"),
        ("exploration", "epsilon"),
        ("exploration", ["ou"]),
        ("sigma", -0.1),
        ("sigma", float("inf")),
        ("sigma", "0.1"),
        ("ou_theta", -0.1),
        ("ou_theta", 1.1),
        ("twin", 2),
        ("twin", "yes"),
        ("actor_every", 0),
        ("actor_every", 1.5),
        ("smoothing", -0.2),
        ("smoothing", float("nan")),
        ("smoothing_clip", -0.5),
    ],
)
def test_a_bad_setting_is_refused_by_its_name(field, value):
    with pytest.raises(FedrlError, match=rf"learner\.{field}\b"):
        DDPG(**{field: value})


def test_settings_at_their_limits_are_accepted():
    DDPG(action_layer=0, tau=1, sigma=0, ou_theta=0, smoothing=0, smoothing_clip=0)
    DDPG(action_layer=1, ou_theta=1, hidden=[8, 8])


@pytest.mark.parametrize(
    ("family", "learner", "message"),
    [
        (
            HalfCheetahs(),
            DQN(),
            r"halfcheetahs has continuous .* dqn does not .*\(ddpg, or ppo with .*'continuous'\)",
        ),
        (
            CartPoles(),
            DDPG(),
            r"cartpoles has discrete .* ddpg does not .*\(dqn, or ppo with .*'discrete'\)",
        ),
    ],
    ids=["dqn", "ddpg"],
)
def test_a_learner_that_does_not_fit_the_actions_is_refused_and_another_named(
    family, learner, message
):
    with pytest.raises(FedrlError, match=message):
        Experiment(name="unfit", family=family, learner=learner)


# Learning, in the real engine.


def training(engine, updates):
    """The compiled training of one replicate, by its number."""
    return jax.jit(lambda number: go_on(engine, begin(engine, number), number, 1, updates))


def of_only_agent(tree):
    return jax.tree.map(lambda leaf: leaf[0], tree)


PROBE_LEARNER = DDPG(
    hidden=(128,),
    action_layer=0,
    gamma=0.5,
    batch=64,
    replay=5000,
    learning_starts=500,
    actor_lr=1e-3,
    critic_lr=3e-3,
    tau=0.05,
    sigma=0.3,
)


def test_q_becomes_what_it_is_worth():
    trained = training(engine_of(EndedOrCutOff(), PROBE_LEARNER, E=inf), 2000)(0)
    critic = of_only_agent(trained.agents.learned.params.critics[0])
    actions = np.linspace(-1, 1, 21, dtype=np.float32)[:, None]
    np.testing.assert_allclose(critic(np.ones_like(actions), actions), 1, atol=0.05)
    # Ended by its limit it would be 1.5: a third of the steps would promise nothing more.
    np.testing.assert_allclose(critic(-np.ones_like(actions), actions), 2, atol=0.05)


def test_the_actor_finds_the_best_action_of_each_observation():
    trained = training(engine_of(Aim(), PROBE_LEARNER, E=inf), 4000)(0)
    params, rows = of_only_agent((trained.agents.learned.params, trained.rows))
    actions = PROBE_LEARNER.policy(params, np.array([[1.0], [-1.0]], np.float32))
    np.testing.assert_allclose(actions, [[0.3], [-0.3]], atol=0.05)
    # What it did before its first update was anything; what it did last, its policy and noise.
    experience = jax.tree.map(np.asarray, replay.unpack(rows, 1))
    first, last = experience.action[:500], slice(4000, 4500)
    assert stats.kstest(first[:, 0], symmetric(1)).pvalue > 1e-6
    moves = experience.action[last] - 0.3 * experience.observation[last]
    assert abs(moves.mean()) < 0.05 + 5 * 0.3 / np.sqrt(500)
    assert abs(moves.std() - 0.3) < 0.05 + 5 * 0.3 / np.sqrt(2 * 500)


def swing(state, rng):
    """Mostly along the motion, which adds energy until the speed is at its limit."""
    torque = rng.uniform(-2, 2) if rng.random() < 0.2 else 2 * np.sign(state[1])
    return np.array([torque])


def test_every_step_of_our_pendulum_is_gymnasiums():
    simulator = gymnasium.make("Pendulum-v1").unwrapped
    step = stepping(Pendulum())
    for seed in range(3):
        episode = recorded(simulator, swing, seed, limit=200)
        before = episode.states[:-1].astype(np.float32)
        actions = (episode.actions / 2).astype(np.float32)
        after, seen, rewards, terminated = step(before, actions, np.float32(1))
        # Several turns, and as fast as it may be.
        assert np.ptp(episode.states[:, 0]) > 4 * np.pi
        assert np.abs(episode.states[:, 1]).max() == 8
        np.testing.assert_allclose(after, episode.states[1:], atol=1e-4)
        np.testing.assert_allclose(seen, episode.observations, atol=1e-4)
        np.testing.assert_allclose(rewards, episode.rewards, atol=1e-3)
        np.testing.assert_array_equal(terminated, episode.terminated)
        assert not episode.terminated.any()
    limit = gymnasium.spec("Pendulum-v1").max_episode_steps
    assert Pendulum().time_limit == limit


@pytest.mark.usefixtures("thorough")
def test_ddpg_swings_a_pendulum_up():
    # Random actions return -1200, good controllers -150: what is above -300 swings it up and keeps
    # it there. An actor may get lost where tanh is flat, so one of three is allowed to.
    learner = DDPG(
        hidden=(64, 64), gamma=0.95, actor_lr=5e-4, critic_lr=2e-3, replay=20_000, sigma=0.3
    )
    family = Pendulum()
    train = training(engine_of(family, learner, E=inf), 10_000)
    params = [of_only_agent(train(number).agents.learned.params) for number in range(3)]
    models = jax.tree.map(lambda *x: jnp.stack(x), *params, fresh(learner, 0, 3, 1).params)

    @jax.jit
    def play(models):
        key, theta = jax.random.key(0), jnp.ones((1, 1))
        played = greedy_returns(
            family, learner.policy, models, theta, key, episodes=20, gamma=learner.gamma
        )
        return played.undiscounted[:, 0]

    returns = play(models)
    assert np.median(returns[:-1]) > -300
    assert returns[-1] < -800
