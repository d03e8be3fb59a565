"""Telling trackers about a run: what is recorded already, then each evaluation as it comes.

Trackers look on: whatever happens to one of them, the run goes on without it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

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
    watching = _Watching(directory, trackers, warn)
    try:
        watching.begin(say)
        # An earlier process may have been killed before it told what it had recorded.
        watching.tell(directory.metrics_rows())
        yield watching.tell
    finally:
        watching.finish()


class _Watching:
    """The trackers that have not failed."""

    def __init__(self, directory: RunDirectory, trackers: Mapping[str, Tracker], warn: Say) -> None:
        self._directory, self._trackers, self._warn = directory, dict(trackers), warn

    def begin(self, say: Say) -> None:
        folder = self._directory.path / FOLDER
        folder.mkdir(exist_ok=True)
        settings = flat(self._directory.experiment)
        run = TrackedRun(self._directory.path, folder, kept_name(folder / "key"), settings)
        self._each(lambda tracker: say(f"tracked: {tracker.begin(run)}"))

    def tell(self, rows: str) -> None:
        for updates, values in evaluations(rows) if self._trackers else ():
            self._log(updates, values)

    def finish(self) -> None:
        complete = self._directory.finished
        self._each(lambda tracker: tracker.finish(complete=complete))

    def _log(self, updates: int, values: Mapping[str, float]) -> None:
        self._each(lambda tracker: tracker.log(updates, values))

    def _each(self, do: Callable[[Tracker], None]) -> None:
        """One after the other; who fails is left out from then on."""
        for name, tracker in list(self._trackers.items()):
            try:
                do(tracker)
            except Exception as error:
                del self._trackers[name]
                with suppress(Exception):
                    tracker.finish(complete=False)
                self._warn(
                    f"no longer tracked with {name} ({type(error).__name__}: {error}): "
                    f"`fedrl track {self._directory.path} --to {name}` makes up for it"
                )
