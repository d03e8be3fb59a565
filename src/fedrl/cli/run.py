"""`fedrl run`: a preset or a file, changed by arguments, carried out.

The arguments follow from the settings of the preset, so they can only be read once it is known.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from fedrl.cli.machines import Machines

if TYPE_CHECKING:
    from fedrl.experiment.settings import Experiment
    from fedrl.registry import Group

# Settings whose kind can be chosen by name, and where the names are.
KINDS: "dict[str, Group]" = {
    "family": "families",
    "learner": "learners",
    "aggregator": "aggregators",
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
    from fedrl.cli.runs import carry_out_and_report
    from fedrl.errors import FedrlError
    from fedrl.experiment.launch import begin
    from fedrl.experiment.settings import Experiment
    from fedrl.trackers.registry import trackers_named

    name, *rest = arguments
    default, rest = _with_kinds(_start_from(name), rest)

    @dataclass(frozen=True)
    class Command:
        experiment: Annotated[tyro.conf.FlagConversionOff[Experiment], tyro.conf.arg(name="")]
        out: Path = Path("runs")
        """Folder for run directories; the run gets NAME-HASH below it."""
        baseline: bool = False
        """Also run without communication (E = inf, which gives Baseline too) and compare."""
        track: tuple[str, ...] = ()
        """Show the run there, too: tensorboard, wandb, mlflow (extras of those names)."""
        on_divergence: Literal["stop", "continue"] = "stop"
        """What to do when a reward, a loss, a parameter or a return is not a finite number."""
        machines: Annotated[Machines, tyro.conf.arg(name="")] = field(default_factory=Machines)
        """Where the work is done."""
        dry_run: bool = False
        """Print the experiment as TOML, and where it would go, and do nothing."""

    try:
        command = tyro.cli(
            Command,
            prog=f"fedrl run {name}",
            description="Train. Every setting of the experiment can be given. `--learner NAME`, "
            "`--family NAME` and `--aggregator NAME` choose another kind (`fedrl list` shows "
            "them); its settings then follow.",
            args=rest,
            default=Command(experiment=default),
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
    trackers = [trackers_named(command.track) for _ in experiments]
    machines = command.machines
    with machines.together():
        directories = begin(experiments, command.out, wave=machines.wave)
        return carry_out_and_report(directories, trackers, machines.wave, command.on_divergence)


def _with_kinds(experiment: "Experiment", arguments: list[str]) -> tuple["Experiment", list[str]]:
    """Take `--learner NAME` and the like out of the arguments: which settings there are depends."""
    from dataclasses import replace

    from fedrl import registry
    from fedrl.errors import FedrlError

    changed: dict[str, Any] = {}
    for setting, group in KINDS.items():
        flag = f"--{setting}"
        words = [part for word in arguments for part in _split(word, flag)]
        if flag not in words:
            continue
        place = words.index(flag)
        if place + 1 == len(words) or words[place + 1].startswith("-"):
            names = sorted(entry.name for entry in registry.entries(group))
            raise FedrlError(f"{flag} needs a name: one of {', '.join(names)}")
        name = words[place + 1]
        kind = registry.load(group, name)
        try:
            family = changed.get("family", experiment.family)
            fitting = getattr(kind, "for_actions", None)  # of learners
            changed[setting] = fitting(family.continuous) if fitting else kind()
        except (TypeError, FedrlError) as error:
            raise FedrlError(
                f"{flag} {name} has settings that must be given: write them into a TOML file and "
                f"name that instead of the preset ({error})"
            ) from None
        arguments = words[:place] + words[place + 2 :]
    return replace(experiment, **changed), arguments


def _split(word: str, flag: str) -> list[str]:
    """`--flag=value` as two words."""
    return word.split("=", 1) if word.startswith(f"{flag}=") else [word]


def _start_from(name: str) -> "Experiment":
    """A preset, or what a file says."""
    from fedrl.experiment.presets import preset
    from fedrl.experiment.toml import read_experiment

    path = Path(name)
    return read_experiment(path) if path.suffix == ".toml" or path.is_file() else preset(name)
