"""Memories of every kind against a list of everything that has happened."""

from dataclasses import replace
from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrl import FedrlError
from fedrl.experiment.launch import in_words
from fedrl.experiment.memory import needed_bytes
from fedrl.experiment.presets import preset
from fedrl.experiment.toml import from_toml, to_toml
from fedrl.learners import replay
from fedrl.learners.ddpg import DDPG
from fedrl.learners.dqn import DQN
from fedrl.learners.learner import Learner
from fedrl.learners.memory import EXACT, Memory, Recent
from fedrl.learners.ppo import PPO
from fedrl.learners.replay import Transition
from obvious_memory import ObviousMemory, rounded
from tiny import LEARNER, TINY

pytestmark = pytest.mark.usefixtures("kept", "hasty")

GAMMA = 0.9
STEPS = 36
NOTHING = Recent((), ())
LAYOUTS, DTYPES = ("pairs", "once"), ("float32", "float16", "bfloat16")


def story(endings, seed, numbers=0):
    """Steps of episodes with these endings; no observation is met twice. Actions have numbers."""
    rng = np.random.default_rng(seed)
    seen, steps = rng.normal(size=2).astype(np.float32), []
    for ending in endings:
        after = rng.normal(size=2).astype(np.float32)
        action = rng.normal(size=numbers).astype(np.float32) if numbers else rng.integers(4)
        reward = np.float32(rng.normal())
        steps.append((seen, action, reward, after, ending == "end", ending == "cut"))
        seen = after if ending == "go" else rng.normal(size=2).astype(np.float32)
    return steps


@cache
def program(memory, capacity, numbers):
    """What may be recalled after every step of a story."""

    def told(steps, stored, uniform):
        def remember(carry, now):
            rows, recent = carry
            (*what, cut), stored = now
            row, recent = memory.row(recent, Transition(*what), cut, stored, GAMMA)
            rows = memory.store(rows, row, stored)
            # With too few rows there may be nothing to pick; nobody learns so early.
            enough = jnp.maximum(stored + 1, memory.n_step)
            return (rows, recent), memory.recall(rows, recent, uniform, enough, 2, GAMMA)

        shape = (numbers,) if numbers else ()
        begin = memory.empty(capacity, 2, numbers or 1), memory.recent(2, shape)
        return jax.lax.scan(remember, begin, (steps, stored))[1]

    return jax.jit(told)


def recalled(memory, capacity, steps, stored, uniform, numbers=0):
    columns = tuple(np.array(column) for column in zip(*steps, strict=True))
    found = program(memory, capacity, numbers)(columns, np.int32(stored), np.float32(uniform))
    return jax.tree.map(np.asarray, found)


def assert_taught(batch, i, expected):
    """Element i of a batch is what the list says."""
    np.testing.assert_array_equal(batch.observation[i], expected.observation)
    np.testing.assert_array_equal(batch.action[i], expected.action)
    np.testing.assert_allclose(batch.reward[i], expected.reward, rtol=1e-2, atol=1e-2)
    assert batch.terminated[i] == expected.terminated
    if not expected.terminated:
        np.testing.assert_array_equal(batch.next_observation[i], expected.following)
    if batch.discount is not None:
        np.testing.assert_allclose(batch.discount[i], expected.discount, rtol=1e-6)


endings = st.lists(st.sampled_from(["go", "go", "end", "cut"]), min_size=STEPS, max_size=STEPS)
memories = st.builds(
    Memory, st.sampled_from(["float32", "bfloat16"]), st.sampled_from(LAYOUTS), st.integers(1, 3)
)
uniforms = st.lists(st.floats(0, 1, exclude_max=True, width=32), min_size=5, max_size=5)


@settings(max_examples=120)
@given(memories, st.sampled_from([1, 5]), endings, uniforms, st.integers(0, STEPS))
def test_what_is_recalled_is_what_the_list_of_everything_says(
    memory, capacity, endings, uniform, emptied
):
    assert_recalled(memory, capacity, story(endings, emptied), uniform, emptied)


@pytest.mark.parametrize("memory", [Memory(), Memory("float16", "once", 2), Memory(n_step=3)])
def test_actions_of_several_numbers_are_recalled_too(memory):
    endings = ["go", "go", "cut", "go", "end", "cut", "go", "go", "go"] * 4
    uniform = np.arange(5, dtype=np.float32) / 5
    assert_recalled(memory, 5, story(endings, 1, 3), uniform, emptied=STEPS, numbers=3)


def assert_recalled(memory, capacity, steps, uniform, emptied, numbers=0):
    """After every step of a story; before one of them the memory is emptied."""
    stored = [t if t < emptied else t - emptied for t in range(STEPS)]
    batch = recalled(memory, capacity, steps, stored, uniform, numbers)
    for t in range(STEPS):
        if stored[t] == 0:
            obvious = ObviousMemory(memory, capacity, GAMMA)
        obvious.remember(*steps[t])
        if not obvious.rows():
            continue
        for i, one in enumerate(obvious.recall(uniform)):
            assert_taught(jax.tree.map(lambda leaf, t=t: leaf[t], batch), i, one)


@pytest.mark.parametrize("n", [1, 2])
def test_if_everything_was_cut_off_the_newest_is_learnt_from(n):
    memory = Memory(layout="once", n_step=n)
    steps = story(["cut"] * STEPS, seed=1)
    batch = recalled(memory, 7, steps, range(STEPS), [0.1, 0.3, 0.5, 0.7, 0.9])
    for t in range(n - 1, STEPS):
        # Of a row that is whole by now, the first step and nothing else.
        seen, action, reward, after, _, _ = steps[(t + 1) // n * n - n]
        assert (batch.observation[t] == seen).all()
        assert (batch.action[t] == action).all()
        assert (batch.reward[t] == reward).all()
        assert (batch.next_observation[t] == after).all()
    assert not batch.terminated.any()
    if n == 2:
        np.testing.assert_allclose(batch.discount[1:], GAMMA, rtol=1e-6)


def test_all_that_can_be_learnt_from_is_equally_likely(rng):
    """Also next to rows that cannot, and across the place where the ring is written."""
    memory, capacity = Memory(layout="once"), 7
    steps = story(["go", "go", "cut", "cut", "go", "end", "go", "go", "cut", "go"], seed=3)
    obvious = ObviousMemory(memory, capacity, GAMMA)
    rows, recent = memory.empty(capacity, 2, 1), memory.recent(2, ())
    for stored, (*what, cut) in enumerate(steps):
        obvious.remember(*what, cut)
        step = Transition(*(jnp.asarray(x) for x in what))
        row, recent = memory.row(recent, step, jnp.bool_(cut), jnp.int32(stored), GAMMA)
        rows = memory.store(rows, row, jnp.int32(stored))
    uniform = rng.random((20_000, 16)).astype(np.float32)
    recall = jax.vmap(lambda u: memory.recall(rows, recent, u, jnp.int32(10), 2, GAMMA))
    batch = jax.jit(recall)(uniform)
    can = [row for row in obvious.there().values() if row is not None]
    assert len(can) == 5
    # One of each batch: within one, those that give way are copies of others.
    first = np.asarray(batch.observation[:, 7, 0])
    counts = [(first == row.observation[0]).sum() for row in can]
    assert sum(counts) == len(first)
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_unless_said_a_row_is_as_it_always_was():
    step = Transition(
        jnp.array([0.1, -2.0]), jnp.int32(3), jnp.float32(0.7), jnp.array([4.0, 5.0]), jnp.bool_(1)
    )
    for cut in (False, True):
        row, recent = Memory().row(NOTHING, step, jnp.bool_(cut), jnp.int32(5), GAMMA)
        assert recent == NOTHING
        assert not jax.tree.leaves(recent)
        assert row.dtype == jnp.float32
        np.testing.assert_array_equal(row, np.float32([0.1, -2, 4, 5, 3, 0.7, 1]))
    rows = jnp.arange(35, dtype=jnp.float32).reshape(5, 7)
    uniform = np.float32([0.0, 0.5, 0.99])
    batch = Memory().recall(rows, NOTHING, uniform, jnp.int32(9), 2, GAMMA)
    assert batch.discount is None
    plain = replay.unpack(replay.sample(rows, uniform, jnp.int32(9)), 2)
    assert jax.tree.map(np.array_equal, batch[:5], plain[:5]) == (True,) * 5


def stored_and_back(memory, values):
    """Observations that went through a memory."""
    size = len(values)
    step = Transition(values, jnp.int32(0), jnp.float32(0), values, jnp.bool_(True))
    row, _ = memory.row(NOTHING, step, jnp.bool_(False), jnp.int32(0), GAMMA)
    rows = memory.store(memory.empty(2, size, 1), row, jnp.int32(0))
    return memory.recall(rows, NOTHING, jnp.zeros(1), jnp.int32(1), size, GAMMA).observation[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_are_rounded_as_numpy_rounds_them_and_none_becomes_infinite(dtype, rng):
    sizes = rng.uniform(-30, 30, 3000)
    values = (rng.choice([-1, 1], 3000) * 2.0**sizes * rng.uniform(1, 2, 3000)).astype(np.float32)
    corners = [0.0, -0.0, 65504, 65519.9, 65520, -1e6, 3.3e38, -3.4e38, np.inf, -np.inf, np.nan]
    values = np.concatenate([values, np.float32(corners)])
    back = np.asarray(stored_and_back(Memory(dtype=dtype), values))
    np.testing.assert_array_equal(back, rounded(values, dtype))
    if dtype != "float32":
        assert np.isfinite(back[:-1]).all()
        assert np.isnan(back[-1])
        largest = float(ml_dtypes.finfo(dtype).max)
        assert back[-2] == -largest == -back[-3]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_action_that_is_accepted_comes_back(dtype):
    memory = Memory(dtype=dtype)
    numbers = np.arange(min(EXACT[dtype], 5000))

    def there_and_back(action):
        step = Transition(jnp.zeros(1), action, jnp.float32(0), jnp.zeros(1), jnp.bool_(False))
        row, _ = memory.row(NOTHING, step, jnp.bool_(False), jnp.int32(0), GAMMA)
        rows = memory.store(memory.empty(1, 1, 1), row, jnp.int32(0))
        return memory.recall(rows, NOTHING, jnp.zeros(1), jnp.int32(1), 1, GAMMA).action[0, 0]

    np.testing.assert_array_equal(jax.vmap(there_and_back)(numbers), numbers)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_longest_window_is_counted_exactly(dtype):
    memory = Memory(dtype=dtype, n_step=256)

    def remember(recent, t):
        step = Transition(jnp.zeros(1), t, jnp.float32(0), jnp.zeros(1), jnp.bool_(False))
        row, recent = memory.row(recent, step, t >= 254, t, 0.999)
        return recent, row

    # Cut off after 255 steps, one before its end.
    _, rows = jax.lax.scan(remember, memory.recent(1, ()), jnp.arange(256))
    rows = memory.store(memory.empty(1, 1, 1), rows[-1], jnp.int32(255))
    batch = memory.recall(rows, NOTHING, jnp.zeros(1), jnp.int32(256), 1, 0.999)
    np.testing.assert_allclose(batch.discount[0], 0.999**255, rtol=1e-5)


def test_a_row_in_the_middle_of_its_steps_is_not_there_yet():
    memory = Memory(n_step=3)
    rows, recent = jnp.full((2, 7), 5.0), memory.recent(2, ())
    for t, (*what, cut) in enumerate(story(["go"] * 4, seed=0)):
        step = Transition(*(jnp.asarray(x) for x in what))
        row, recent = memory.row(recent, step, jnp.bool_(cut), jnp.int32(t), GAMMA)
        rows = memory.store(rows, row, jnp.int32(t))
        assert (rows[0] == 5).all() == (t < 2)
        assert (rows[1] == 5).all()


@pytest.mark.parametrize("learner", [DQN(hidden=(5,), double=True), DDPG(hidden=(5, 4))])
def test_a_discount_takes_the_place_of_gamma_and_the_end(learner, rng):
    actions = 2
    learned = learner.init(jax.random.key(0), 3, actions)
    width = 2 * 3 + (actions if learner.continuous else 1) + 2
    batch = replay.unpack(rng.normal(size=(8, width)).astype(np.float32), 3)
    batch = batch._replace(
        action=np.zeros_like(batch.action), terminated=np.float32([0, 1, 0, 0, 1, 0, 1, 0])
    )
    said = batch._replace(discount=np.float32(learner.gamma) * (1 - batch.terminated))
    update = jax.jit(lambda batch: learner.update(learned, batch, (), jnp.int32(1)))
    plain, other = update(batch), update(said)
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    # Half the discount of rewards of zero is half the target.
    half = said._replace(reward=0 * batch.reward, discount=said.discount / 2)
    whole = said._replace(reward=0 * batch.reward)
    if isinstance(learner, DQN):
        targets = learner._targets(learned, whole), learner._targets(learned, half)
    else:
        targets = (learner._targets(learned.target, one, ()) for one in (whole, half))
    whole, half = targets
    assert np.abs(half).max() > 0
    np.testing.assert_allclose(half, whole / 2, rtol=1e-5)


BYTES = {
    # CartPole: 4 numbers observed, an action. HalfCheetah: 17 and 6.
    ("float32", "pairs"): (44, 168),
    ("float16", "pairs"): (22, 84),
    ("bfloat16", "pairs"): (22, 84),
    ("float32", "once"): (28, 100),
    ("float16", "once"): (14, 50),
    ("bfloat16", "once"): (14, 50),
}


@pytest.mark.parametrize(("dtype", "layout"), BYTES)
def test_a_row_takes_so_many_bytes(dtype, layout):
    for sizes, expected in zip(((4, 1), (17, 6)), BYTES[dtype, layout], strict=True):
        for n in (1, 4):
            memory = Memory(dtype, layout, n)
            assert memory.row_bytes(*sizes) == expected
            assert memory.empty(10, *sizes).nbytes == 10 * expected


def test_what_is_told_and_what_must_fit_follow_the_settings():
    experiment = preset("cartpoles-dqnavg")
    agents = experiment.agents * experiment.seeds
    rows = agents * experiment.learner.replay
    rest = set()
    for layout, dtype in product(LAYOUTS, DTYPES):
        learner = replace(experiment.learner, memory=Memory(dtype, layout))
        changed = replace(experiment, learner=learner)
        total = rows * BYTES[dtype, layout][0]
        assert f"replay {total / 1e6:,.0f} MB" in in_words(changed)
        # With every observation once, the newest row is kept as a pair.
        newest = agents * BYTES[dtype, "pairs"][0] if layout == "once" else 0
        rest.add(needed_bytes(changed) - 3 * (total + newest))
    assert len(rest) == 1


def test_settings_of_before_are_read_and_written_ones_come_back():
    assert from_toml(to_toml(TINY)).learner.memory == Memory()
    lines = [line for line in to_toml(TINY).splitlines() if "memory" not in line]
    without = [x for x in lines if not x.startswith(("dtype", "layout", "n_step"))]
    assert from_toml("\n".join(without)) == TINY
    learner = replace(LEARNER, memory=Memory("bfloat16", "once", 3))
    changed = replace(TINY, learner=learner)
    assert from_toml(to_toml(changed)) == changed
    assert changed.digest != TINY.digest


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dtype", "float64"),
        ("dtype", 16),
        ("layout", "twice"),
        ("n_step", 0),
        ("n_step", 257),
        ("n_step", 2.5),
        ("n_step", True),
    ],
)
def test_a_bad_setting_is_refused_by_its_name(field, value):
    with pytest.raises(FedrlError, match=rf"learner\.memory\.{field}"):
        Memory(**{field: value})


class Alone(DQN):
    """A learner that knows nothing of discounts."""

    name = "alone"
    uses_discounts = Learner.uses_discounts


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DQN(memory="float16"), r"learner\.memory must be Memory"),
        (
            lambda: DQN(learning_starts=3, memory=Memory(n_step=4)),
            r"learner\.memory\.n_step = 4 is more than learner\.learning_starts = 3",
        ),
        (lambda: PPO(memory=Memory(dtype="float16")), "ppo goes over its latest steps"),
        (lambda: PPO(memory=Memory(layout="once")), "ppo goes over its latest steps"),
        (lambda: PPO(memory=Memory(n_step=2)), r"learner\.memory\.n_step = 2, but ppo"),
        (lambda: Alone(memory=Memory(n_step=2)), "alone learns from single steps"),
    ],
)
def test_what_does_not_go_together_is_refused(make, message):
    with pytest.raises(FedrlError, match=message):
        make()


def test_as_many_actions_as_can_be_told_apart():
    for dtype, most in EXACT.items():
        Memory(dtype).check("levers", most, continuous=False)
        Memory(dtype).check("levers", most + 1, continuous=True)
        with pytest.raises(FedrlError, match=f"levers has {most + 1} actions"):
            Memory(dtype).check("levers", most + 1, continuous=False)
