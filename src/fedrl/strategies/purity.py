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
    cached = {
        name
        for cls in type(part).__mro__
        for name, x in vars(cls).items()
        if isinstance(x, cached_property)
    }
    values = {f"self.{name}": x for name, x in vars(part).items() if name not in cached}
    functions: list[FunctionType] = []
    for cls in type(part).__mro__:
        if cls.__module__.startswith(OURS) or cls.__module__ in ("abc", "builtins"):
            continue
        for name, value in vars(cls).items():
            value = getattr(value, "__func__", value)
            if isinstance(value, FunctionType):
                functions.append(value)
            elif not name.startswith(("__", "_abc_")):
                values[f"{cls.__name__}.{name}"] = value
    for function in functions:  # and those beside it that it calls, which are appended
        for place, value in _variables(function).items():
            if isinstance(value, FunctionType):
                if value.__module__ == function.__module__ and value not in functions:
                    functions.append(value)
            elif not isinstance(value, (ModuleType, type)):
                values[place] = value
    return {place: _print(value) for place, value in values.items()}


def _variables(function: FunctionType) -> dict[str, Any]:
    """The variables outside of a function that it reads or writes, by where they are."""
    nonlocals = getclosurevars(function).nonlocals
    found = {f"{name} of {function.__qualname__}": x for name, x in nonlocals.items()}
    names = _names(function.__code__) & function.__globals__.keys()
    return found | {f"{function.__module__}.{n}": function.__globals__[n] for n in names}


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
