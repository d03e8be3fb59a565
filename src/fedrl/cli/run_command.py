"""`fedrl run`: a preset or a file, changed by arguments, carried out.

The arguments follow from the settings of the preset, so they can only be read once it is known.
"""

from argparse import ArgumentParser
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from fedrl import catalogue, registry
from fedrl.cli.machines import Execution
from fedrl.errors import FedrlError

if TYPE_CHECKING:
    from fedrl.experiment.settings import Experiment

# Settings whose kind can be chosen by name, and where the names are.
KINDS: dict[str, registry.Group] = {
    "family": "families",
    "learner": "learners",
    "correction": "corrections",
    "aggregator": "aggregators",
    "server_optimizer": "server_optimizers",
}


@dataclass(frozen=True)
class Run:
    """Train: `fedrl run PRESET [--agents 5] [--E 100] [--learner.lr 1e-3] ...`

    `fedrl run PRESET --help` documents every setting; `fedrl list` shows the presets.
    """

    preset: Annotated[str, tyro.conf.Positional]
    """Name of a preset, or a TOML file with an experiment."""

    def run(self) -> int:
        return run([self.preset])


def run(arguments: list[str]) -> int:
    """`fedrl run` with everything that follows it."""
    from fedrl.runs.launch import begin

    name, *rest = arguments
    default, rest = _with_kinds(_start_from(name, allow_code="--allow-code" in rest), rest)

    command_type = command_with_experiment()
    try:
        command = tyro.cli(
            command_type,
            prog=f"fedrl run {name}",
            description="Train. Every setting of the experiment can be given. `--family NAME`, "
            "`--learner NAME`, `--correction NAME`, `--aggregator NAME` and `--server-optimizer "
            "NAME` choose another kind (`fedrl list` shows them); its settings then follow.",
            args=rest,
            default=command_type(experiment=default),
            config=(tyro.conf.FlagCreatePairsOff, tyro.conf.AvoidSubcommands),
        )
    except ValueError as error:
        raise error if isinstance(error, FedrlError) else FedrlError(str(error)) from None
    experiment = command.experiment
    experiments = [experiment]
    if command.baseline:
        if not experiment.communicates:
            raise FedrlError("--baseline adds a run with E = inf, and this one has it already")
        experiments.append(experiment.without_communication())
    if command.dry_run:
        from fedrl.experiment.toml import to_toml

        print(to_toml(experiment), end="")
        for one in experiments:
            print(f"# {command.out / one.directory_name}")
        return 0
    execution: Execution = command.execution
    return execution.carry_out(lambda: begin(experiments, command.out, wave=execution.wave))


def command_with_experiment() -> Any:
    """The class of all arguments: those of an experiment, and what to do with it."""
    from fedrl.experiment.settings import Experiment

    @dataclass(frozen=True)
    class Command:
        """Train."""

        experiment: Annotated[tyro.conf.FlagConversionOff[Experiment], tyro.conf.arg(name="")]
        out: Path = Path("runs")
        """Folder for run directories; the run gets NAME-HASH below it."""
        baseline: bool = False
        """Also run without communication (E = inf, which gives Baseline too) and compare."""
        execution: Annotated[Execution, tyro.conf.arg(name="")] = field(default_factory=Execution)
        """How to carry it out."""
        allow_code: bool = False
        """Import Python code that the file names as module:Class: of files you trust only."""
        dry_run: bool = False
        """Print the experiment as TOML, and where it would go, and do nothing."""

    return Command


def _with_kinds(experiment: "Experiment", arguments: list[str]) -> tuple["Experiment", list[str]]:
    """Take `--learner NAME` and the like out of the arguments: which settings there are depends."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    for setting in KINDS:
        flags = {f"--{setting}", f"--{setting.replace('_', '-')}"}
        parser.add_argument(*flags, dest=setting, nargs="?", const="")
    chosen, arguments = parser.parse_known_args(arguments)
    changed: dict[str, Any] = {}
    for setting, group in KINDS.items():
        name, flag = getattr(chosen, setting), f"--{setting.replace('_', '-')}"
        if name is None:
            continue
        if not name:
            names = sorted(entry.name for entry in registry.entries(group))
            raise FedrlError(f"{flag} needs a name: one of {', '.join(names)}")
        kind = registry.load(group, name)
        try:
            family = changed.get("family", experiment.family)
            fitting = getattr(kind, "for_actions", None)  # of learners
            changed[setting] = fitting(family.continuous) if fitting else kind()
        except (TypeError, FedrlError) as error:
            own, arguments = _own(arguments, flag)
            if not own:
                raise FedrlError(
                    f"{flag} {name} has settings that must be given: give them as {flag}.SETTING, "
                    f"or in a TOML file that you name instead of the preset ({error})"
                ) from None
            # The kind has no defaults that the other arguments could change.
            changed[setting] = tyro.cli(kind, prog=f"fedrl run ... {flag} {name}", args=own)
    return replace(experiment, **changed), arguments


def _own(words: list[str], flag: str) -> tuple[list[str], list[str]]:
    """The settings of a flag, with their values and without its name; and all other words."""
    own: list[str] = []
    others: list[str] = []
    belongs = False
    for word in words:
        if word.startswith("--"):
            first, dot, rest = word.partition(".")
            belongs = bool(dot) and first.replace("_", "-") == flag
            word = f"--{rest}" if belongs else word
        (own if belongs else others).append(word)
    return own, others


def _start_from(name: str, *, allow_code: bool) -> "Experiment":
    """A preset, or what a file says."""
    from fedrl.experiment.presets import preset
    from fedrl.experiment.settings import read_experiment

    path = Path(name)
    if path.is_dir():
        raise FedrlError(_about_folder(path))
    if name in catalogue.TABULAR_PRESETS:
        raise FedrlError(
            f"{name} is for federations over a network only: `fedrl federation init DIR "
            f"--experiment {name}`, then `fedrl federation up DIR`"
        )
    if path.suffix == ".toml" or path.is_file():
        return read_experiment(path, allow_code=allow_code)
    return preset(name)


def _about_folder(path: Path) -> str:
    """Which command is meant by somebody who names a folder."""
    settings = path / "experiment.toml"
    if not settings.is_file():
        return f"{path} is a folder: name a preset (`fedrl list` shows them) or a TOML file"
    return (
        f"{path} is the folder of a run: `fedrl resume {path}` continues it, `fedrl report {path}` "
        f"shows it, and `fedrl run {settings}` begins the same again"
    )
