"""Linear systems M x = r and y M = d, lane-last, of matrices with few diagonals.

Elimination of a row changes no other rows and columns than the next ones, as many as M has
diagonals on a side: a window that moves down the diagonal.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedrl.tabular.exact.sparsity import Integers


class Eliminated(NamedTuple):
    """M = L U with U of unit diagonal, a row and a column at a time; z U = d and L y = r."""

    inverse_pivots: list[jax.Array]
    """1 / L[k, k]."""
    rows: list[jax.Array]
    """U[k, k + 1], ..., and then y[k]."""
    columns: list[jax.Array]
    """L[k + 1, k], ..., and then z[k] if there is a d."""
    corner: jax.Array | None
    """- d M^-1 r."""

    def quadratic_form(self) -> jax.Array:
        """d M^-1 r, (lanes,)."""
        assert self.corner is not None
        return -self.corner

    def solve(self, *, both: bool) -> tuple[jax.Array, ...]:
        """x with M x = r and, if `both`, y with y M = d; each (S, lanes)."""
        solved: list[jax.Array] = []
        each = zip(self.inverse_pivots, self.rows, self.columns, strict=True)
        for inverse, row, column in reversed(list(each)):
            # Both at once: each for itself takes more than twice as long.
            factors = jnp.stack([row, column * inverse] if both else [row])
            unknown = factors[:, -1]
            for i in range(len(row) - 1):
                unknown = unknown - factors[:, i] * solved[-1 - i]
            solved.append(unknown)
        x = jnp.stack(solved[::-1], axis=1)
        return tuple(x[i] for i in range(len(x)))


def eliminate(
    entries: jax.Array, places: Integers, bandwidth: int, r: jax.Array, d: jax.Array | None
) -> Eliminated:
    """Forward elimination; `places` (S, S) says which entry (of `entries`, lanes) is where."""
    size = len(places)

    def part(rows: slice, columns: slice) -> jax.Array:
        return entries.at[places[rows, columns]].get(mode="promise_in_bounds")

    end = min(bandwidth + 1, size)
    window = jnp.concatenate([part(slice(end), slice(end)), r[:end, None]], axis=1)
    if d is not None:
        border = jnp.concatenate([d[:end], jnp.zeros_like(d[:1])])
        window = jnp.concatenate([window, border[None]])
    found = Eliminated([], [], [], None)
    for k in range(size):
        inverse = 1.0 / window[0, 0]
        row, column = window[0, 1:] * inverse, window[1:, 0]
        found.inverse_pivots.append(inverse)
        found.rows.append(row)
        found.columns.append(column)
        window = window[1:, 1:] - column[:, None] * row[None]
        if end < size:  # the next row and column of M come in before those of r and d
            inside, new = end - k - 1, slice(end, end + 1)
            beside = part(slice(k + 1, end), new)
            if d is not None:
                beside = jnp.concatenate([beside, d[new, None]])
            window = jnp.concatenate([window[:, :inside], beside, window[:, inside:]], axis=1)
            below = jnp.concatenate([part(new, slice(k + 1, end + 1)), r[new, None]], axis=1)
            window = jnp.concatenate([window[:inside], below, window[inside:]])
            end += 1
    return found if d is None else found._replace(corner=window[0, 0])
