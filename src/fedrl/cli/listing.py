"""`fedrl list`: what there is by name; JAX is not needed to say it."""

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, get_args

import tyro

from fedrl import catalogue, registry
from fedrl.errors import unknown_name


@dataclass(frozen=True)
class List:
    """Show what there is: presets, families, learners, parts of strategies, reproductions.

    With a name: what that is, and its settings.
    """

    name: Annotated[str | None, tyro.conf.Positional] = None
    """Something of the list, or `module:Name`."""

    def run(self) -> int:
        from fedrl.progress import new_console

        console = new_console()
        if self.name is None:
            _print_everything(console)
        else:
            _print_one(self.name, console)
        return 0


def _sections() -> Iterator[tuple[str, dict[str, str]]]:
    """What experiments are made of: every name with a line about it, by what it is for."""

    def registered(group: registry.Group) -> dict[str, str]:
        return {entry.name: entry.what for entry in registry.entries(group)}

    def ours(known: dict[str, str]) -> dict[str, str]:
        return {name: catalogue.first_line(target) for name, target in known.items()}

    yield "presets, for `fedrl run`", registered("presets")
    yield "for federations only", catalogue.TABULAR_PRESETS
    yield "families of simulated environments", registered("families")
    yield "learners", registered("learners")
    yield "corrections, on the agent", registered("corrections")
    yield "aggregators, on the server", registered("aggregators")
    yield "server optimizers", registered("server_optimizers")
    yield "tabular families", ours(catalogue.TABULAR_FAMILIES)
    yield "tabular algorithms", ours(catalogue.TABULAR_ALGORITHMS)


def _print_everything(console: Any) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("name", no_wrap=True)  # there to be copied, so never cut off
    table.add_column("what it is")
    for kind, entries in (*_sections(), ("for `fedrl reproduce`", catalogue.TARGETS)):
        table.add_row(f"[bold]{kind}[/]")
        for name, what in entries.items():
            table.add_row(f"  {escape(name)}", escape(what))
    console.print(table)
    console.print("[dim]`fedrl list NAME` says more about one of them.[/]")


def _print_one(name: str, console: Any) -> None:
    from inspect import getdoc

    from rich.markup import escape

    found = _find(name)
    if not isinstance(found, type):
        from fedrl.experiment.toml import to_toml

        console.print(to_toml(found), markup=False, highlight=False, end="")
        return
    # Paragraphs, wrapped as wide as the screen and not as the source.
    paragraphs = (getdoc(found) or "no description").split("\n\n")
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    console.print(f"[bold]{escape(name)}[/]: {escape(text)}\n")
    console.print(_settings(found))


def _find(name: str) -> Any:
    """A class or an experiment."""
    if ":" in name:
        registry.permit(name)
        return registry.loaded(name, repr(name))
    for group in get_args(registry.Group):
        if registry.called(group, name):
            if group != "presets":
                return registry.load(group, name)
            from fedrl.experiment.presets import preset

            return preset(name)
    if name in catalogue.TABULAR_PRESETS:
        from fedrl.tabular.experiment import TABULAR_PRESETS

        return TABULAR_PRESETS[name]
    tabular = catalogue.TABULAR_FAMILIES | catalogue.TABULAR_ALGORITHMS
    if name in tabular:
        return registry.imported(tabular[name])
    raise unknown_name("name", name, [name for _, names in _sections() for name in names])


def _settings(kind: type) -> Any:
    """Name, default and meaning of every setting."""
    from docstring_parser import parse_from_object
    from rich.markup import escape
    from rich.table import Table

    documented = {
        param.arg_name: param.description or ""
        for one in reversed(kind.__mro__[:-1])
        for param in parse_from_object(one).params
    }
    table = Table(box=None, pad_edge=False)
    for column in ("setting", "default", "what it is"):
        table.add_column(column, no_wrap=column == "setting")
    for field in fields(kind):
        default = field.default if field.default is not MISSING else "…"
        if field.default_factory is not MISSING:
            default = field.default_factory()
        what = documented.get(field.name, "")
        table.add_row(escape(field.name), escape(str(default)), escape(what))
    return table
