"""Checks of single arguments, shared by everything that users call."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from math import inf, isinf
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_origin

from fedrl.errors import FedrlError, unknown_name

Check = Callable[[str, Any], object]
"""Refuses a value of the argument with this name, or returns the value to keep."""


def _plain(value: object) -> object:
    """The number inside a zero-dimensional array."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    return value


def _float(value: object) -> float | None:
    """A real number, or None if it is not one that a float can hold."""
    plain = _plain(value)
    if isinstance(plain, bool) or not isinstance(plain, Real):
        return None
    try:
        return float(plain)
    except OverflowError:
        return None


def short(value: object) -> str:
    """A value for people, of a line at most."""
    try:
        text = repr(value)
    except ValueError:  # an integer with thousands of digits, which Python does not print
        return "a number with thousands of digits"
    return text if len(text) <= 60 else f"{text[:57]}..."


def number(name: str, value: object, allowed: str, test: Callable[[float], bool]) -> float:
    """A real number that passes `test`; `allowed` says which do."""
    as_float = _float(value)
    if as_float is None or not test(as_float):
        raise FedrlError(f"{name} must be {allowed}, got {short(value)}")
    return as_float


def whole(name: str, value: object, *, smallest: int = 1, largest: float = inf) -> int:
    """An integer in the given range."""
    plain = _plain(value)
    if (
        isinstance(plain, bool)
        or not isinstance(plain, Integral)
        or not smallest <= int(plain) <= largest
    ):
        upper = "" if isinf(largest) else f" and at most {int(largest)}"
        raise FedrlError(
            f"{name} must be an integer of at least {smallest}{upper}, got {short(value)}"
        )
    return int(plain)


def whole_or_inf(name: str, value: object) -> float:
    """A positive integer, or inf (also as a word) for never."""
    plain = _plain(value)
    if isinstance(plain, str) and plain == "inf":
        return inf
    as_float = _float(value)
    if as_float is not None and as_float >= 1 and (isinf(as_float) or as_float.is_integer()):
        return as_float
    raise FedrlError(f"{name} must be a positive integer or inf, got {short(value)}")


def probability(name: str, value: object) -> float:
    """A number in [0, 1]."""
    return number(name, value, "a probability in [0, 1]", lambda x: 0 <= x <= 1)


# Checks of numbers, as `check_fields` takes them.
step_size = partial(
    number, allowed="a number from 1e-30 to 1e30", test=lambda x: 1e-30 <= x <= 1e30
)
positive = partial(number, allowed="a positive number", test=lambda x: 0 < x < 1e30)
not_negative = partial(number, allowed="a number from 0 to 1e30", test=lambda x: 0 <= x <= 1e30)
below_one = partial(number, allowed="a number in [0, 1)", test=lambda x: 0 <= x < 1)
above_zero = partial(number, allowed="a number in (0, 1]", test=lambda x: 0 < x <= 1)


def discount(gamma: object) -> float:
    """A discount factor."""
    return below_one("gamma", gamma)


def choice(name: str, value: object, choices: tuple[str, ...]) -> object:
    """One of a few words."""
    if value not in choices:
        raise unknown_name(name, value, choices)
    return value


def flag(name: str, value: object) -> bool:
    """True or false."""
    plain = _plain(value)
    if not isinstance(plain, bool):
        raise FedrlError(f"{name} must be true or false, got {short(value)}")
    return plain


def of_kind(name: str, value: object, *kinds: type) -> object:
    """An instance of one of a few classes."""
    if not isinstance(value, kinds):
        allowed = " or ".join(kind.__name__ for kind in kinds)
        raise FedrlError(f"{name} must be {allowed}, got {short(value)}")
    return value


def optional(check: Check) -> Check:
    """The check of an argument that may also be None."""
    return lambda name, value: None if value is None else check(name, value)


def settle(settings: object, **checked: object) -> None:
    """Put the checked values into a frozen dataclass: plain numbers, so that they can be stored."""
    for name, value in checked.items():
        object.__setattr__(settings, name, value)


def check_fields(settings: Any, where: str, **checks: Check) -> None:
    """Check fields of a frozen dataclass, called `where.field`, and put the plain values into it.

    Texts, flags, choices and settings of one class are checked by their types.
    """
    typed = {field.name: _check_of_type(field.type) for field in fields(settings)}
    for name, check in (typed | checks).items():
        if check is not None:
            checked = check(f"{where}.{name}" if where else name, getattr(settings, name))
            object.__setattr__(settings, name, checked)


def _check_of_type(kind: Any) -> Check | None:
    if kind is bool:
        return flag
    if get_origin(kind) is Literal:
        return partial(choice, choices=get_args(kind))
    if isinstance(kind, type) and (kind is str or is_dataclass(kind)):
        return lambda name, value: of_kind(name, value, kind)
    return None
