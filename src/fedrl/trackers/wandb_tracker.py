"""Weights & Biases; WANDB_MODE, WANDB_PROJECT, WANDB_DIR and others mean what they do there."""

import os
from collections.abc import Mapping
from pathlib import Path

import wandb

from fedrl.errors import FedrlError
from fedrl.files import read_text, write_atomically
from fedrl.trackers.tracker import TrackedRun


class WandbTracker:
    """A run of theirs for a run of ours, that is resumed with it."""

    def __init__(self) -> None:
        """Refused where nobody is logged in; on a terminal they ask."""
        self._run: wandb.Run | None = None
        self._mark: Path | None = None
        self._last = -1  # step that they have
        try:
            if wandb.setup().settings.mode == "online":
                wandb.login()
        except Exception as error:
            raise FedrlError(
                f"tracking with wandb: {error} WANDB_MODE=offline keeps everything on this machine"
            ) from None

    def begin(self, run: TrackedRun) -> str:
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fedrl"),
            # Not the name alone: a run that was deleted there cannot have its id again.
            id=f"{run.name}-{run.key[:8]}",
            name=run.name,
            config=dict(run.settings),
            dir=None if "WANDB_DIR" in os.environ else run.folder,
            resume="allow",
            reinit="create_new",  # a run of the caller's is none of our business
            settings=wandb.Settings(console="off", silent=True),
        )
        folder = Path(self._run.settings.sync_dir)
        if not self._run.offline:
            # Their server says where to go on.
            self._last = self._run.starting_step - 1
            return self._run.url or str(folder)
        # Parts of one run, each from a process, that they put together when they are synced. Until
        # a process ends they have numbers in memory, so our mark is of parts that came to an end.
        self._mark = folder.parent / f"{self._run.id}.last"
        if self._mark.exists():
            self._last = int(read_text(self._mark))
        # A part that begins in the same second as another has "-1" after the id, and so on.
        return f"wandb sync {folder.parent}/*-{self._run.id}*"

    def log(self, updates: int, values: Mapping[str, float]) -> None:
        assert self._run is not None
        if updates > self._last:
            # At once; otherwise it waits for the next one.
            self._run.log(dict(values), step=updates, commit=True)
            self._last = updates

    def finish(self, *, complete: bool) -> None:
        if self._run is not None:
            self._run.finish(exit_code=0 if complete else 1)
        if self._mark is not None:
            write_atomically(self._mark, f"{self._last}\n".encode())
