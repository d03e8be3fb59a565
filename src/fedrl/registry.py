"""Families, learners, aggregators and presets by name: ours, and those of other packages.

Another package registers its own as entry points of the group `fedrl.families` and so on. Without a
package, `module:Name` names anything that Python can import.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, reduce
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

from fedrl import catalogue
from fedrl.errors import CodeNotAllowedError, FedrlError, unknown_name

Group = Literal[
    "families", "learners", "corrections", "aggregators", "server_optimizers", "presets"
]
_GROUPS: Mapping[Group, tuple[str, Mapping[str, str]]] = {
    "families": ("family", catalogue.FAMILIES),
    "learners": ("learner", catalogue.LEARNERS),
    "corrections": ("correction", catalogue.CORRECTIONS),
    "aggregators": ("aggregator", catalogue.AGGREGATORS),
    "server_optimizers": ("server optimizer", catalogue.SERVER_OPTIMIZERS),
    "presets": ("preset", dict.fromkeys(catalogue.PRESETS, "fedrl:preset")),
}
"""What one of a group is called, and where ours are."""


@dataclass(frozen=True)
class Entry:
    """Something that has a name, and where it is."""

    name: str
    target: str
    """`module:Name`."""
    package: str = "fedrl"
    """Who brought it."""

    @property
    def what(self) -> str:
        """A line for people."""
        if self.package != "fedrl":
            return f"{self.target}, from {self.package}"
        return catalogue.PRESETS.get(self.name) or catalogue.first_line(self.target)


class Untrusted(str):
    """A text out of a file, equal to any other one; but code that it names is not imported."""

    source: str
    """The file."""

    def __new__(cls, text: str, source: str) -> "Untrusted":
        made = super().__new__(cls, text)
        made.source = source
        return made


_ALLOWED: set[str] = set()
"""Code that the user has allowed to import in this process."""


@cache
def entries(group: Group) -> tuple[Entry, ...]:
    """Everything of a group, ours first; nothing is imported for it."""
    _, known = _GROUPS[group]
    ours = [Entry(name, target) for name, target in known.items()]
    others = {
        Entry(point.name, point.value, point.dist.name if point.dist else "an unknown package")
        for point in entry_points(group=f"fedrl.{group}")
    }
    return (*ours, *sorted(others, key=lambda entry: (entry.name, entry.package)))


def called(group: Group, name: str) -> list[Entry]:
    """What has this name: one thing, unless nothing has or several packages have chosen it."""
    return [entry for entry in entries(group) if entry.name == name]


def load(group: Group, name: str) -> Any:
    """What has this name, or is at `module:Name`."""
    singular, _ = _GROUPS[group]
    if ":" in name:
        permit(name)
        return loaded(name, f"{singular} {name!r}")
    found = called(group, name)
    if not found:
        raise unknown_name(singular, name, (entry.name for entry in entries(group)))
    if len(found) > 1:
        packages = " and ".join(entry.package for entry in found)
        raise FedrlError(
            f"{packages} both have a {singular} called {name!r}: say which one by "
            f"{' or '.join(entry.target for entry in found)}"
        )
    (entry,) = found
    return loaded(entry.target, f"{singular} {name!r} of {entry.package}")


def is_loaded(group: Group, name: str) -> bool:
    """Whether `load` imports nothing that other people wrote, or nothing anew."""
    if ":" in name:
        return _module(name) in sys.modules
    return all(
        entry.package == "fedrl" or _module(entry.target) in sys.modules
        for entry in called(group, name)
    )


def name_of(group: Group, kind: type) -> str:
    """By which name `load` finds a class again."""
    name: str = getattr(kind, "name", kind.__name__)
    path = f"{kind.__module__}:{kind.__qualname__}"
    known = called(group, name)
    if len(known) != 1:
        return path
    (entry,) = known
    # A package may register a class under another path than the one it is defined at.
    registered = entry.target == path or (entry.package != "fedrl" and load(group, name) is kind)
    return name if registered else path


def allow(target: str) -> str:
    """The name, which from now on may be imported in this process, whatever file it is in."""
    _ALLOWED.add(target)
    return target


def permit(target: str) -> None:
    """Let `module:Name` be imported, also from the folder where the command is given.

    What a file names is refused, unless the user has allowed it or has imported the module himself.
    """
    module = _module(target)
    if module in sys.modules:
        return
    # Asked by name: settings that are equal may have been read before, without permission.
    if isinstance(target, Untrusted) and target not in _ALLOWED:
        raise CodeNotAllowedError(
            f"{target.source} would import the Python module {module!r} (for {str(target)!r}), "
            "which can do anything on this machine: if you trust it, allow it with --allow-code "
            "(in Python allow_code=True)"
        )
    # Last, or a file there could take the place of any module that is imported later.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)


def imported(target: str) -> Any:
    """What `module:Name` names."""
    module, _, path = target.partition(":")
    return reduce(getattr, path.split("."), import_module(module))


def loaded(target: str, what: str) -> Any:
    """What `module:Name` names; an error in words about `what` if it cannot be had."""
    module = _module(target)
    try:
        return imported(target)
    except Exception as error:  # whatever somebody's module does when it is imported
        hint = (
            "; it was defined in a program or a notebook: put it into a module of its own"
            if module == "__main__"
            else "; Python must find the module: run from its folder, or install it"
            if isinstance(error, ModuleNotFoundError) and error.name == module
            else ""
        )
        raise FedrlError(f"cannot load {what}: {type(error).__name__}: {error}{hint}") from error


def _module(target: str) -> str:
    return target.partition(":")[0]
