"""Memories of every kind against a list of everything that has happened."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrl import FedrlError
from fedrl.engine.footprint import needed_bytes
from fedrl.experiment.presets import preset
from fedrl.experiment.settings import from_toml
from fedrl.experiment.toml import to_toml
from fedrl.learners import replay
from fedrl.learners.dqn import DQN
from fedrl.learners.ppo import PPO
from fedrl.learners.replay import EXACT, Memory, Transition
from fedrl.runs.launch import in_words
from obvious_memory import ObviousMemory, rounded
from tiny import LEARNER, TINY

pytestmark = pytest.mark.usefixtures("kept", "hasty")

STEPS = 36
DTYPES = ("float32", "float16", "bfloat16")
# CartPole: 4 numbers observed, an action. HalfCheetah: 17 and 6.
BYTES = {"float32": (44, 168), "float16": (22, 84), "bfloat16": (22, 84)}
SIZE = {"float32": 4, "float16": 2, "bfloat16": 2}


def story(seed, numbers=0):
    """Steps of which no observation is met twice. Actions have numbers."""
    rng = np.random.default_rng(seed)
    seen, steps = rng.normal(size=2).astype(np.float32), []
    for _ in range(STEPS):
        after = rng.normal(size=2).astype(np.float32)
        action = rng.normal(size=numbers).astype(np.float32) if numbers else rng.integers(4)
        over = rng.random() < 0.25
        steps.append((seen, action, np.float32(rng.normal()), after, over))
        seen = rng.normal(size=2).astype(np.float32) if over else after
    return steps


@cache
def program(memory, capacity, numbers):
    """What may be recalled after every step of a story."""

    def told(steps, stored, uniform):
        def remember(rows, now):
            what, stored = now
            rows = replay.store(rows, memory.row(Transition(*what)), stored)
            picked = replay.sample(rows, uniform, stored + 1)
            return rows, memory.transitions(picked, 2)

        return jax.lax.scan(remember, memory.empty(capacity, 2, numbers or 1), (steps, stored))[1]

    return jax.jit(told)


def recalled(memory, capacity, steps, stored, uniform, numbers=0):
    columns = tuple(np.array(column) for column in zip(*steps, strict=True))
    found = program(memory, capacity, numbers)(columns, np.int32(stored), np.float32(uniform))
    return jax.tree.map(np.asarray, found)


uniforms = st.lists(st.floats(0, 1, exclude_max=True, width=32), min_size=5, max_size=5)


@settings(max_examples=120)
@given(
    st.builds(Memory, st.sampled_from(DTYPES)),
    st.sampled_from([1, 5]),
    st.integers(0, 2**32 - 1),
    uniforms,
    st.integers(0, STEPS),
)
def test_what_is_recalled_is_what_the_list_of_everything_says(
    memory, capacity, seed, uniform, emptied
):
    assert_recalled(memory, capacity, story(seed), uniform, emptied)


@pytest.mark.parametrize("dtype", DTYPES)
def test_actions_of_several_numbers_are_recalled_too(dtype):
    uniform = np.arange(5, dtype=np.float32) / 5
    assert_recalled(Memory(dtype), 5, story(1, 3), uniform, emptied=STEPS, numbers=3)


def assert_recalled(memory, capacity, steps, uniform, emptied, numbers=0):
    """After every step of a story; before one of them the memory is emptied."""
    stored = [t if t < emptied else t - emptied for t in range(STEPS)]
    batch = recalled(memory, capacity, steps, stored, uniform, numbers)
    for t in range(STEPS):
        if stored[t] == 0:
            obvious = ObviousMemory(memory, capacity)
        obvious.remember(*steps[t])
        for i, one in enumerate(obvious.recall(uniform)):
            found = [leaf[t][i] for leaf in batch[:5]]
            for ours, theirs in zip(found, one, strict=True):
                np.testing.assert_array_equal(ours, theirs)


def test_unless_said_a_row_is_the_transition_as_it_was():
    step = Transition(
        jnp.array([0.1, -2.0]), jnp.int32(3), jnp.float32(0.7), jnp.array([4.0, 5.0]), jnp.bool_(1)
    )
    row = Memory().row(step)
    assert row.dtype == jnp.float32
    np.testing.assert_array_equal(row, np.float32([0.1, -2, 4, 5, 3, 0.7, 1]))


class Noting(DQN):
    """Records two numbers beside a step."""

    name = "noting"
    records = ("late", "early")

    def record(self, params, step, cut):
        return {"late": params + step.reward, "early": cut}


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_a_learner_records_keeps_every_bit_in_every_memory(dtype):
    learner = Noting(memory=Memory(dtype), replay=3)
    rows = learner.empty(2, 1)
    assert rows.nbytes == 3 * learner.row_bytes(2, 1) == 3 * (BYTES[dtype][0] - 4 * SIZE[dtype] + 8)
    thirds = np.float32([1 / 3, -1e-30, np.nan])
    for number, third in enumerate(thirds):
        step = Transition(jnp.ones(2), jnp.int32(1), jnp.float32(0), jnp.ones(2), jnp.bool_(False))
        row = learner.row(third, step, jnp.bool_(number == 1))
        rows = replay.store(rows, row, jnp.int32(number))
    batch = learner.recalled(rows, np.float32([0, 0.4, 0.7]), jnp.int32(3), 2)
    np.testing.assert_array_equal(batch.recorded["late"], thirds)
    np.testing.assert_array_equal(batch.recorded["early"], [0, 1, 0])
    np.testing.assert_array_equal(batch.observation, 1)
    np.testing.assert_array_equal(batch.terminated, 0)


def test_a_learner_that_records_something_else_than_it_says_is_told():
    class Other(Noting):
        records = ("early",)

    step = Transition(jnp.ones(2), jnp.int32(1), jnp.float32(0), jnp.ones(2), jnp.bool_(False))
    with pytest.raises(FedrlError, match=r"noting records \['early', 'late'\], but .*'early'"):
        Other().row(jnp.float32(0), step, jnp.bool_(False))


def stored_and_back(memory, values):
    """Observations that went through a memory."""
    size = len(values)
    step = Transition(values, jnp.int32(0), jnp.float32(0), values, jnp.bool_(True))
    rows = replay.store(memory.empty(2, size, 1), memory.row(step), jnp.int32(0))
    return memory.transitions(rows, size).observation[0]


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
        return memory.transitions(memory.row(step), 1).action[0]

    np.testing.assert_array_equal(jax.vmap(there_and_back)(numbers), numbers)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_takes_so_many_bytes(dtype):
    memory = Memory(dtype)
    for sizes, expected in zip(((4, 1), (17, 6)), BYTES[dtype], strict=True):
        assert memory.row_bytes(*sizes) == expected
        assert memory.empty(10, *sizes).nbytes == 10 * expected


def test_what_is_told_and_what_must_fit_follow_the_settings():
    experiment = preset("cartpoles-dqnavg")
    agents = experiment.agents * experiment.seeds
    rows = agents * experiment.learner.replay
    rest = set()
    for dtype in DTYPES:
        learner = replace(experiment.learner, memory=Memory(dtype))
        changed = replace(experiment, learner=learner)
        total = rows * BYTES[dtype][0]
        assert f"replay {total / 1e6:,.0f} MB" in in_words(changed)
        rest.add(needed_bytes(changed) - 3 * total)
    assert len(rest) == 1


def test_settings_of_before_are_read_and_written_ones_come_back():
    assert from_toml(to_toml(TINY)).learner.memory == Memory()
    lines = [line for line in to_toml(TINY).splitlines() if "memory" not in line]
    without = [x for x in lines if not x.startswith("dtype")]
    assert from_toml("\n".join(without)) == TINY
    learner = replace(LEARNER, memory=Memory("bfloat16"))
    changed = replace(TINY, learner=learner)
    assert from_toml(to_toml(changed)) == changed
    assert changed.digest != TINY.digest


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dtype", "float64"),
        ("dtype", 16),
    ],
)
def test_a_bad_setting_is_refused_by_its_name(field, value):
    with pytest.raises(FedrlError, match=rf"learner\.memory\.{field}"):
        Memory(**{field: value})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DQN(memory="float16"), r"learner\.memory must be Memory"),
        (lambda: PPO(memory=Memory(dtype="float16")), "ppo goes over its latest steps"),
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
