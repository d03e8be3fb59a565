"""Checks of single arguments, shared by everything that users call."""

from collections.abc import Callable
from math import inf, isinf
from numbers import Integral, Real

from fedrl.errors import FedrlError, unknown_name


def _plain(value: object) -> object:
    """The number inside a zero-dimensional array."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    return value


def number(name: str, value: object, allowed: str, test: Callable[[float], bool]) -> float:
    """A real number that passes `test`; `allowed` says which do."""
    plain = _plain(value)
    if isinstance(plain, bool) or not isinstance(plain, Real) or not test(float(plain)):
        raise FedrlError(f"{name} must be {allowed}, got {value!r}")
    return float(plain)


def whole(name: str, value: object, *, smallest: int = 1, largest: float = inf) -> int:
    """An integer in the given range."""
    plain = _plain(value)
    if (
        isinstance(plain, bool)
        or not isinstance(plain, Integral)
        or not smallest <= int(plain) <= largest
    ):
        upper = "" if isinf(largest) else f" and at most {int(largest)}"
        raise FedrlError(f"{name} must be an integer of at least {smallest}{upper}, got {value!r}")
    return int(plain)


def whole_or_inf(name: str, value: object) -> float:
    """A positive integer, or inf (also as a word) for never."""
    plain = _plain(value)
    if plain == "inf":
        return inf
    if type(plain) is not bool and isinstance(plain, Real):
        as_float = float(plain)
        if as_float >= 1 and (isinf(as_float) or as_float.is_integer()):
            return as_float
    raise FedrlError(f"{name} must be a positive integer or inf, got {value!r}")


def probability(name: str, value: object) -> float:
    """A number in [0, 1]."""
    return number(name, value, "a probability in [0, 1]", lambda x: 0 <= x <= 1)


def discount(gamma: object) -> float:
    """A discount factor."""
    return number("gamma", gamma, "a number in [0, 1)", lambda x: 0 <= x < 1)


def choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """One of a few words."""
    if value not in choices:
        raise unknown_name(name, value, choices)
