"""The plain and the weighted average, and what is true of every aggregator."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrl.errors import FedrlError
from fedrl.strategies.aggregators import Communication, Mean
from fedrl.strategies.private import Private
from fedrl.strategies.robust import Krum, Median, TrimmedMean

N = 7
WEIGHTS = (3.0, 1.0, 0.5, 2.0, 1.0, 4.0, 0.1)
AVERAGES = [Mean(), Mean(WEIGHTS)]
ROBUST = [Median(), TrimmedMean(2), Krum(2), Krum(1, keep=4)]
ALL = [*AVERAGES, *ROBUST, Private(0.5, 0.1), Private(0.5, 0.0)]


def communication(before=None, agents=range(N), seed=5):
    return Communication(before, jnp.asarray(list(agents)), jax.random.key(seed))


def models(rng, n=N):
    """Trees of n agents, stacked, with a leaf of every kind: numbers, vectors, matrices."""
    shapes = {"w": (4, 3), "b": (3,), "scale": ()}
    return {name: rng.normal(size=(n, *shape)).astype(np.float32) for name, shape in shapes.items()}


def only(stacked, agents):
    return jax.tree.map(lambda leaf: leaf[np.asarray(agents)], stacked)


def close(one, other, **tolerance):
    jax.tree.map(partial(np.testing.assert_allclose, **tolerance), one, other)


def same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_the_mean_is_numpys_mean(rng):
    stacked = models(rng)
    expected = jax.tree.map(lambda leaf: leaf.astype(np.float64).mean(0), stacked)
    close(Mean().apply(stacked, communication()), expected, atol=1e-6)


def test_the_weighted_mean_is_numpys_average(rng):
    stacked = models(rng)
    expected = jax.tree.map(lambda leaf: np.average(leaf, 0, WEIGHTS), stacked)
    close(Mean(WEIGHTS).apply(stacked, communication()), expected, atol=1e-6)


@pytest.mark.parametrize("agents", [[0], [6], [1, 4], [0, 2, 3, 6]])
def test_an_agents_weight_is_its_own_whoever_else_takes_part(rng, agents):
    some = only(models(rng), agents)
    weights = np.array(WEIGHTS)[agents]
    expected = jax.tree.map(lambda leaf: np.average(leaf, 0, weights), some)
    close(Mean(WEIGHTS).apply(some, communication(agents=agents)), expected, atol=1e-6)


def test_only_the_ratios_of_weights_count(rng):
    stacked = models(rng)
    plain = Mean().apply(stacked, communication())
    large = Mean((1e29,) * N).apply(stacked, communication())
    small = Mean((1e-20,) * N).apply(stacked, communication())
    close(large, plain, atol=1e-6)
    close(small, plain, atol=1e-6)


def test_two_agents_of_weights_three_and_one_meet_a_quarter_of_the_way():
    stacked = np.float32([[8.0, -4.0], [0.0, 4.0]])
    met = Mean((3, 1)).apply(stacked, communication(agents=range(2)))
    np.testing.assert_array_equal(met, [6.0, -2.0])


@pytest.mark.parametrize("n", [5, 8])
@pytest.mark.parametrize(
    "aggregator",
    [Mean(), Mean(tuple(range(1, 9))), Median(), TrimmedMean(1), Krum(1), Krum(1, keep=2)],
    ids=repr,
)
def test_equal_agents_stay_equal_to_the_last_bit(rng, aggregator, n):
    extremes = np.float32([2e-38, 3e38, -3e38, 0.1, 0.0, 1e-3])
    one = {"w": rng.normal(size=(50, 3)).astype(np.float32), "extremes": extremes}
    stacked = jax.tree.map(lambda leaf: np.stack([leaf] * n), one)
    result = jax.jit(aggregator.apply)(stacked, communication(agents=range(n)))
    same(result, one)


def test_equal_updates_that_are_short_and_without_noise_are_the_result(rng):
    before = only(models(rng), 0)
    stacked = jax.tree.map(lambda leaf: np.stack([leaf + np.float32(0.01)] * N), before)
    result = Private(clip=1.0, noise=0.0).apply(stacked, communication(before))
    close(result, only(stacked, 0), rtol=1e-6)
    unmoved = jax.tree.map(lambda leaf: np.stack([leaf] * N), before)
    same(Private(clip=1.0, noise=0.0).apply(unmoved, communication(before)), before)


@pytest.mark.parametrize("aggregator", ALL, ids=repr)
def test_a_model_comes_back_with_the_shapes_and_types_of_one_agents(rng, aggregator):
    stacked = models(rng)
    before = only(stacked, 0)
    result = aggregator.apply(stacked, communication(before))
    assert jax.tree.structure(result) == jax.tree.structure(before)
    for new, old in zip(jax.tree.leaves(result), jax.tree.leaves(before), strict=True):
        assert (new.shape, new.dtype) == (old.shape, old.dtype)


@pytest.mark.parametrize("aggregator", ALL, ids=repr)
def test_seeds_side_by_side_are_aggregated_as_each_is_alone(rng, aggregator):
    seeds = [models(rng) for _ in range(3)]
    befores = [only(models(rng), 0) for _ in seeds]
    keys = jax.random.split(jax.random.key(1), 3)
    agents = jnp.arange(N)

    def aggregate(stacked, before, key):
        return aggregator.apply(stacked, Communication(before, agents, key))

    def together(trees):
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)

    batched = jax.jit(jax.vmap(aggregate))(together(seeds), together(befores), keys)
    for i, (stacked, before) in enumerate(zip(seeds, befores, strict=True)):
        close(only(batched, i), aggregate(stacked, before, keys[i]), rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("aggregator", ALL, ids=repr)
def test_every_leaf_counts(rng, aggregator):
    stacked = models(rng)
    before = only(stacked, 0)
    first = aggregator.apply(stacked, communication(before))
    for name in stacked:
        moved = {**stacked, name: stacked[name] + np.float32(0.25)}
        result = aggregator.apply(moved, communication(before))
        assert not np.any(np.asarray(result[name]) == np.asarray(first[name]))


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, "1", True, 1e40])
def test_weights_are_positive_numbers(value):
    with pytest.raises(FedrlError, match=r"aggregator\.weights must be a positive number"):
        Mean((1.0, value))


@pytest.mark.parametrize("value", [1.0, "12", None])
def test_weights_are_a_list(value):
    with pytest.raises(FedrlError, match=r"aggregator\.weights must be a list of numbers"):
        Mean(value)


def test_there_is_a_weight_for_each_agent_whoever_takes_part():
    Mean((1.0, 2.0, 3.0)).check(agents=3, participants=2)
    Mean().check(agents=9, participants=2)
    with pytest.raises(FedrlError, match="3 numbers for 2 agents"):
        Mean((1.0, 2.0, 3.0)).check(agents=2, participants=2)


def test_settings_are_plain_values_that_can_be_compared_and_hashed():
    assert Mean([1, 2]) == Mean((1.0, 2.0))
    assert TrimmedMean(np.int64(2)) == TrimmedMean(2)
    assert Krum(np.int32(1), np.int8(2)) == Krum(1, 2)
    assert Private(np.float32(2), 1) == Private(2.0, 1.0)
    for one in (Mean([1]).weights[0], Private(np.float32(2), 1).clip, Private(1, 1).noise):
        assert type(one) is float
    assert type(TrimmedMean(np.int64(2)).trim) is int
    assert len({hash(aggregator) for aggregator in ALL}) == len(ALL)


def test_names_are_what_a_toml_file_says():
    names = [kind.name for kind in (Mean, Median, TrimmedMean, Krum, Private)]
    assert names == ["mean", "median", "trimmed-mean", "krum", "private"]
