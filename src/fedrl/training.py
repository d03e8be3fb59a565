"""Training from Python: an experiment in, a finished run out."""

from pathlib import Path

from rich.console import Console

from fedrl.arguments import of_kind
from fedrl.experiment.launch import begin, go_on
from fedrl.experiment.run import Run
from fedrl.experiment.run_directory import RunDirectory
from fedrl.experiment.settings import Experiment


def train(experiment: Experiment, *, out: str | Path = "runs", progress: bool = True) -> Run:
    """Carry out an experiment in a folder of its own below `out`.

    A run that was interrupted is continued, one that is finished is returned as it is.
    """
    of_kind("experiment", experiment, Experiment)
    (directory,) = begin([experiment], Path(out))
    go_on(directory, Console(quiet=not progress))
    return Run(directory.path)


def resume(path: str | Path, *, progress: bool = True) -> Run:
    """Continue an interrupted run."""
    go_on(RunDirectory.open(Path(path)), Console(quiet=not progress))
    return Run(path)
