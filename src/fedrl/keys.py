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


def replicate_keys(seed: int | jax.Array, replicates: jax.Array, purpose: Purpose) -> jax.Array:
    """One key for each number in `replicates`."""
    root = jax.random.fold_in(jax.random.key(seed), purpose)
    return jax.vmap(lambda replicate: jax.random.fold_in(root, replicate))(replicates)
