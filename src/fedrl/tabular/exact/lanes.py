"""The layout of the exact code: one (agent, replicate) pair is a lane, and lanes are the last axis.

With the lanes last, every operation on a small table is a long loop over contiguous memory that
the compiler vectorises; with the lanes first it would be many short ones. Lane number =
agent * replicates + replicate.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

Tree = TypeVar("Tree")


def to_lanes(x: jax.Array) -> jax.Array:
    """(replicates, agents, ...) -> (..., lanes)."""
    moved = jnp.moveaxis(x, (1, 0), (-2, -1))
    return moved.reshape(*moved.shape[:-2], -1)


def agents_and_replicates(x: jax.Array, agents: int) -> jax.Array:
    """(..., lanes) -> (..., agents, replicates)."""
    return x.reshape(*x.shape[:-1], agents, -1)


def mean_over_agents(x: jax.Array, agents: int) -> jax.Array:
    """(..., lanes) -> (..., replicates)."""
    stacked = agents_and_replicates(x, agents)
    # Summed in agent order by hand: the order of a compiled reduction may depend on its shape.
    total = stacked[..., 0, :]
    for agent in range(1, agents):
        total = total + stacked[..., agent, :]
    return total / agents


def to_every_agent(x: jax.Array, agents: int) -> jax.Array:
    """(..., replicates) -> (..., lanes): the same table for every agent."""
    # Not jnp.tile: its index arithmetic, inlined, would turn the vector loops that read the result
    # into scalar ones.
    return jnp.concatenate([x] * agents, axis=-1)


def written_out(work: Callable[[jax.Array], Tree], x: jax.Array) -> Tree:
    """`work(x)`, computed once and not again by everybody who reads it.

    A compiler would rather compute what is cheap several times than write it to memory, but for
    what a branch returns. This branch is always taken, and the compiler does not know it. Nor does
    an accelerator, where a branch costs more than it saves.
    """
    if jax.default_backend() != "cpu":
        return work(x)
    first = x[(0,) * x.ndim]
    bits = lax.bitcast_convert_type(first, jnp.dtype(f"uint{8 * x.dtype.itemsize}"))
    found = jax.eval_shape(work, x)

    def nothing(_: jax.Array) -> Tree:
        zeros: Tree = jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype), found)
        return zeros

    done: Tree = lax.cond((bits | 1) != 0, work, nothing, x)
    return done
