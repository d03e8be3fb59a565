"""Settings as TOML and back: every field is written, an unknown or ill-typed one is an error."""

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tomli_w

from fedrl import catalogue, registry
from fedrl.arguments import number, short
from fedrl.errors import FedrlError, unknown_name
from fedrl.files import read_text

# In tables of a union, the field that says which member it is.
KIND = "kind"
IN_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}

Settings = TypeVar("Settings")


class Named:
    """Settings with a name, which their hash tells apart from all others of that name."""

    name: str

    @property
    def digest(self) -> str:
        """A short name for exactly these settings."""
        return sha256(to_toml(self).encode()).hexdigest()[:8]

    @property
    def directory_name(self) -> str:
        """What its run directory is called."""
        return f"{self.name}-{self.digest}"


def to_toml(settings: Any) -> str:
    """All settings of a dataclass, defaults included."""
    return tomli_w.dumps(to_table(settings))


def flat(settings: Any) -> dict[str, bool | int | float | str]:
    """The same, each under its full name; lists as text."""

    def found(table: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, value in table.items():
            if isinstance(value, dict):
                yield from found(value, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}", str(value) if isinstance(value, list) else value

    return dict(found(to_table(settings), ""))


def table_of(text: str, source: str, *, allow_code: bool = False) -> dict[str, Any]:
    """TOML as a table, in which code is marked as untrusted unless it is allowed."""
    try:
        table = tomllib.loads(text)
        mark = registry.allow if allow_code else partial(registry.Untrusted, source=source)
        marked: dict[str, Any] = _marked(table, mark)
        return marked
    except tomllib.TOMLDecodeError as error:
        raise FedrlError(f"{source} is not TOML: {error}") from None
    except (ValueError, RecursionError):  # of Python's own limits
        raise FedrlError(
            f"{source} cannot be read: its tables are nested too deeply, or a number is too long"
        ) from None


def settings_from(
    kind: type[Settings], text: str, source: str, *, allow_code: bool = False
) -> Settings:
    """Settings of any kind from TOML."""
    settings: Settings = from_table(kind, table_of(text, source, allow_code=allow_code), "", source)
    return settings


def from_table(kind: Any, table: Any, where: str, source: str = "the settings") -> Any:
    """Settings of any kind from a table; `where` is the name of the table in errors."""
    try:
        settings = _value(kind, table, where)
    except (ValueError, OverflowError) as error:
        if isinstance(error, FedrlError):
            raise
        raise FedrlError(f"{source} has a setting that cannot be used: {error}") from None
    assert isinstance(settings, kind)
    return settings


def to_table(settings: Any) -> dict[str, Any]:
    """All settings of a dataclass as a table."""
    table: dict[str, Any] = _plain(settings)
    return table


def read_settings(kind: type[Settings], path: Path, *, allow_code: bool = False) -> Settings:
    """The settings in a file."""
    return settings_from(kind, read_text(path), str(path), allow_code=allow_code)


def about_tables(table: dict[str, Any]) -> bool:
    """Whether settings describe an experiment on tables; their family tells."""
    family = table.get("family")
    return isinstance(family, dict) and str(family.get(KIND)) in catalogue.TABULAR_FAMILIES


def refuse_tables(text: str, source: str) -> None:
    """Say which commands are for experiments on tables."""
    if about_tables(table_of(text, source)):
        raise FedrlError(
            f"{source} is about tables, which only federations over a network train: `fedrl "
            "federation init DIR --experiment FILE` makes one, and `fedrl report` shows it"
        )


def _marked(value: Any, mark: Callable[[str], str]) -> Any:
    """The same value, with every text that could name code marked."""
    if isinstance(value, dict):
        return {name: _marked(x, mark) for name, x in value.items()}
    if isinstance(value, list):
        return [_marked(x, mark) for x in value]
    return mark(value) if isinstance(value, str) and ":" in value else value


def _plain(value: Any) -> Any:
    # Settings of a class that is not loaded (see `experiment.stored`).
    if (table := getattr(value, "as_table", None)) is not None:
        return table
    if is_dataclass(value):
        tagged = _tag(type(value))
        present = {f.name: getattr(value, f.name) for f in fields(value)}
        # TOML has no null: what is None is left out, and None is then the default.
        return tagged | {name: _plain(x) for name, x in present.items() if x is not None}
    if isinstance(value, tuple):
        return [_plain(x) for x in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _tag(kind: type) -> dict[str, str]:
    """How a table says which kind of settings it has."""
    group = getattr(kind, "registered_in", None)
    if group is not None:
        return {KIND: registry.name_of(group, kind)}
    name = getattr(kind, "name", None)
    return {KIND: name} if isinstance(name, str) else {}


def _value(kind: Any, value: Any, where: str) -> Any:
    """`value` from a TOML file as a `kind`."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _member(get_args(kind), value, where)
    if origin is Literal:
        if value not in get_args(kind):
            raise unknown_name(where, value, get_args(kind))
        return value
    if origin is tuple:
        return _tuple(get_args(kind), value, where)
    if "registered_in" in vars(kind):
        return _registered(kind, value, where)
    if is_dataclass(kind):
        return _table(kind, value, where)
    if kind is float and type(value) is int:
        return number(where, value, "a number that 64 bits can hold", lambda _: True)
    if type(value) is not kind and not (kind is str and isinstance(value, str)):
        raise FedrlError(f"{where} must be {IN_WORDS.get(kind, kind.__name__)}, got {short(value)}")
    return value


def _table(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise FedrlError(f"{where} must be a table of settings, got {short(value)}")
    hints = get_type_hints(kind)
    known = {f.name: f for f in fields(kind)}
    given = {name: x for name, x in value.items() if name != KIND or KIND in known}
    for field_name in given:
        if field_name not in known:
            raise unknown_name(f"setting {_join(where, field_name)}", field_name, known)
    for field_name, field in known.items():
        if field_name not in given and field.default is field.default_factory is MISSING:
            raise FedrlError(f"{_join(where, field_name)} is missing")
    return kind(**{n: _value(hints[n], x, _join(where, n)) for n, x in given.items()})


def _registered(base: Any, value: Any, where: str) -> Any:
    """Settings of a kind that anybody may add to."""
    if isinstance(value, base):
        return value
    group = base.registered_in
    kind = value.get(KIND) if isinstance(value, dict) else None
    if not isinstance(kind, str):
        names = sorted(entry.name for entry in registry.entries(group))
        raise FedrlError(
            f"{_join(where, KIND)} is missing: choose from {', '.join(map(repr, names))}"
        )
    loaded = registry.load(group, kind)
    if not (isinstance(loaded, type) and issubclass(loaded, base) and is_dataclass(loaded)):
        raise FedrlError(f"{_join(where, KIND)} = {kind!r} is no dataclass of {base.__name__}")
    return _table(loaded, value, where)


def _member(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    """A member of a union: dataclasses are told apart by `kind`, `X | None` by what is there."""
    tables: dict[str, Any] = {getattr(k, "name", ""): k for k in kinds if is_dataclass(k)}
    if tables:
        if not isinstance(value, dict) or KIND not in value:
            raise FedrlError(
                f"{where}.{KIND} is missing: choose from {', '.join(map(repr, sorted(tables)))}"
            )
        if not isinstance(value[KIND], str) or value[KIND] not in tables:
            raise unknown_name(_join(where, KIND), value[KIND], tables)
        return _table(tables[value[KIND]], value, where)
    (kind,) = (kind for kind in kinds if kind is not type(None))
    return _value(kind, value, where)


def _tuple(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if not isinstance(value, list):
        raise FedrlError(f"{where} must be a list, got {short(value)}")
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        raise FedrlError(f"{where} must be a list of {len(kinds)}, got {short(value)}")
    return tuple(_value(kind, x, where) for kind, x in zip(kinds, value, strict=True))


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
