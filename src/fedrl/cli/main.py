"""Entry point of the command line: arguments in, exit status out."""

import shlex
import signal
import sys
from contextlib import suppress
from typing import Annotated

import tyro

from fedrl import __version__
from fedrl.cli import run_command as run
from fedrl.cli.commands import Reproduce, Theory
from fedrl.cli.completion import Completion
from fedrl.cli.existing_runs import Adapt, Evaluate, Export, Report, Resume, Show, Track
from fedrl.cli.federation import Agent, Federation, Server
from fedrl.cli.listing import List
from fedrl.cli.machines import Join
from fedrl.errors import CodeNotAllowedError, FedrlError

Others = (
    Annotated[Resume, tyro.conf.subcommand("resume")]
    | Annotated[Join, tyro.conf.subcommand("join")]
    | Annotated[Track, tyro.conf.subcommand("track")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Adapt, tyro.conf.subcommand("adapt")]
    | Annotated[Show, tyro.conf.subcommand("show")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Theory, tyro.conf.subcommand("theory")]
    | Annotated[Federation, tyro.conf.subcommand("federation")]
    | Annotated[Server, tyro.conf.subcommand("server")]
    | Annotated[Agent, tyro.conf.subcommand("agent")]
    | Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Completion, tyro.conf.subcommand("completion")]
)
Command = Annotated[run.Run, tyro.conf.subcommand("run")] | Others

INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run a command; 0: done, 1: it found a disagreement, 2: bad input, 130: interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        print(f"fedrl {__version__}")
        return 0
    try:
        # Its arguments follow from the settings of the preset.
        if arguments[:1] == ["run"] and len(arguments) > 1 and not arguments[1].startswith("-"):
            return run.run(arguments[1:])
        command = tyro.cli(
            Command,
            prog="fedrl",
            description="Federated reinforcement learning across environments that differ. "
            "`fedrl --version` prints the version.",
            args=arguments,
            config=(tyro.conf.FlagCreatePairsOff,),
        )
        return command.run()
    except CodeNotAllowedError as error:
        return _refused(f"{error}: `fedrl {shlex.join(arguments)} --allow-code`")
    except FedrlError as error:
        return _refused(str(error))
    except OSError as error:
        # A full disk, a folder that was taken away: not a finding, and nothing to debug.
        where = f": {error.filename}" if error.filename else ""
        what = f"{error.strerror}{where}" if error.strerror else str(error)
        return _refused(f"{what}; nothing saved is lost")
    except KeyboardInterrupt:
        # All that is left is to leave: another one would only show where we are.
        with suppress(ValueError):  # in other threads than the main one
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        print(
            "\nfedrl: interrupted; finished work is saved, and the same command continues from it",
            file=sys.stderr,
        )
        return INTERRUPTED


def _refused(why: str) -> int:
    """Say why, without what could be a command to the terminal: names may come out of a file."""
    plain = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in why)
    print(f"fedrl: {plain}", file=sys.stderr)
    return 2
