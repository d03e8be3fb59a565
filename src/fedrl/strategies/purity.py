"""Parts of one's own must be pure: programs are traced once and then run without Python.

A counter in a module, a list that is appended to, or NumPy's random numbers would change while a
program is traced, and never again. `hiding_nothing` looks at what a part's functions can reach
before and after they are called, and says so.
"""

import pickle
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from inspect import getclosurevars
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from fedrl.errors import FedrlError

OURS = "fedrl."


@contextmanager
def hiding_nothing(*parts: Any) -> Iterator[None]:
    """Refuse parts that change anything but what they return; ours are known to be good."""
    foreign = [part for part in parts if not type(part).__module__.startswith(OURS)]
    before = [_reach(part) for part in foreign]
    numbers = _random_numbers() if foreign else {}
    yield
    for part, then in zip(foreign, before, strict=True):
        now = _reach(part)
        for place in then.keys() | now.keys():
            if then.get(place) != now.get(place):
                raise FedrlError(
                    f"{type(part).__name__} changes {place}, which happens once, when its program "
                    "is made, and not in every round: keep what it remembers in the memory of a "
                    "correction or the state of a server optimizer"
                )
    for source, state in numbers.items():
        if _random_numbers()[source] != state:
            names = " or ".join(type(part).__name__ for part in foreign)
            raise FedrlError(
                f"{names} draws random numbers from {source}, which happens once, when its program "
                "is made: use `Communication.key` and jax.random"
            )


def _random_numbers() -> dict[str, bytes]:
    states = {"random": random.getstate(), "numpy.random": np.random.get_state()}  # noqa: NPY002
    return {source: pickle.dumps(state) for source, state in states.items()}


def _reach(part: Any) -> dict[str, object]:
    """What a part can change, by where it is: itself, its classes, and variables of its modules."""
    kept = {
        name
        for cls in type(part).__mro__
        for name, x in vars(cls).items()
        if isinstance(x, cached_property)
    }
    found = {
        f"self.{name}": _print(value) for name, value in vars(part).items() if name not in kept
    }
    seen: set[FunctionType] = set()
    for cls in type(part).__mro__:
        if cls.__module__.startswith(OURS) or cls.__module__ in ("abc", "builtins"):
            continue
        for name, value in vars(cls).items():
            value = getattr(value, "__func__", value)
            if isinstance(value, FunctionType):
                _variables(value, found, seen)
            elif not name.startswith("__") and not name.startswith("_abc_"):
                found[f"{cls.__name__}.{name}"] = _print(value)
    return found


def _variables(function: FunctionType, found: dict[str, object], seen: set[FunctionType]) -> None:
    """The variables that a function reads or writes, and those of functions beside it."""
    if function in seen:
        return
    seen.add(function)
    outer = getclosurevars(function).nonlocals
    for name, value in outer.items():
        _variable(f"{name} of {function.__qualname__}", value, function, found, seen)
    for name in _names(function.__code__) & function.__globals__.keys():
        value = function.__globals__[name]
        _variable(f"{function.__module__}.{name}", value, function, found, seen)


def _variable(
    place: str,
    value: Any,
    function: FunctionType,
    found: dict[str, object],
    seen: set[FunctionType],
) -> None:
    if isinstance(value, FunctionType) and value.__module__ == function.__module__:
        _variables(value, found, seen)
    elif not isinstance(value, (ModuleType, FunctionType, type)):
        found[place] = _print(value)


def _names(code: CodeType) -> set[str]:
    """All names in a function, also of functions inside it."""
    inner = (_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*inner)


def _print(value: Any) -> object:
    """Something that changes when a value does."""
    try:
        return pickle.dumps(value)
    except Exception:  # such as values that are being traced
        return repr(value)
