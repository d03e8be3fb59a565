"""DQN against Q-values known in advance, NumPy and plain lists."""

from collections import deque
from math import inf

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engines import engine_of
from fedrl import FedrlError
from fedrl.learners import replay
from fedrl.learners.dqn import DQN
from fedrl.learners.replay import Memory, Transition
from finite_differences import slopes
from probes import Choice, ConstantReward, Delayed, Endless, Observed
from tiny import begin, go_on

PROBE_LEARNER = DQN(
    hidden=(16,),
    lr=1e-2,
    gamma=0.5,
    batch=16,
    replay=256,
    learning_starts=32,
    target_every=5,
    epsilon_end=1.0,
)


def q_after_training(family, learner, observations, updates=400):
    engine = engine_of(family, learner, E=inf)
    trained = jax.jit(lambda: go_on(engine, begin(engine, 0), 0, 1, updates))()
    params = jax.tree.map(lambda leaf: leaf[0], trained.agents.learned.params)
    return np.asarray(params(jnp.array(observations, jnp.float32)[:, None]))


@pytest.mark.parametrize(
    ("family", "observations", "q"),
    [
        (ConstantReward(), [1], [[1, 1]]),
        (Choice(), [1], [[-1, 1]]),
        (Observed(), [-1, 1], [[-1, -1], [1, 1]]),
        (Delayed(), [-1, 1], [[0.5, 0.5], [1, 1]]),
        # Ended by its limit it would be 1.5: a third of the transitions would promise nothing more.
        (Endless(), [1], [[2, 2]]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ConstantReward.__base__) else "",
)
def test_q_becomes_what_it_is_worth(family, observations, q):
    np.testing.assert_allclose(q_after_training(family, PROBE_LEARNER, observations), q, atol=0.05)


OBSERVATIONS, ACTIONS, BATCH = 3, 4, 6


@pytest.fixture
def situation(rng):
    """Arguments of an update: online and target networks that differ, and a batch."""
    learner = DQN(hidden=(5,), batch=BATCH)
    learned = learner.init(jax.random.key(0), OBSERVATIONS, ACTIONS)
    learned = learned._replace(
        target=learner.init(jax.random.key(1), OBSERVATIONS, ACTIONS).params,
    )
    batch = Transition(
        observation=rng.normal(size=(BATCH, OBSERVATIONS)).astype(np.float32),
        action=rng.integers(ACTIONS, size=(BATCH, 1)).astype(np.float32),
        reward=(3 * rng.normal(size=BATCH)).astype(np.float32),
        next_observation=rng.normal(size=(BATCH, OBSERVATIONS)).astype(np.float32),
        terminated=np.array([0, 1, 0, 0, 1, 0], np.float32),
    )
    return learned, batch


def doubles(tree):
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]


def numpy_q(leaves, x):
    weight_1, bias_1, weight_2, bias_2 = leaves
    return np.maximum(x @ weight_1 + bias_1, 0) @ weight_2.T + bias_2


def numpy_targets(learned, batch, gamma, double):
    y = []
    for i in range(BATCH):
        of_target = numpy_q(doubles(learned.target), batch.next_observation[i])
        of_online = numpy_q(doubles(learned.params), batch.next_observation[i])
        worth = of_target[np.argmax(of_online)] if double else of_target.max()
        y.append(float(batch.reward[i]) + (0 if batch.terminated[i] else gamma * worth))
    return np.array(y)


def numpy_loss(leaves, batch, y, loss):
    q = numpy_q(leaves, batch.observation)
    error = np.array([q[i, int(batch.action[i, 0])] for i in range(BATCH)]) - y
    if loss == "mse":
        return (error**2).mean()
    assert (np.abs(error) < 1).any()
    assert (np.abs(error) > 1).any()
    return np.where(np.abs(error) <= 1, error**2 / 2, np.abs(error) - 0.5).mean()


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("loss", ["mse", "huber"])
def test_an_update_is_adam_down_the_slope_of_the_td_error(situation, double, loss):
    learned, batch = situation
    learner = DQN(hidden=(5,), batch=BATCH, gamma=0.9, lr=0.01, loss=loss, double=double)
    # Double DQN is only tested where the networks disagree about the best action.
    assert not np.allclose(
        numpy_targets(learned, batch, 0.9, False), numpy_targets(learned, batch, 0.9, True)
    )
    update = jax.jit(learner.update)
    params = doubles(learned.params)
    m, v = [0.0] * 4, [0.0] * 4
    for step in (1, 2, 3):
        y = numpy_targets(learned, batch, 0.9, double)
        before = doubles(learned.params)
        gradient = slopes(lambda leaves, y=y: numpy_loss(leaves, batch, y, loss), params)
        m = [0.9 * a + 0.1 * g for a, g in zip(m, gradient, strict=True)]
        v = [0.999 * a + 0.001 * g**2 for a, g in zip(v, gradient, strict=True)]
        params = [
            p - 0.01 * (a / (1 - 0.9**step)) / (np.sqrt(b / (1 - 0.999**step)) + 1e-8)
            for p, a, b in zip(params, m, v, strict=True)
        ]
        learned, reported = update(learned, batch, (), jnp.int32(step))
        assert float(reported) == pytest.approx(numpy_loss(before, batch, y, loss), rel=1e-5)
        # Adam remembers the slope itself, not only its sign.
        for ours, theirs in zip(doubles(learned.optimizer.mu), m, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-4)
        for ours, theirs in zip(doubles(learned.params), params, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-4)


def same(one, other):
    return all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))


def test_the_target_is_copied_exactly_every_so_many_updates(situation):
    learned, batch = situation
    update = jax.jit(DQN(hidden=(5,), batch=BATCH, target_every=3).update)
    expected = learned.target
    for number in range(1, 9):
        learned, _ = update(learned, batch, (), jnp.int32(number))
        if number in (3, 6):
            expected = learned.params
        assert same(learned.target, expected)
        assert same(learned.target, learned.params) == (number in (3, 6))


@pytest.mark.parametrize("n", [0, 1, 7, 100, 2_000_000_000])
def test_epsilon_falls_as_its_formula_says(n):
    exponential = DQN(epsilon_start=0.9, epsilon_end=0.1, epsilon_decay=0.95)
    assert float(exponential.epsilon(jnp.int32(n))) == pytest.approx(max(0.1, 0.9 * 0.95**n), 1e-5)
    linear = DQN(exploration="linear", epsilon_start=0.9, epsilon_end=0.1, epsilon_updates=50)
    expected = 0.9 + (0.1 - 0.9) * n / 50 if n < 50 else 0.1
    assert float(linear.epsilon(jnp.int32(n))) == pytest.approx(expected, rel=1e-5)


def test_actions_are_random_with_probability_epsilon_and_else_the_best(rng):
    learner = DQN(hidden=(5,), exploration="linear", epsilon_updates=100, epsilon_end=0.0)
    params = learner.init(jax.random.key(0), OBSERVATIONS, ACTIONS).params
    observation = rng.normal(size=OBSERVATIONS).astype(np.float32)
    uniform = jax.random.uniform(jax.random.key(1), (40_000, 2))
    act = jax.vmap(lambda u: learner.act(params, observation, (), u, jnp.int32(75))[0])
    counts = np.bincount(np.asarray(jax.jit(act)(uniform)), minlength=ACTIONS)
    best = int(np.argmax(numpy_q(doubles(params), observation)))
    # epsilon = 0.25, of which every action has a quarter
    expected = np.full(ACTIONS, 0.25 / ACTIONS)
    expected[best] += 0.75
    error = 5 * np.sqrt(expected * (1 - expected) / 40_000)
    assert len(counts) == ACTIONS
    assert (np.abs(counts / 40_000 - expected) < error).all()


def transition(number):
    return Transition(
        jnp.array([number, -number], jnp.float32),
        jnp.int32(number % 3),
        jnp.float32(10 * number),
        jnp.array([number + 0.5, 7], jnp.float32),
        jnp.bool_(number % 2),
    )


def test_a_transition_comes_back_from_its_row():
    unpacked = replay.unpack(replay.pack(transition(5)), 2)
    for ours, theirs in zip(unpacked[:5], transition(5)[:5], strict=True):
        np.testing.assert_array_equal(np.ravel(ours), np.ravel(theirs))


# The smallest, the largest below one, and some between.
CORNERS = np.array([0.0, 2.0**-23, 0.25, 0.5, 0.999, 1 - 2.0**-23, 1 - 2.0**-24], np.float32)


def test_the_ring_holds_the_newest_transitions_and_gives_no_empty_slot():
    capacity, size = 5, 2 * 2 + 1 + 2
    rows = Memory().empty(capacity, 2, 1)
    assert rows.shape == (capacity, size)
    obvious = deque(maxlen=capacity)
    store, sample = jax.jit(replay.store), jax.jit(replay.sample)
    for number in range(1, 14):
        row = np.asarray(replay.pack(transition(number)))
        rows = store(rows, row, jnp.int32(number - 1))
        obvious.append(row)
        kept = {tuple(x) for x in obvious}
        uniform = np.concatenate([CORNERS, np.arange(50, dtype=np.float32) / 50])
        sampled = {tuple(x) for x in np.asarray(sample(rows, uniform, jnp.int32(number)))}
        assert sampled == kept


@pytest.mark.parametrize("size", [1, 3, 10_000, 2**23 - 1, 2**23])
def test_every_slot_of_a_ring_can_be_picked_with_23_random_bits(size):
    rows = np.arange(size, dtype=np.float32)[:, None]
    uniform = np.arange(2**23, dtype=np.float32) / 2**23
    picked = np.asarray(jax.jit(replay.sample)(rows, uniform, jnp.int32(size)))[:, 0]
    counts = np.bincount(picked.astype(np.int64), minlength=size)
    assert len(counts) == size
    assert counts.min() >= 1
    # As evenly as 2^23 numbers can be divided; rounding may move one to a neighbour.
    assert counts.max() - counts.min() <= 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden", (0,)),
        ("hidden", (8, -1)),
        ("hidden", (8.0,)),
        ("lr", 0.0),
        ("lr", -1e-3),
        ("lr", float("inf")),
        ("lr", float("nan")),
        ("gamma", 1.0),
        ("gamma", -0.1),
        ("gamma", "0.9"),
        ("batch", 0),
        ("batch", True),
        ("replay", 0),
        ("replay", 2**23 + 1),
        ("learning_starts", 0),
        ("update_every", 0),
        ("update_every", 1.5),
        ("target_every", 0),
        ("loss", "mae"),
        ("exploration", "cosine"),
        ("epsilon_start", 1.1),
        ("epsilon_end", -0.1),
        ("epsilon_decay", float("nan")),
        ("epsilon_updates", 0),
    ],
)
def test_a_bad_setting_is_refused_by_its_name(field, value):
    with pytest.raises(FedrlError, match=rf"learner\.{field}"):
        DQN(**{field: value})


def test_exploration_cannot_rise():
    with pytest.raises(FedrlError, match=r"learner\.epsilon_end = 0\.6 is above"):
        DQN(epsilon_start=0.5, epsilon_end=0.6)
