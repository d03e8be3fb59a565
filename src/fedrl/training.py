"""Training from Python: an experiment in, a finished run out."""

from pathlib import Path

from rich.console import Console

from fedrl.experiment.driver import carry_out
from fedrl.experiment.run import Run
from fedrl.experiment.run_directory import RunDirectory
from fedrl.experiment.settings import Experiment
from fedrl.report.run_progress import RunProgress, Silence


def train(experiment: Experiment, *, out: str | Path = "runs", progress: bool = True) -> Run:
    """Carry out an experiment in a folder of its own below `out`.

    A run that was interrupted is continued, one that is finished is returned as it is.
    """
    return go_on(RunDirectory.create(Path(out), experiment), Console(quiet=not progress))


def resume(path: str | Path, *, progress: bool = True) -> Run:
    """Continue an interrupted run."""
    return go_on(RunDirectory.open(Path(path)), Console(quiet=not progress))


def go_on(directory: RunDirectory, console: Console) -> Run:
    """Take a run to its end, telling how it goes."""
    if console.quiet:
        carry_out(directory, Silence())
    else:
        with RunProgress(directory.path.name, console) as progress:
            carry_out(directory, progress)
    return Run(directory.path)
