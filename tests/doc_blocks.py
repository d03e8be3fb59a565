"""The code blocks of the documentation, and how they are carried out."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.S | re.M
)
FILE = re.compile(r"# (?P<name>[\w/]+\.(?:py|toml))(?::.*)?\n")
# A block that follows this comment is only checked for what it could get wrong in a second.
TOO_LONG = "not run by the tests: "
LATEST = "runs/NAME-HASH"


class Block(NamedTuple):
    language: str
    text: str
    line: int
    mark: str

    @property
    def runs(self) -> bool:
        return not self.mark.startswith(TOO_LONG)

    @property
    def file(self) -> str | None:
        """The file it is, if it says so in its first line."""
        found = FILE.match(self.text)
        return found["name"] if found else None


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start("language")) + 1
        yield Block(found["language"], found["text"], line, found["mark"] or "")


def carry_out(page: Path, folder: Path) -> None:
    """Do everything that a page says, in its order, as its reader would."""
    names: dict[str, object] = {"__name__": "__main__"}
    modules = set(sys.modules)
    sys.path.insert(0, str(folder))  # as for a program in this folder
    (folder / "examples").symlink_to(ROOT / "examples")
    with contextlib.chdir(folder):
        for block in blocks(page):
            where = f"{page.name}, line {block.line}"
            if block.file is not None:
                Path(block.file).parent.mkdir(exist_ok=True, parents=True)
                Path(block.file).write_text(block.text)
            elif block.language == "python":
                code = compile(block.text, where, "exec")
                if block.runs:
                    with contextlib.redirect_stdout(io.StringIO()):
                        exec(code, names)
            elif block.language == "sh":
                for command in commands(block.text):
                    run(command, block.runs, where)
            elif block.language == "toml":
                check_fragment(block.text)
            else:
                assert block.language == "text", f"{where}: a block in no language we know"
    sys.path.remove(str(folder))
    for name in set(sys.modules) - modules:
        # Modules that the page wrote; the next page may have others of the same name.
        origin = getattr(sys.modules[name], "__file__", None) or ""
        if origin.startswith(str(folder)):
            del sys.modules[name]


def commands(text: str) -> Iterator[str]:
    """The lines of a block, continued ones joined, without comments."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            for command in line.split(" && "):
                words = shlex.split(command, comments=True)
                yield command if any(c in command for c in "|*") else shlex.join(words)


def run(command: str, really: bool, where: str) -> None:
    if LATEST in command and really:
        command = command.replace(LATEST, str(latest_run()))
    first = shlex.split(command, comments=True)[0]
    if not really or first in ("pip", "make", "sudo", "apt"):
        if first.endswith("fedrl"):
            check_arguments(shlex.split(command, comments=True)[1:], where)
        return
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": path},
    )
    assert done.returncode == 0, f"{where}: {command}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"


def latest_run() -> Path:
    return max(Path("runs").glob("*-*"), key=lambda path: path.stat().st_mtime)


def check_arguments(words: list[str], where: str) -> None:
    """A command that is not run still has arguments that exist."""
    import tyro

    from fedrl.cli import run_command as run_command
    from fedrl.cli.main import Command

    printed = io.StringIO()
    status: object = 0
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
        try:
            if words[0] == "run" and "--help" not in words:
                run_command.run([*words[1:], "--dry-run"])
            else:
                tyro.cli(Command, args=words, config=(tyro.conf.FlagCreatePairsOff,))
        except SystemExit as stopped:
            status = stopped.code
    assert not status, f"{where}: fedrl {shlex.join(words)}\n{printed.getvalue()}"


def check_fragment(text: str) -> None:
    """A part of an experiment's file: its settings exist."""
    import tomllib
    from dataclasses import fields

    import tomli_w

    from fedrl import Experiment
    from fedrl.experiment.settings import from_toml

    table = tomllib.loads(text)
    assert set(table) <= {field.name for field in fields(Experiment)}, table
    whole = {"name": "fragment", "family": {"kind": "cartpoles"}, "learner": {"kind": "dqn"}}
    from_toml(tomli_w.dumps(whole | table))
