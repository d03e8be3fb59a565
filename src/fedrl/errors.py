"""The one error users see: a sentence that names the argument and what is allowed."""

from collections.abc import Iterable
from difflib import get_close_matches


class FedrlError(ValueError):
    """Bad input, found before any work started."""


class CodeNotAllowedError(FedrlError):
    """A file names Python code, and the user has not allowed to import it."""


def unknown_name(what: str, name: object, known: Iterable[str]) -> FedrlError:
    """The error for a name that does not exist, with the nearest one that does."""
    names = sorted(known)
    by_lower = {known.lower(): known for known in names}
    near = [by_lower[match] for match in get_close_matches(str(name).lower(), by_lower, n=1)]
    hint = f"did you mean {near[0]!r}? " if near else ""
    return FedrlError(f"unknown {what} {name!r}: {hint}choose from {', '.join(map(repr, names))}")
