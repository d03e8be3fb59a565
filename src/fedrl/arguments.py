"""Checks of single arguments, shared by everything that users call."""

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import partial
from inspect import get_annotations
from math import inf, isinf
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from fedrl.counting import count
from fedrl.errors import FedrlError, unknown_name


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
    given = inf if isinstance(plain, str) and plain == "inf" else value
    return number(
        *(name, given, "a positive integer or inf"),
        lambda x: x >= 1 and (isinf(x) or x.is_integer()),
    )


def probability(name: str, value: object) -> float:
    """A number in [0, 1]."""
    return number(name, value, "a probability in [0, 1]", lambda x: 0 <= x <= 1)


def discount(gamma: object) -> float:
    """A discount factor."""
    return number("gamma", gamma, "a number in [0, 1)", lambda x: 0 <= x < 1)


def choice(name: str, value: Any, choices: tuple[str, ...]) -> Any:
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


def positives(name: str, value: object) -> tuple[float, ...]:
    """A list of positive numbers."""
    if not isinstance(value, (tuple, list)):
        raise FedrlError(f"{name} must be a list of numbers, got {value!r}")
    return tuple(number(name, x, "a positive number", lambda x: 0 < x < 1e30) for x in value)


def one_for_each(name: str, numbers: tuple[float, ...], agents: int) -> None:
    """Refuse numbers that are not as many as the agents, unless there are none."""
    if numbers and len(numbers) != agents:
        raise FedrlError(
            f"{name} has {count(len(numbers), 'numbers')} for {count(agents, 'agents')}: give one "
            "for each"
        )


def settle(settings: object, **checked: object) -> None:
    """Put the checked values into a frozen dataclass: plain numbers, so that they can be stored."""
    for name, value in checked.items():
        object.__setattr__(settings, name, value)


@dataclass(frozen=True)
class Check:
    """In an `Annotated` type of a setting: which values it may have."""

    check: Callable[[str, Any], object]
    """Of the setting's name and value: refuses it, or returns what to keep."""


def within(allowed: str, test: Callable[[float], bool]) -> Check:
    """A check of real numbers; `allowed` says which pass."""
    return Check(partial(number, allowed=allowed, test=test))


Whole = Annotated[int, Check(whole)]
Count = Annotated[int, Check(partial(whole, largest=2**31 - 1))]
Probability = Annotated[float, Check(probability)]
StepSize = Annotated[float, within("a number from 1e-30 to 1e30", lambda x: 1e-30 <= x <= 1e30)]
Positives = Annotated[tuple[float, ...], Check(positives)]
Positive = Annotated[float, within("a positive number", lambda x: 0 < x < 1e30)]
NotNegative = Annotated[float, within("a number from 0 to 1e30", lambda x: 0 <= x <= 1e30)]
BelowOne = Annotated[float, within("a number in [0, 1)", lambda x: 0 <= x < 1)]
AboveZero = Annotated[float, within("a number in (0, 1]", lambda x: 0 < x <= 1)]


def check_fields(settings: object, where: str) -> None:
    """Check a frozen dataclass by the types of its fields, and put the plain values into it.

    Errors call a field `where.field`. Beside what `Annotated` types say, texts, flags, choices and
    settings of one class are checked. A field that a subclass gives a plain type is checked as in
    its base class.
    """
    checks = {}
    for base in reversed(type(settings).__mro__):
        for name, annotation in get_annotations(base).items():
            if (check := _check(annotation)) is not None:
                checks[name] = check
    for name, check in checks.items():
        full = f"{where}.{name}" if where else name
        settle(settings, **{name: check(full, getattr(settings, name))})


def _check(annotation: Any) -> Callable[[str, Any], object] | None:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return next((one.check for one in inner if isinstance(one, Check)), None)
    if origin is Literal:
        return partial(choice, choices=inner)
    if origin in (Union, UnionType) and len(inner) == 2 and inner[1] is NoneType:
        check = _check(inner[0])
        return check and (lambda name, value: None if value is None else check(name, value))
    if annotation is bool:
        return flag
    if isinstance(annotation, type) and (annotation is str or is_dataclass(annotation)):
        return lambda name, value: of_kind(name, value, annotation)
    return None
