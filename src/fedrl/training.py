"""Training from Python: an experiment in, a finished run out."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fedrl.arguments import of_kind
from fedrl.engine.divergence import OnDivergence
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.experiment.toml import about_tables, read_settings, table_of
from fedrl.files import read_text
from fedrl.progress import new_console
from fedrl.runs.launch import begin, go_on
from fedrl.runs.run import Run
from fedrl.runs.run_directory import EXPERIMENT, RunDirectory
from fedrl.runs.tracking import tracked
from fedrl.tabular.experiment import TabularExperiment
from fedrl.trackers.available import trackers_named


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
    go_on(directory, new_console(quiet=not progress), trackers, wave, on_divergence)
    return Run(directory.path)


def resume(
    path: str | Path,
    *,
    progress: bool = True,
    track: Sequence[str] = (),
    wave: int | None = None,
    allow_code: bool = False,
    on_divergence: OnDivergence = "stop",
) -> Run:
    """Continue an interrupted run.

    `allow_code`: import modules that its settings name as `module:Class`.
    """
    trackers = trackers_named(track)
    directory = RunDirectory.open(Path(path), allow_code=allow_code)
    go_on(directory, new_console(quiet=not progress), trackers, wave, on_divergence)
    return Run(path)


def track(
    path: str | Path, to: Sequence[str], *, progress: bool = True, allow_code: bool = False
) -> None:
    """Tell trackers what a run has recorded so far, be it finished or not, or a federation's.

    `allow_code`: import modules that its settings name as `module:Class`.
    """
    trackers, folder = trackers_named(to), Path(path)
    file = folder / EXPERIMENT
    if file.is_file() and about_tables(table_of(read_text(file), str(file))):
        directory = RunDirectory(folder, read_settings(TabularExperiment, file))
        directory.verify(EXPERIMENT)
    else:
        directory = RunDirectory.open(folder, allow_code=allow_code)
    failed: list[str] = []
    say = partial(new_console(quiet=not progress).print, highlight=False, soft_wrap=True)
    with directory.locked(), tracked(directory, trackers, say=say, warn=failed.append):
        pass
    if failed:
        raise FedrlError("; ".join(failed))
