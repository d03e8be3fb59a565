"""Training from Python: an experiment in, a finished run out."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fedrl.arguments import of_kind
from fedrl.errors import FedrlError
from fedrl.experiment.divergence import OnDivergence
from fedrl.experiment.launch import begin, go_on
from fedrl.experiment.run import Run
from fedrl.experiment.run_directory import EXPERIMENT, RunDirectory
from fedrl.experiment.settings import Experiment
from fedrl.experiment.tracking import tracked
from fedrl.flower.experiments import read_experiment
from fedrl.trackers.registry import trackers_named


def train(
    experiment: Experiment,
    *,
    out: str | Path = "runs",
    progress: bool = True,
    track: Sequence[str] = (),
    wave: int | None = None,
    on_divergence: OnDivergence = "stop",
) -> Run:
    """Carry out an experiment in a folder of its own below `out`.

    A run that was interrupted is continued, one that is finished is returned as it is. `track`
    names where else it is to be seen: tensorboard, wandb, mlflow. `wave` says how many agents work
    side by side, which changes no result; chosen to fit the machine unless given.
    `on_divergence`: "stop" the run when a reward, a loss, a parameter or a return is not finite, or
    "continue", which changes no number.
    """
    of_kind("experiment", experiment, Experiment)
    trackers = trackers_named(track)
    (directory,) = begin([experiment], Path(out), wave=wave)
    go_on(directory, Console(quiet=not progress), trackers, wave, on_divergence)
    return Run(directory.path)


def resume(
    path: str | Path,
    *,
    progress: bool = True,
    track: Sequence[str] = (),
    wave: int | None = None,
    on_divergence: OnDivergence = "stop",
) -> Run:
    """Continue an interrupted run."""
    trackers = trackers_named(track)
    console = Console(quiet=not progress)
    go_on(RunDirectory.open(Path(path)), console, trackers, wave, on_divergence)
    return Run(path)


def track(path: str | Path, to: Sequence[str], *, progress: bool = True) -> None:
    """Tell trackers what a run has recorded so far, be it finished or not, or a federation's."""
    trackers, folder = trackers_named(to), Path(path)
    if not (folder / EXPERIMENT).is_file():
        RunDirectory.open(folder)  # says what is wrong with it
    directory = RunDirectory(folder, read_experiment(folder / EXPERIMENT))
    failed: list[str] = []
    say = Console(quiet=not progress, highlight=False, soft_wrap=True).print
    with directory.locked(), tracked(directory, trackers, say=say, warn=failed.append):
        pass
    if failed:
        raise FedrlError("; ".join(failed))
