"""`fedrl completion`: what the shell offers when Tab is pressed."""

import contextlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

# After tyro's script, which completes commands and options: names in the place of a command's
# first word, as `NAMES` has them in the syntax of each shell.
BASH = """
_fedrl() {
  local names=""
  if [ "$COMP_CWORD" = 2 ] && [[ "${COMP_WORDS[2]}" != -* ]]; then
    case "${COMP_WORDS[1]}" in
NAMES
    esac
  fi
  if [ -n "$names" ]; then
    COMPREPLY=($(compgen -W "$names" -- "${COMP_WORDS[2]}"))
  else
    _tyro_fedrl "$@"
  fi
}
complete -o default -F _fedrl fedrl
"""
ZSH = """
_fedrl() {
  local names=""
  if (( CURRENT == 3 )) && [[ "$words[3]" != -* ]]; then
    case "$words[2]" in
NAMES
    esac
  fi
  if [ -n "$names" ]; then
    compadd -- ${=names}
  else
    _tyro_fedrl "$@"
  fi
}
compdef _fedrl fedrl
"""


@dataclass(frozen=True)
class Completion:
    """Print completions for a shell: commands, options, names of presets, settings.

    For bash: `fedrl completion bash > ~/.local/share/bash-completion/completions/fedrl`
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]
    """Which shell."""

    def run(self) -> int:
        names = {command: " ".join(words) for command, words in first_words().items()}
        print(_options(self.shell) + _names(self.shell, names), end="")
        return 0


def first_words() -> dict[str, list[str]]:
    """What may follow a command that takes a name."""
    from fedrl import catalogue, registry
    from fedrl.cli.listing import names

    return {
        "run": [entry.name for entry in registry.entries("presets")],
        "reproduce": list(catalogue.TARGETS),
        "list": names(),
    }


def _names(shell: str, names: Mapping[str, str]) -> str:
    if shell == "fish":
        return "".join(
            f'complete --command fedrl --condition "__fish_seen_subcommand_from {command}" '
            f'--arguments "{words}"\n'
            for command, words in names.items()
        )
    cases = "\n".join(f'      {command}) names="{words}" ;;' for command, words in names.items())
    return (BASH if shell == "bash" else ZSH).replace("NAMES", cases)


def _options(shell: str) -> str:
    """The script that tyro makes of the commands."""
    from fedrl.cli.main import Others
    from fedrl.cli.run_command import command_with_experiment
    from fedrl.experiment.presets import CARTPOLES

    # `fedrl run` reads its own arguments, which depend on the preset; most are common to all.
    Run = command_with_experiment()
    run = tyro.conf.subcommand("run", default=Run(experiment=CARTPOLES))
    commands: Any = Annotated[Run, run] | Others
    script = io.StringIO()
    with contextlib.redirect_stdout(script), contextlib.suppress(SystemExit):
        tyro.cli(
            commands,
            prog="fedrl",
            args=["--tyro-write-completion", shell, "-"],
            config=(tyro.conf.FlagCreatePairsOff, tyro.conf.AvoidSubcommands),
        )
    # zsh's ends with a call, for a file that zsh loads by itself; ours is sourced.
    return script.getvalue().removesuffix('_tyro_fedrl "$@"\n\n').removesuffix('_tyro_fedrl "$@"\n')
