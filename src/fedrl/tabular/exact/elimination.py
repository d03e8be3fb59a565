"""Linear systems M x = r and y M = d for a lane-last stack of matrices M = I - gamma P.

M is strictly diagonally dominant, so elimination without pivoting is stable, and it has no
data-dependent branch: the whole stack goes through the same arithmetic.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

# Above this many states the unrolled program compiles slowly and LAPACK is as fast.
UNROLL_LIMIT = 32


class Eliminated(NamedTuple):
    """The bordered matrix [[M, r], [d, 0]] after elimination of the rows and columns of M.

    Write M = L U with U of unit diagonal. The lower triangle, diagonal included, is L; above it
    stands diag(L) U; the last row solves z U = d, the last column is diag(L) times y of L y = r.
    """

    table: jax.Array  # (S + 1, S + 1, lanes)
    inverse_pivots: list[jax.Array]  # S of shape (lanes,)

    def quadratic_form(self) -> jax.Array:
        """d M^-1 r, (lanes,): elimination leaves its negative in the corner."""
        return -self.table[-1, -1]

    def solve(self, *, both: bool) -> tuple[jax.Array, ...]:
        """x with M x = r and, if `both`, y with y M = d; each (S, lanes)."""
        table, inverse_pivots = self
        size = len(inverse_pivots)
        halves = [table[:size, size], table[size, :size]] if both else [table[:size, size]]
        unknowns = jnp.stack(halves)
        for k in reversed(range(size)):
            solved = unknowns[:, k] * inverse_pivots[k]
            update = solved[:, None]
            if k:
                columns = jnp.stack([table[:k, k], table[k, :k]][: len(halves)])
                remaining = unknowns[:, :k] - columns * solved[:, None]
                update = jnp.concatenate([remaining, update], axis=1)
            unknowns = lax.dynamic_update_slice(unknowns, update, (0, 0, 0))
        return tuple(unknowns[i] for i in range(len(halves)))


def eliminate(M: jax.Array, r: jax.Array, d: jax.Array) -> Eliminated:
    """Forward elimination of `M` (S, S, lanes) bordered by `r` and `d` (S, lanes)."""
    size = M.shape[0]
    corner = jnp.zeros_like(d[:1])
    above = jnp.concatenate([M, r[:, None]], axis=1)
    table = jnp.concatenate([above, jnp.concatenate([d, corner])[None]])
    inverse_pivots = []
    for k in range(size):
        inverse = 1.0 / table[k, k]
        row = table[k, k + 1 :] * inverse
        update = table[k + 1 :, k + 1 :] - table[k + 1 :, k][:, None] * row[None]
        # Written in place: twice as fast on a CPU as a new, smaller table in every step.
        table = lax.dynamic_update_slice(table, update, (k + 1, k + 1, 0))
        inverse_pivots.append(inverse)
    return Eliminated(table, inverse_pivots)


class ForLibrary(NamedTuple):
    """The same system for LAPACK: too large to unroll."""

    M: jax.Array
    r: jax.Array
    d: jax.Array

    def quadratic_form(self) -> jax.Array:
        """d M^-1 r, (lanes,)."""
        return jnp.sum(self.d * self.solve(both=False)[0], axis=0)

    def solve(self, *, both: bool) -> tuple[jax.Array, ...]:
        """x with M x = r and, if `both`, y with y M = d; each (S, lanes)."""

        def one_lane(M: jax.Array, r: jax.Array, d: jax.Array) -> tuple[jax.Array, ...]:
            factors = jax.scipy.linalg.lu_factor(M)
            x = jax.scipy.linalg.lu_solve(factors, r)
            return (x, jax.scipy.linalg.lu_solve(factors, d, trans=1)) if both else (x,)

        solved: tuple[jax.Array, ...] = jax.vmap(one_lane, in_axes=-1, out_axes=-1)(*self)
        return solved
