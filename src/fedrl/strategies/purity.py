"""Parts of one's own must be pure: programs are traced once and then run without Python.

A counter in a module, a list that is appended to, or NumPy's random numbers would change while a
program is traced, and never again. `hiding_nothing` looks at what a part's functions can reach by
name before and after they are called, and says so.
"""

import pickle
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, partial
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
    """What a part can change, by where it is: itself, and what its functions name."""
    cached = {
        name
        for cls in type(part).__mro__
        for name, x in vars(cls).items()
        if isinstance(x, cached_property)
    }
    values = {f"self.{name}": x for name, x in vars(part).items() if name not in cached}
    functions: list[FunctionType] = []
    # Also where a part is installed as a library.
    modules = {cls.__module__ for cls in type(part).__mro__}
    home = {m for m in modules if m not in ("abc", "builtins") and not m.startswith(OURS)}
    waiting: list[tuple[str, Any]] = [(cls.__name__, cls) for cls in type(part).__mro__]
    classes: list[type] = []

    def new(value: Any, found: Sequence[Any]) -> bool:
        module = value.__module__
        return value not in found and (module in home or not _known(module))

    while waiting:
        place, value = waiting.pop()
        value = getattr(value, "__func__", value)
        match value:
            case ModuleType():
                pass
            case type():
                if new(value, classes):
                    classes.append(value)
                    waiting += [
                        (f"{value.__name__}.{name}", x)
                        for name, x in vars(value).items()
                        if not name.startswith(("__", "_abc_"))
                    ]
            case property():
                waiting += [(place, f) for f in (value.fget, value.fset) if f is not None]
            case partial():
                waiting += [(place, value.func), *_numbered(place, value.args)]
            case FunctionType():
                if new(value, functions):
                    functions.append(value)
                    waiting += _variables(value).items()
            case cached_property():
                waiting.append((place, value.func))
            case _:
                values[place] = value
    return {place: _print(value) for place, value in values.items()}


@cache
def _known(module: str) -> bool:
    """Whether a module is of a library, whose caches may change."""
    package = module.partition(".")[0]
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return package in {"fedrl", *sys.stdlib_module_names} or "site-packages" in file


def _variables(function: FunctionType) -> dict[str, Any]:
    """What a function reads or writes that is not its own, by where it is."""
    name, seen = function.__qualname__, function.__globals__
    nonlocals = getclosurevars(function).nonlocals
    found = {f"{variable} of {name}": x for variable, x in nonlocals.items()}
    found |= {f"{name}.{attribute}": x for attribute, x in vars(function).items()}
    defaults = *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()
    found |= dict(_numbered(f"a default of {name}", defaults))
    names = _names(function.__code__)
    for variable in names & seen.keys():
        found[f"{function.__module__}.{variable}"] = value = seen[variable]
        if isinstance(value, ModuleType) and not _known(value.__name__):
            inside = names & vars(value).keys()
            found |= {f"{value.__name__}.{x}": getattr(value, x) for x in inside}
    return found


def _numbered(place: str, values: Sequence[Any]) -> list[tuple[str, Any]]:
    return [(f"{place} ({i})", value) for i, value in enumerate(values)]


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
