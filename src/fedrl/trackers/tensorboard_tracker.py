"""TensorBoard: event files in the run's folder."""

import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from fedrl.trackers.tracker import TrackedRun


class TensorBoardTracker:
    """An evaluation is one record of an event file, so it is there whole or not at all."""

    def __init__(self) -> None:
        self._kept: set[int] = set()
        self._writer: EventFileWriter | None = None

    def begin(self, run: TrackedRun) -> str:
        folder = run.folder / "tensorboard"
        folder.mkdir(parents=True, exist_ok=True)
        files = sorted(folder.glob("*tfevents*"))
        self._kept = {step for file in files for step in _steps(file)}
        self._writer = EventFileWriter(str(folder))
        if not files:
            settings = hparams_pb(dict(run.settings), trial_id=run.key)
            self._add(Event(summary=Summary.FromString(settings.SerializeToString())))
        return f"tensorboard --logdir {run.path.parent}"

    def log(self, updates: int, values: Mapping[str, float]) -> None:
        if updates in self._kept:
            return
        numbers = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(Event(step=updates, summary=Summary(value=numbers)))
        self._kept.add(updates)

    def finish(self, *, complete: bool) -> None:
        if self._writer is not None:
            self._writer.close()

    def _add(self, event: Event) -> None:
        assert self._writer is not None
        event.wall_time = time.time()
        self._writer.add_event(event)
        # To be seen now, and not when there is enough of it.
        self._writer.flush()


def _steps(file: Path) -> set[int]:
    """Where in training there are numbers; a record that a kill has cut off is none."""
    events = LegacyEventFileLoader(str(file)).Load()
    return {
        event.step
        for event in events
        if any(v.HasField("simple_value") for v in event.summary.value)
    }
