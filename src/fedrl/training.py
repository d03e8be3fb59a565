"""Training from Python: an experiment in, a finished run out."""

from pathlib import Path

from rich.console import Console

from fedrl.arguments import of_kind
from fedrl.experiment.driver import carry_out
from fedrl.experiment.memory import refuse_what_does_not_fit
from fedrl.experiment.run import Run
from fedrl.experiment.run_directory import RunDirectory
from fedrl.experiment.settings import Experiment
from fedrl.learners.replay import row_bytes
from fedrl.report.run_progress import RunProgress, Silence


def train(experiment: Experiment, *, out: str | Path = "runs", progress: bool = True) -> Run:
    """Carry out an experiment in a folder of its own below `out`.

    A run that was interrupted is continued, one that is finished is returned as it is.
    """
    of_kind("experiment", experiment, Experiment)
    (directory,) = begin([experiment], Path(out))
    return go_on(directory, Console(quiet=not progress))


def resume(path: str | Path, *, progress: bool = True) -> Run:
    """Continue an interrupted run."""
    return go_on(RunDirectory.open(Path(path)), Console(quiet=not progress))


def begin(experiments: list[Experiment], out: Path) -> list[RunDirectory]:
    """Their folders; none is made if one of them cannot be carried out here."""
    for experiment in experiments:
        refuse_what_does_not_fit(experiment)
    return [RunDirectory.create(out, experiment) for experiment in experiments]


def in_words(experiment: Experiment) -> str:
    """What is about to be done, for people."""
    E = f"E = {int(experiment.E)}" if experiment.communicates else "no communication"
    rows = experiment.agents * experiment.seeds * experiment.learner.replay
    megabytes = rows * row_bytes(*experiment.family.remembered) / 1e6
    return (
        f"{experiment.name}: {experiment.agents} agents x {experiment.seeds} seeds, "
        f"{experiment.updates:,} {experiment.unit} each, {E}; replay {megabytes:,.0f} MB"
    )


def go_on(directory: RunDirectory, console: Console) -> Run:
    """Take a run to its end, telling how it goes."""
    if console.quiet or directory.finished:
        carry_out(directory, Silence())
    else:
        console.print(in_words(directory.experiment), highlight=False, soft_wrap=True)
        console.print(f"results: {directory.path}", highlight=False, soft_wrap=True)
        with RunProgress(directory.path.name, console) as progress:
            carry_out(directory, progress)
    return Run(directory.path)
