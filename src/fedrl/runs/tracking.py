"""Telling trackers about a run: what is recorded already, then each evaluation as it comes.

Trackers look on: whatever happens to one of them, the run goes on without it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from operator import methodcaller
from warnings import catch_warnings, simplefilter

from fedrl.experiment.toml import flat
from fedrl.files import kept_name
from fedrl.runs.run_directory import RunDirectory
from fedrl.runs.summary import evaluations
from fedrl.trackers.tracker import TrackedRun, Tracker

FOLDER = "trackers"

Say = Callable[[str], None]


@contextmanager
def tracked(
    directory: RunDirectory, trackers: Mapping[str, Tracker], *, say: Say, warn: Say
) -> Iterator[Say]:
    """Something to tell new lines of metrics to, while trackers look on."""
    if not trackers:
        yield lambda rows: None
        return
    watching = dict(trackers)

    def each(do: Callable[[Tracker], object]) -> None:
        for name, tracker in list(watching.items()):
            try:
                with catch_warnings():  # MLflow's database deprecates what MLflow does
                    simplefilter("ignore", DeprecationWarning)
                    do(tracker)
            except Exception as error:
                del watching[name]
                with suppress(Exception):
                    tracker.finish(complete=False)
                warn(
                    f"no longer tracked with {name} ({type(error).__name__}: {error}): "
                    f"`fedrl track {directory.path} --to {name}` makes up for it"
                )

    def tell(rows: str) -> None:
        for updates, values in evaluations(rows) if watching else ():
            each(methodcaller("log", updates, values))

    try:
        folder = directory.path / FOLDER
        folder.mkdir(exist_ok=True)
        settings = flat(directory.experiment)
        run = TrackedRun(directory.path, folder, kept_name(folder / "key"), settings)
        each(lambda tracker: say(f"tracked: {tracker.begin(run)}"))
        # An earlier process may have been killed before it told what it had recorded.
        tell(directory.metrics_rows())
        yield tell
    finally:
        each(methodcaller("finish", complete=directory.finished))
