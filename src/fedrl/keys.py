"""Every random number starts here: a key is a function of (seed, replicate, purpose).

A replicate is one of the independent repetitions ("seeds") of an experiment. Its numbers depend
neither on how many others are run nor on the block, chunk or device it is run in.
"""

from enum import IntEnum

import jax


class Purpose(IntEnum):
    """What a key is for; the numbers are part of the results and never change."""

    ENVIRONMENTS = 0
    TABLE = 1
    AGENTS = 2
    HELD_OUT = 3
    NETWORK = 4
    ACTING = 5
    SAMPLING = 6
    EVALUATION = 7
    PLAYING = 8
    EMBEDDING = 9
    CHOOSING = 10
    NOISE = 11
    TIMING = 12


def replicate_key(seed: int | jax.Array, replicate: jax.Array, purpose: Purpose) -> jax.Array:
    """The key of one replicate."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), purpose), replicate)


def replicate_keys(seed: int | jax.Array, replicates: jax.Array, purpose: Purpose) -> jax.Array:
    """One key for each number in `replicates`."""
    return jax.vmap(lambda replicate: replicate_key(seed, replicate, purpose))(replicates)


def with_numbers(key: jax.Array, numbers: jax.Array) -> jax.Array:
    """The keys below `key` with these numbers."""
    return jax.vmap(lambda number: jax.random.fold_in(key, number))(numbers)


def numbered(key: jax.Array, count: int) -> jax.Array:
    """Keys 0..count-1 below `key`: those of a few are the first ones of many."""
    return with_numbers(key, jax.numpy.arange(count))
