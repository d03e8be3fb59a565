"""Exact samples of the discrete Gaussian, drawn from the operating system's randomness.

All arithmetic is on integers, so what is drawn has the stated probabilities and not those of
rounded numbers. Algorithm D of Karney (Sampling exactly from the normal distribution, 2016) for
deviations that are powers of two; coins of probability exp(-x) as in Canonne, Kamath and Steinke
(The discrete Gaussian for differential privacy, 2020), many at a time.
"""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

Integers = np.ndarray[Any, np.dtype[np.int64]]
Words = np.ndarray[Any, np.dtype[np.uint64]]
Booleans = np.ndarray[Any, np.dtype[np.bool_]]

MOST_BITS = 31
"""Deviations are at most 2 ** 31: squares of 31 bits, halved, are probabilities of 63 bits."""


def system_words(count: int) -> Words:
    """Uniform 64-bit words from the operating system's generator."""
    return np.frombuffer(os.urandom(8 * count), np.uint64)


def discrete_gaussian(
    count: int, bits: int, words: Callable[[int], Words] = system_words
) -> Integers:
    """`count` integers x, each with a probability proportional to exp(-x ** 2 / (2 * 4 ** bits)).

    `bits` is from 0 to MOST_BITS; `words` says where the randomness comes from.
    """
    found = np.empty(0, np.int64)
    while found.size < count:
        # About half of the candidates are kept.
        more = _candidates(2 * (count - found.size) + 64, bits, words)
        found = np.concatenate([found, more])
    return found[:count]


def _candidates(count: int, bits: int, words: Callable[[int], Words]) -> Integers:
    """Those of `count` candidates that are accepted, in the order in which they were drawn.

    A candidate is s * (k + y) * 2 ** bits with a sign s, k drawn with probability proportional to
    exp(-k / 2), and y = j / 2 ** bits uniform in [0, 1). It is accepted with probability
    exp(-k (k - 1) / 2 - k y - y ** 2 / 2), which makes exp(-(k + y) ** 2 / 2) of it.
    """
    k = np.zeros(count, np.int64)
    rising = np.arange(count)
    while rising.size:
        rising = rising[_exponential_coin(np.full(rising.size, 1, np.uint64), 1, words)]
        k[rising] += 1
    drawn = words(count)
    j, negative = drawn & np.uint64((1 << bits) - 1), drawn >> np.uint64(63) == 1
    # Zero would be met with both signs.
    accepted = ~(negative & (k == 0) & (j == 0))
    one = np.full(count, 2, np.uint64)
    for times, numerator, power in (
        (k * (k - 1) // 2, one, 1),
        (k, j << np.uint64(1), bits + 1),
        (np.ones_like(k), j * j, 2 * bits + 1),
    ):
        thrown = 0
        while (lanes := np.flatnonzero(accepted & (times > thrown))).size:
            accepted[lanes] = _exponential_coin(numerator[lanes], power, words)
            thrown += 1
    size = (k << bits) + j.astype(np.int64)
    signed: Integers = np.where(negative, -size, size)[accepted]
    return signed


def _exponential_coin(numerator: Words, power: int, words: Callable[[int], Words]) -> Booleans:
    """True with probability exp(-x) for each x = numerator / 2 ** power from 0 to 1.

    The number of the first coin that fails is odd with this probability, where coin number i
    succeeds with probability x / i.
    """
    odd = np.empty(numerator.size, np.bool_)
    going, i = np.arange(numerator.size), 1
    while going.size:
        succeeds = words(going.size) >> np.uint64(64 - power) < numerator[going]
        if i > 1:
            succeeds[succeeds] = _one_in(i, int(succeeds.sum()), words)
        odd[going[~succeeds]] = i % 2 == 1
        going, i = going[succeeds], i + 1
    return odd


def _one_in(number: int, count: int, words: Callable[[int], Words]) -> Booleans:
    """True with probability 1 / number."""
    drawn = words(count)
    # The words beyond the last multiple of `number` would favour some remainders.
    while (over := drawn > np.uint64((1 << 64) // number * number - 1)).any():
        drawn = np.where(over, words(count), drawn)
    chosen: Booleans = drawn % np.uint64(number) == 0
    return chosen
