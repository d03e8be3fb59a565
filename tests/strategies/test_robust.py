"""Median, trimmed mean and Krum: against NumPy, SciPy, Flower, and against hostile agents."""

from functools import cache
from types import SimpleNamespace

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import strategies as st

from fedrl.errors import FedrlError
from fedrl.strategies.aggregators import Communication, Mean
from fedrl.strategies.robust import Krum, Median, TrimmedMean

NO_NUMBERS = [np.nan, np.inf, -np.inf]
BAD = [*NO_NUMBERS, 1e30, -1e30, 3.4e38]


@cache
def compiled(aggregator):
    return jax.jit(aggregator.apply)


def aggregate(aggregator, stacked):
    n = jax.tree.leaves(stacked)[0].shape[0]
    about = Communication(None, jnp.arange(n), jax.random.key(0))
    return jax.device_get(compiled(aggregator)(stacked, about))


def vectors(rng, n, size=40):
    return rng.normal(size=(n, size)).astype(np.float32)


def as_tree(flat):
    """The same numbers, of each agent, in leaves of several shapes."""
    n = len(flat)
    return {"w": flat[:, :12].reshape(n, 4, 3), "b": flat[:, 12], "rest": (flat[:, 13:], None)}


def flattened(tree):
    return np.concatenate([np.ravel(tree["w"]), np.ravel(tree["b"]), np.ravel(tree["rest"][0])])


@pytest.mark.parametrize("n", range(1, 10))
def test_the_median_is_numpys(rng, n):
    flat = vectors(rng, n)
    result = flattened(aggregate(Median(), as_tree(flat)))
    np.testing.assert_allclose(result, np.median(flat, 0), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("n", "trim"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 1), (5, 2), (9, 3), (12, 5)]
)
def test_the_trimmed_mean_is_scipys(rng, n, trim):
    flat = vectors(rng, n)
    # A share that cuts off exactly so many, however it is rounded.
    expected = scipy.stats.trim_mean(flat.astype(np.float64), (trim + 0.25) / n, axis=0)
    result = flattened(aggregate(TrimmedMean(trim), as_tree(flat)))
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


def obvious_krum(flat, byzantine, keep):
    """Blanchard et al. (2017), section 4, agent by agent in 64 bits."""
    flat = np.asarray(flat, np.float64)
    scores = []
    for i, one in enumerate(flat):
        others = [other for j, other in enumerate(flat) if j != i]
        distances = sorted(sum((a - b) ** 2 for a, b in zip(one, x, strict=True)) for x in others)
        scores.append(sum(distances[: len(flat) - byzantine - 2]))
    best = sorted(range(len(flat)), key=lambda i: (scores[i], i))[:keep]
    return flat[best].mean(0)


@pytest.mark.parametrize(
    ("n", "byzantine", "keep"),
    [(3, 0, 1), (4, 0, 2), (5, 1, 1), (6, 1, 3), (7, 2, 1), (9, 2, 5), (9, 3, 4), (12, 1, 4)],
)
def test_krum_is_that_of_the_paper(rng, n, byzantine, keep):
    for _ in range(20):
        flat = vectors(rng, n)
        result = flattened(aggregate(Krum(byzantine, keep), as_tree(flat)))
        expected = obvious_krum(flat, byzantine, keep)
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


def test_krum_in_numbers_one_can_follow():
    # With 5 agents, 1 of them bad, the two nearest others count: 1 + 4, 1 + 1, 1 + 4, 36 + 49, ...
    line = np.float32([0, 1, 2, 8, -20])[:, None]
    assert aggregate(Krum(1), line) == [1]
    assert aggregate(Krum(1, keep=2), line) == [0.5]  # The first of two that are equally good.
    # With a sixth three are near: 1 + 1 + 4, 1 + 1 + 4, 1 + 4 + 9, 1 + 4 + 9, ...
    line = np.float32([0, 1, 2, 3, 8, -20])[:, None]
    assert aggregate(Krum(1, keep=3), line) == [1]


@pytest.fixture(scope="module")
def flower():
    """Flower's own strategies as functions of stacked vectors; nothing is sent anywhere."""
    from flwr.app import ArrayRecord, MetricRecord, RecordDict
    from flwr.serverapp import strategy

    def reply(vector):
        one = {
            "arrays": ArrayRecord([vector]),
            "metrics": MetricRecord({"num-examples": 1}),
        }
        return SimpleNamespace(content=RecordDict(one), has_error=lambda: False)

    def aggregated(name, flat, **settings):
        replies = [reply(vector) for vector in flat]
        arrays, _ = getattr(strategy, name)(**settings).aggregate_train(1, replies)
        return arrays.to_numpy_ndarrays()[0]

    return aggregated


@pytest.mark.parametrize("n", [7, 8])
def test_all_do_what_flowers_do(rng, flower, n):
    flat = vectors(rng, n)
    flat[1] += 5
    pairs = [
        (Mean(), "FedAvg", {}),
        (Median(), "FedMedian", {}),
        (TrimmedMean(2), "FedTrimmedAvg", {"beta": 2.25 / n}),
        (Krum(2), "Krum", {"num_malicious_nodes": 2}),
        (Krum(1, keep=4), "MultiKrum", {"num_malicious_nodes": 1, "num_nodes_to_select": 4}),
    ]
    results = []
    for ours, name, settings in pairs:
        expected = flower(name, flat, **settings)
        np.testing.assert_allclose(aggregate(ours, flat), expected, rtol=1e-5, atol=1e-6)
        results.append(expected)
    # They are five different things.
    assert len(np.unique(results, axis=0)) == len(pairs)


@pytest.mark.parametrize("bad", BAD)
def test_one_bad_agent_is_enough_for_the_mean(rng, bad):
    flat = vectors(rng, 9)
    flat[4] = bad
    moved = np.asarray(aggregate(Mean(), flat))
    assert np.all(~np.isfinite(moved) | (np.abs(moved) > 1e29))


bad_values = st.one_of(st.sampled_from(BAD), st.floats(width=32))


@hypothesis.given(st.data(), st.integers(0, 3), st.integers(0, 2), st.integers(0, 999))
@hypothesis.settings(max_examples=60)
def test_what_a_minority_sends_leads_nowhere_outside_of_the_others(data, bad, more, seed):
    n = 2 * bad + 1 + more
    flat = vectors(np.random.default_rng(seed), n, size=3)
    who = data.draw(st.permutations(range(n)))[:bad]
    # Every agent and every parameter has a value of its own.
    sent = [[data.draw(bad_values) for _ in range(3)] for _ in who]
    flat[who] = np.array(sent, np.float32).reshape(bad, 3)
    honest = np.delete(flat, who, 0)
    for aggregator in (Median(), TrimmedMean(bad)):
        result = np.asarray(aggregate(aggregator, flat))
        assert np.all((honest.min(0) <= result) & (result <= honest.max(0)))


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("byzantine", [1, 2])
def test_krum_takes_an_honest_agent_as_it_is(rng, bad, byzantine):
    for n in (2 * byzantine + 3, 2 * byzantine + 6):
        flat = vectors(rng, n)
        who = rng.choice(n, byzantine, replace=False)
        flat[who] = bad
        honest = np.delete(flat, who, 0)
        result = np.asarray(aggregate(Krum(byzantine), flat))
        assert sum(result.tobytes() == one.tobytes() for one in honest) == 1
        # As many as the proof covers: a mean of honest ones, and nothing of the others.
        keep = n - byzantine - 2
        result = np.asarray(aggregate(Krum(byzantine, keep), flat))
        expected = obvious_krum(np.where(np.isfinite(flat), flat, 1e30), byzantine, keep)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
        assert np.all((honest.min(0) <= result) & (result <= honest.max(0)))


@pytest.mark.parametrize("bad", NO_NUMBERS)
def test_a_single_parameter_that_is_no_number_makes_an_agent_infinitely_far(rng, bad):
    flat = rng.normal(size=(5, 40)).astype(np.float32) / 100 + np.float32(
        [[1], [0.2], [1.9], [-1], [3]]
    )
    clean = np.asarray(aggregate(Krum(1), flat))
    np.testing.assert_array_equal(clean, flat[0])
    flat[0, 17] = bad
    tree = as_tree(flat)
    result = flattened(aggregate(Krum(1), tree))
    assert np.isfinite(result).all()
    expected = np.where(np.isfinite(flat), flat, 1e6)
    np.testing.assert_array_equal(result, obvious_krum(expected, 1, 1).astype(np.float32))


def test_no_number_is_an_extreme_value_of_its_parameter_and_of_no_other():
    nan, inf = np.nan, np.inf
    columns = np.float32(
        [
            [nan, nan, inf, -inf, 1],
            [1, nan, 1, 1, 2],
            [2, 1, 2, 2, 3],
            [3, 2, 3, 3, 4],
            [6, 4, 6, 6, nan],
        ]
    )
    # Of the five ordered values of each, no number being the largest: the third, ...
    np.testing.assert_array_equal(aggregate(Median(), columns), [3, 4, 3, 2, 3])
    # ... the second to the fourth, of which two may not be numbers if two are not, ...
    trimmed = aggregate(TrimmedMean(1), columns)
    np.testing.assert_allclose(trimmed, [11 / 3, inf, 11 / 3, 2, 3], rtol=1e-6)
    # ... and only the third again.
    np.testing.assert_array_equal(aggregate(TrimmedMean(2), columns), [3, 4, 3, 2, 3])


@pytest.mark.parametrize(
    ("aggregator", "n", "harmless"),
    [
        (Median(), 5, 2),
        (Median(), 6, 2),
        (TrimmedMean(1), 5, 1),
        (TrimmedMean(2), 8, 2),
        (Krum(1), 5, 1),
        (Krum(2), 7, 2),
    ],
    ids=repr,
)
def test_one_bad_agent_more_than_promised_can_do_harm(rng, aggregator, n, harmless):
    flat = vectors(rng, n)
    flat[:harmless] = 1e15
    assert np.abs(aggregate(aggregator, flat)).max() < 10
    # Bad agents that say the same are near each other: a majority for Krum.
    more = harmless + 1 if not isinstance(aggregator, Krum) else n - aggregator.byzantine - 1
    flat[:more] = 1e15
    assert np.abs(aggregate(aggregator, flat)).min() > 1e14


def test_distances_survive_a_large_common_part():
    # In 32 bits a square of 1e4 is exact to 8, and the distances that decide are below 1.
    rng = np.random.default_rng(2)
    flat = (1e4 + rng.integers(-200, 200, size=(9, 30)) / 1024).astype(np.float32)
    expected = obvious_krum(flat, 3, 1).astype(np.float32)
    assert not np.array_equal(expected, flat[0])
    np.testing.assert_array_equal(aggregate(Krum(3), flat), expected)


def test_of_equally_good_agents_the_first_is_taken():
    # With three agents only the nearest other counts, and two are nearest to each other.
    assert aggregate(Krum(0), np.float32([[0], [1], [5]])) == [0]
    assert aggregate(Krum(0), np.float32([[1], [0], [5]])) == [1]
    assert aggregate(Krum(0), np.float32([[5], [1], [0]])) == [1]
    assert aggregate(Krum(0), np.float32([[5], [0], [1]])) == [0]


def test_the_order_of_agents_does_not_matter(rng):
    flat = vectors(rng, 8)
    shuffled = flat[rng.permutation(8)]
    for aggregator in (Median(), TrimmedMean(2), Krum(2)):
        one, other = aggregate(aggregator, flat), aggregate(aggregator, shuffled)
        np.testing.assert_array_equal(one, other)


def test_all_distances_at_once_are_never_in_memory():
    n, size = 32, 5000
    about = Communication(None, jnp.arange(n), jax.random.key(0))
    program = compiled(Krum(3)).lower(jax.ShapeDtypeStruct((n, size), jnp.float32), about)
    memory = program.compile().memory_analysis()
    assert memory.temp_size_in_bytes < 4 * n * n * size / 4


@pytest.mark.parametrize("value", [-1, 1.5, "1", None, True])
def test_counts_are_integers(value):
    with pytest.raises(FedrlError, match=r"aggregator\.trim must be an integer of at least 0"):
        TrimmedMean(value)
    with pytest.raises(FedrlError, match=r"aggregator\.byzantine must be an integer of at least 0"):
        Krum(value)
    for keep in (value, 0):
        with pytest.raises(FedrlError, match=r"aggregator\.keep must be an integer of at least 1"):
            Krum(1, keep)


@pytest.mark.parametrize(
    ("aggregator", "enough", "message"),
    [
        (TrimmedMean(0), 1, "aggregator.trim = 0 drops 0 values of each parameter, and"),
        (TrimmedMean(2), 5, "aggregator.trim = 2 drops 4 values of each parameter, and"),
        (Krum(0), 3, "needs 3 agents in a round, and there are 2: raise agents or"),
        (Krum(1), 5, "needs 5 agents in a round, and there are 4: lower it, or raise"),
        (Krum(2), 7, "aggregator.byzantine = 2 needs 7 agents"),
        (Krum(1, keep=4), 7, "aggregator.keep must be at most 3, which is n - f - 2 for the n = 6"),
    ],
    ids=repr,
)
def test_too_few_agents_are_refused_before_the_run_and_in_a_round(rng, aggregator, enough, message):
    aggregator.check(agents=enough + 5, participants=enough)
    aggregate(aggregator, vectors(rng, enough))
    with pytest.raises(FedrlError) as refused:
        aggregator.check(agents=enough + 5, participants=enough - 1)
    assert message in str(refused.value)
    if enough > 1:
        # Also by itself: a server over a network asks `least` and `of_fewer` first.
        with pytest.raises(FedrlError) as refused:
            aggregate(aggregator, vectors(rng, enough - 1))
        assert message in str(refused.value)


def served(aggregator, stacked, asked):
    about = Communication(None, jnp.arange(len(stacked)), jax.random.key(0))
    return np.asarray(aggregator.at_server(stacked, about, asked))


@pytest.mark.parametrize(
    ("aggregator", "asked", "least"),
    [
        (Mean(), 5, 1),
        (Median(), 5, 3),
        (Median(), 6, 4),
        (TrimmedMean(1), 5, 3),
        (TrimmedMean(2), 5, 3),
        (TrimmedMean(2), 12, 5),
        (Krum(1), 5, 4),
        (Krum(1), 9, 5),
        (Krum(2), 7, 5),
        (Krum(2, keep=3), 8, 6),
    ],
    ids=repr,
)
def test_of_fewer_agents_than_asked_the_missing_count_as_bad_ones(rng, aggregator, asked, least):
    aggregator.check(asked, asked)
    assert aggregator.least(asked) == least
    bad = aggregator.withstands(asked)
    for present in range(least, asked + 1):
        fewer = aggregator.of_fewer(present)
        fewer.check(asked, present)  # it can be carried out, ...
        # ... and withstands all the bad ones that can be left.
        missing = asked - present
        assert fewer.withstands(present) >= min(bad, max(bad - missing, 0))
        assert fewer == aggregator or missing
        flat = vectors(rng, present)
        left = fewer.withstands(present)
        flat[:left] = 1e30
        result = served(aggregator, flat, asked)
        honest = flat[left:]
        if not isinstance(aggregator, Mean):
            assert np.all((honest.min(0) <= result) & (result <= honest.max(0)))


def test_as_long_as_there_are_enough_the_missing_lower_no_guard():
    assert Krum(1).of_fewer(6) == Krum(1)
    assert Krum(1, keep=3).of_fewer(5) == Krum(1, keep=2)
    assert Krum(1, keep=2).of_fewer(4) == Krum(0, keep=2)
    assert Krum(2).of_fewer(5) == Krum(1)
    assert TrimmedMean(1).of_fewer(4) == TrimmedMean(1)
    assert TrimmedMean(2).of_fewer(4) == TrimmedMean(1)


def test_a_median_is_taken_of_any_number_of_agents(rng):
    Median().check(agents=1, participants=1)
    one = vectors(rng, 1)
    np.testing.assert_array_equal(aggregate(Median(), one), one[0])
