"""The discrete Gaussian: against its definition, and the arithmetic that makes it exact."""

import os
from collections import Counter
from math import exp, fsum

import numpy as np
import pytest
import scipy.stats

from fedrl.strategies import discrete_gaussian as module
from fedrl.strategies.discrete_gaussian import discrete_gaussian, system_words


def seeded(seed):
    """Words that are the same in every run, so that a test of chances is not one."""
    rng = np.random.default_rng(seed)
    return lambda count: rng.integers(0, 2**64, count, np.uint64)


def probabilities(bits, until):
    """By the definition, of -until ... until."""
    sigma2 = 4.0**bits
    weights = [exp(-x * x / (2 * sigma2)) for x in range(-40 << bits, (40 << bits) + 1)]
    middle = weights[(40 << bits) - until : (40 << bits) + until + 1]
    return np.array(middle) / fsum(weights)


@pytest.mark.parametrize("bits", [0, 1, 2, 5])
def test_every_integer_has_its_probability(bits):
    count, until = 400_000, 3 << bits
    drawn = discrete_gaussian(count, bits, seeded(bits))
    assert drawn.dtype == np.int64
    expected = probabilities(bits, until)
    seen = Counter(drawn.tolist())
    observed = np.array([seen[x] for x in range(-until, until + 1)])
    # Everything further out is one class.
    observed = np.append(observed, count - observed.sum())
    expected = count * np.append(expected, 1 - expected.sum())
    assert expected.min() > 5
    assert scipy.stats.chisquare(observed, expected).pvalue > 1e-3


@pytest.mark.parametrize("bits", [10, 30, 31])
def test_where_integers_are_too_many_to_count_it_is_normal(bits):
    drawn = discrete_gaussian(200_000, bits, seeded(bits)) / 2.0**bits
    assert scipy.stats.kstest(drawn, "norm", method="asymp").pvalue > 1e-3
    # And all its bits are used: the last one is a fair coin.
    odd = (discrete_gaussian(200_000, bits, seeded(bits + 1)) & 1).sum()
    assert scipy.stats.binomtest(int(odd), 200_000).pvalue > 1e-3


@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_as_many_come_as_are_wanted(count):
    assert discrete_gaussian(count, 4).shape == (count,)


def test_randomness_is_the_operating_systems_and_never_the_same(monkeypatch):
    asked = []
    urandom = os.urandom

    def counted(size):
        asked.append(size)
        return urandom(size)

    monkeypatch.setattr(module.os, "urandom", counted)
    one, other = discrete_gaussian(100, 20), discrete_gaussian(100, 20)
    assert np.count_nonzero(one == other) < 3
    # Every number has at least the 20 bits and the sign of its own.
    assert sum(asked) >= 2 * 100 * 8
    assert len(set(system_words(1000).tolist())) == 1000


class Script:
    """Words that a test has written, each used once."""

    def __init__(self, *words):
        self.words = list(words)

    def __call__(self, count):
        taken, self.words = self.words[:count], self.words[count:]
        assert len(taken) == count
        return np.array(taken, np.uint64)


@pytest.mark.parametrize("power", [1, 2, 31, 62, 63])
def test_a_coin_compares_with_its_numerator_and_no_rounded_number(power):
    numerator = 2 ** (power - 1) + 2 ** (power - 1) // 3
    word = numerator << (64 - power)
    for words, heads in (
        # Not below the numerator: the first coin fails, its number is odd.
        ([word], True),
        ([2**64 - 1], True),
        # Just below: it succeeds, and the second fails, by its first half or by its second.
        ([word - 1, word], False),
        ([word - 1, 0, 1], False),
        # Both succeed and the third fails.
        ([word - 1, 0, 2, word], True),
    ):
        script = Script(*words)
        coin = module._exponential_coin(np.array([numerator], np.uint64), power, script)
        assert coin.tolist() == [heads]
        assert script.words == []


@pytest.mark.parametrize(("numerator", "power"), [(1, 1), (2, 1), (0, 5), (3, 4), (2**63, 63)])
def test_a_coin_has_the_probability_that_it_should(numerator, power):
    count = 100_000
    heads = module._exponential_coin(np.full(count, numerator, np.uint64), power, seeded(3))
    expected = exp(-numerator / 2**power)
    assert scipy.stats.binomtest(int(heads.sum()), count, expected).pvalue > 1e-3


@pytest.mark.parametrize("number", [2, 3, 5, 12, 2**20 + 1])
def test_one_of_so_many_is_exactly_that(number):
    # The largest words, beyond the last multiple, are drawn again.
    last = 2**64 // number * number - 1
    script = Script(last, 0, number, 1)
    assert module._one_in(number, 4, script).tolist() == [False, True, True, False]
    if last < 2**64 - 1:
        script = Script(last + 1, 1, 2**64 - 1, 0, number, number)
        assert module._one_in(number, 2, script).tolist() == [True, False]
        assert script.words == []


def test_the_algorithm_makes_the_density_of_its_pieces():
    """Of every candidate: how it is proposed times how it is accepted, for small numbers."""
    bits = 2
    for k in range(4):
        for j in range(1 << bits):
            y = j / 2**bits
            whole = exp(-k / 2) * exp(-1) ** (k * (k - 1) // 2) * exp(-y) ** k * exp(-y * y / 2)
            x = (k << bits) + j
            assert whole == pytest.approx(exp(-x * x / (2 * 4**bits)), rel=1e-12)
