"""The arrays that fedrl.tabular is given, checked before any work starts."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedrl.errors import FedrlError
from fedrl.tabular.exact.sparsity import Booleans
from fedrl.tabular.problems import Floats, Problems

# How far a row of probabilities may be from a sum of one: the rounding of float32 input.
SUM_TOLERANCE = 1e-6

LearningRate = float | ArrayLike | Callable[[np.ndarray], ArrayLike]


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


def _with_shape(name: str, array: Floats, shape: tuple[int, ...], letters: str) -> Floats:
    """`array` of shape `shape` or (seeds, *shape), with a seeds axis, maybe of size 1."""
    if array.shape == shape:
        return array[None]
    if array.ndim == len(shape) + 1 and array.shape[1:] == shape and array.shape[0]:
        return array
    sizes = ", ".join(map(str, shape))
    raise FedrlError(
        f"{name} must have shape ({letters}) = ({sizes}) or (seeds, {letters}), got {array.shape}"
    )


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


def problems(
    P: ArrayLike,
    R: ArrayLike,
    d0: ArrayLike | None,
    *,
    evaluate_on: ArrayLike | None = None,
    table: Table | None = None,
) -> tuple[Problems, bool]:
    """The arrays of a problem with a common seeds axis, and whether the caller gave that axis."""
    parts: dict[str, Floats] = {"P": transitions("P", P)}
    _, _, states, actions, _ = parts["P"].shape
    parts["R"] = _with_shape("R", floats("R", R), (states, actions), "S, A")
    if d0 is None:
        parts["d0"] = np.full((1, states), 1.0 / states)
    else:
        parts["d0"] = _with_shape("d0", floats("d0", d0), (states,), "S")
        _check_distribution("d0", parts["d0"], "states")
    if evaluate_on is not None:
        parts["held_out"] = transitions("evaluate_on", evaluate_on)
        if parts["held_out"].shape[2:] != parts["P"].shape[2:]:
            raise FedrlError(
                f"evaluate_on must have the states and actions of P, (..., {states}, {actions}, "
                f"{states}), got {np.shape(evaluate_on)}"
            )
    if table is not None:
        array = floats(table.name, table.value)
        parts["init"] = _with_shape(table.name, array, (states, actions), "S, A")
        if table.probabilities:
            _check_distribution(table.name, parts["init"], "actions")
    given = [(P, 4), (R, 2), (d0, 1), (evaluate_on, 4), (table and table.value, 2)]
    seed_axis = any(value is not None and np.ndim(value) > axes for value, axes in given)
    return Problems(**_same_seeds(parts)), seed_axis


def possible(support: ArrayLike | None, arrays: Problems) -> Booleans | None:
    """Which transitions are possible, (S, A, S); every other one must be 0 in all environments."""
    if support is None:
        return None
    given = np.asarray(support)
    shape = arrays.P.shape[2:]
    if given.dtype != np.bool_ or given.shape != shape:
        raise FedrlError(
            f"support must be booleans of shape (S, A, S) = {shape}, got {given.dtype} of shape "
            f"{given.shape}"
        )
    for name, P in (("P", arrays.P), ("evaluate_on", arrays.held_out)):
        if P is None:
            continue
        # What was given once serves all seeds, and is looked at once.
        once = np.asarray(P)[:1] if np.asarray(P).strides[0] == 0 else np.asarray(P)
        outside = np.any(once, axis=(0, 1)) & ~given
        if outside.any():
            s, a, t = map(int, np.argwhere(outside)[0])
            raise FedrlError(
                f"support says that action {a} never leads from state {s} to {t}, but in {name} it "
                "sometimes does"
            )
    return given


def _same_seeds(parts: dict[str, Floats]) -> dict[str, Floats]:
    """Repeat what was given once; refuse two different numbers of seeds."""
    counts = {name: part.shape[0] for name, part in parts.items() if part.shape[0] != 1}
    if len(set(counts.values())) > 1:
        found = ", ".join(
            f"{name.replace('held_out', 'evaluate_on')}: {count}" for name, count in counts.items()
        )
        raise FedrlError(f"all arrays must have the same number of seeds, got {found}")
    seeds = max(counts.values(), default=1)
    return {name: np.broadcast_to(part, (seeds, *part.shape[1:])) for name, part in parts.items()}


def step_sizes(lr: LearningRate, iterations: int) -> Floats:
    """The step size of each local update, from a number, an array or a function of t."""
    if callable(lr):
        try:
            lr = lr(np.arange(iterations))
        except Exception as error:
            raise FedrlError(
                f"lr as a function is called once with the array 0, 1, ..., {iterations - 1} and "
                f"must return as many step sizes; it raised {type(error).__name__}: {error}"
            ) from error
    array = floats("lr", lr)
    if array.ndim == 0:
        array = np.full(iterations, array)
    if array.shape != (iterations,):
        raise FedrlError(
            f"lr must be a number, an array of one step size per iteration ({iterations},) or a "
            f"function that makes one from t = 0, 1, ..., got shape {array.shape}"
        )
    if (array < 0).any() or not (array > 0).any():
        raise FedrlError(f"lr must be positive, got a smallest step size of {array.min():g}")
    return array
