"""Where the federated problems of a run come from: given as arrays, or drawn from a family.

Arrays are checked before any work starts.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrl.errors import FedrlError
from fedrl.tabular.exact.sparsity import Booleans
from fedrl.tabular.families.tabular_family import Drawing, TabularFamily

Floats = NDArray[np.float64]
Array = Floats | jax.Array

# How far a row of probabilities may be from a sum of one: the rounding of float32 input.
SUM_TOLERANCE = 1e-6


class Problems(NamedTuple):
    """One federated problem per replicate, replicates first."""

    P: Array  # (replicates, n, S, A, S)
    R: Array  # (replicates, S, A)
    d0: Array  # (replicates, S)
    held_out: Array | None = None  # (replicates, m, S, A, S)
    init: Array | None = None  # (replicates, S, A); None: the learner's own draw


class Source(NamedTuple):
    """Problems number 0, 1, ...; number i is replicate `first` + i of an experiment."""

    block: Callable[[int, int], Problems]  # exactly `count` of them, from number `start` on
    replicates: int
    size: tuple[int, int, int]  # agents, states and actions
    support: Booleans | None = None  # which transitions are possible, (S, A, S); None: unknown
    first: int = 0


def drawn_problems(family: TabularFamily, drawing: Drawing) -> Source:
    """Problems of a family; with `kappa`, evaluated in the centre of their environments."""
    agents, kappa, seeds, first, seed = drawing

    def block(start: int, count: int) -> Problems:
        numbers = jnp.arange(start, start + count, dtype=jnp.uint32) + first
        drawn = family.draws(seed, numbers, agents, kappa, 0)
        d0 = jnp.broadcast_to(family.d0(), (count, family.states))
        return Problems(drawn.P, drawn.R, d0, held_out=drawn.centre)

    size = agents, family.states, family.actions
    return Source(block, seeds, size, family.support(), first)


def given_problems(arrays: Problems, support: ArrayLike | None = None) -> Source:
    """Anybody's matrices; where `support` (S, A, S) is false they must be 0."""
    replicates, agents, states, actions = arrays.P.shape[:4]
    possible = None if support is None else _possible(np.asarray(support), arrays)

    def block(start: int, count: int) -> Problems:
        # Past the last one, that one again.
        rows = np.minimum(np.arange(start, start + count), replicates - 1)
        block: Problems = jax.tree.map(lambda x: np.asarray(x)[rows], arrays)
        return block

    return Source(block, replicates, (agents, states, actions), possible)


def floats(name: str, value: ArrayLike) -> Floats:
    """`value` as a float64 array without NaN or infinity."""
    try:
        given = np.asarray(value)
    except (TypeError, ValueError):
        raise FedrlError(f"{name} must be an array of real numbers, but its rows differ") from None
    if given.dtype.kind not in "biuf":
        raise FedrlError(f"{name} must be an array of real numbers, got {given.dtype}")
    # A copy: what is computed later must not change when the caller reuses the array.
    array = np.array(given, dtype=np.float64)
    if not np.isfinite(array).all():
        raise FedrlError(f"{name} must be finite, but it has NaN or infinite entries")
    return array


def _check_distribution(name: str, array: Floats, over: str) -> None:
    """Refuse rows that are not probabilities over the last axis."""
    if array.min() < 0:
        raise FedrlError(
            f"{name} must hold probabilities >= 0, but its smallest entry is {array.min():g}"
        )
    sums = array.sum(axis=-1)
    if np.abs(sums - 1).max() > SUM_TOLERANCE:
        worst = np.unravel_index(np.abs(sums - 1).argmax(), sums.shape)
        raise FedrlError(
            f"{name} must sum to 1 over {over} (its last axis), but the sum at index "
            f"{tuple(map(int, worst))} is {sums[worst]:.6g}"
        )


def _shaped(
    name: str, value: ArrayLike, shape: tuple[int, ...], letters: str, over: str | None = None
) -> Floats:
    """`value` with a seeds axis, maybe of size 1; with `over`, its rows are distributions."""
    array = floats(name, value)
    if array.shape == shape:
        array = array[None]
    elif array.ndim != len(shape) + 1 or array.shape[1:] != shape or not array.shape[0]:
        sizes = ", ".join(map(str, shape))
        raise FedrlError(
            f"{name} must have shape ({letters}) = ({sizes}) or (seeds, {letters}), "
            f"got {array.shape}"
        )
    if over is not None:
        _check_distribution(name, array, over)
    return array


def transitions(name: str, value: ArrayLike) -> Floats:
    """Transition probabilities as (seeds, n, S, A, S); seeds may be 1."""
    array = floats(name, value)
    if array.ndim == 4:
        array = array[None]
    if array.ndim != 5 or 0 in array.shape or array.shape[-1] != array.shape[2]:
        raise FedrlError(
            f"{name} must have shape (n, S, A, S) or (seeds, n, S, A, S), also for a single "
            f"environment (n = 1), got {np.shape(value)}"
        )
    _check_distribution(name, array, "the next state")
    return array


class Table(NamedTuple):
    """A table (S, A) or (seeds, S, A) that comes with a problem."""

    name: str
    value: ArrayLike
    probabilities: bool  # its rows are distributions over actions


def checked_arrays(
    P: ArrayLike,
    R: ArrayLike,
    d0: ArrayLike | None,
    *,
    evaluate_on: ArrayLike | None = None,
    table: Table | None = None,
) -> tuple[Problems, bool]:
    """The arrays of problems with a common seeds axis, and whether the caller gave that axis."""
    parts = {"P": transitions("P", P)}
    states, actions = parts["P"].shape[2:4]
    parts["R"] = _shaped("R", R, (states, actions), "S, A")
    start = np.full(states, 1.0 / states) if d0 is None else d0
    parts["d0"] = _shaped("d0", start, (states,), "S", over="states")
    if evaluate_on is not None:
        parts["evaluate_on"] = transitions("evaluate_on", evaluate_on)
        if parts["evaluate_on"].shape[2:] != parts["P"].shape[2:]:
            raise FedrlError(
                f"evaluate_on must have the states and actions of P, (..., {states}, {actions}, "
                f"{states}), got {np.shape(evaluate_on)}"
            )
    if table is not None:
        over = "actions" if table.probabilities else None
        parts[table.name] = _shaped(table.name, table.value, (states, actions), "S, A", over)
    counts = {name: len(part) for name, part in parts.items() if len(part) != 1}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise FedrlError(f"all arrays must have the same number of seeds, got {found}")
    # What was given once serves all seeds.
    seeds = max(counts.values(), default=1)
    parts = {name: np.broadcast_to(x, (seeds, *x.shape[1:])) for name, x in parts.items()}
    given = [(P, 4), (R, 2), (d0, 1), (evaluate_on, 4), (table and table.value, 2)]
    seed_axis = any(value is not None and np.ndim(value) > axes for value, axes in given)
    init = None if table is None else parts[table.name]
    arrays = Problems(parts["P"], parts["R"], parts["d0"], parts.get("evaluate_on"), init)
    return arrays, seed_axis


def _possible(support: NDArray[Any], arrays: Problems) -> Booleans:
    """The support, if it is one of the transitions in all environments."""
    shape = arrays.P.shape[2:]
    if support.dtype != np.bool_ or support.shape != shape:
        raise FedrlError(
            f"support must be booleans of shape (S, A, S) = {shape}, got {support.dtype} of shape "
            f"{support.shape}"
        )
    for name, P in (("P", arrays.P), ("evaluate_on", arrays.held_out)):
        if P is None:
            continue
        # What was given once serves all seeds, and is looked at once.
        once = np.asarray(P)[:1] if np.asarray(P).strides[0] == 0 else np.asarray(P)
        outside = np.any(once, axis=(0, 1)) & ~support
        if outside.any():
            s, a, t = map(int, np.argwhere(outside)[0])
            raise FedrlError(
                f"support says that action {a} never leads from state {s} to {t}, but in {name} it "
                "sometimes does"
            )
    return support
