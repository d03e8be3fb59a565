"""Entry point of the command line: arguments in, exit status out."""

import shlex
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from fedrl import __version__
from fedrl.cli import run_command as run
from fedrl.cli.commands import Reproduce, Theory
from fedrl.cli.existing_runs import Adapt, Evaluate, Export, Report, Resume, Show, Track
from fedrl.cli.federation import Agent, Federation, Server
from fedrl.cli.listing import List
from fedrl.cli.machines import Join
from fedrl.errors import CodeNotAllowedError, FedrlError


@dataclass(frozen=True)
class Completion:
    """Print completions of commands, options and settings for a shell.

    bash: `fedrl completion bash > ~/.local/share/bash-completion/completions/fedrl`; zsh: into a
    file `_fedrl` in a folder of `$fpath`; fish: `~/.config/fish/completions/fedrl.fish`.
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]
    """Which shell."""

    def run(self) -> int:
        from fedrl.experiment.presets import CARTPOLES

        # `fedrl run` reads its own arguments, which depend on the preset; most are common to all.
        Run = run.command_with_experiment()
        default = tyro.conf.subcommand("run", default=Run(experiment=CARTPOLES))
        commands: Any = Annotated[Run, default] | Others
        with suppress(SystemExit):
            _run(commands, ["--tyro-write-completion", self.shell, "-"])
        return 0


Others = (
    Resume
    | Join
    | Track
    | Report
    | Evaluate
    | Adapt
    | Show
    | Export
    | Reproduce
    | Theory
    | Federation
    | Server
    | Agent
    | List
    | Completion
)
Command = run.Run | Others

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
        return _run(Command, arguments)
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


def _run(commands: Any, arguments: list[str]) -> int:
    command = tyro.cli(
        commands,
        prog="fedrl",
        description="Federated reinforcement learning across environments that differ. "
        "`fedrl --version` prints the version.",
        args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    status: int = command.run()
    return status


def _refused(why: str) -> int:
    """Say why, without what could be a command to the terminal: names may come out of a file."""
    plain = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in why)
    print(f"fedrl: {plain}", file=sys.stderr)
    return 2
