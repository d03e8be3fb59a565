"""Weights & Biases; WANDB_MODE, WANDB_PROJECT, WANDB_DIR and others mean what they do there."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

import wandb

from fedrl.errors import FedrlError
from fedrl.trackers.tracker import TrackedRun
from fedrl.trackers.wandb_log import ended, histories

# Seconds until a file that was finished is written, at most, and between two looks at it.
PATIENCE, POLL = 10.0, 0.02


class WandbTracker:
    """A run of theirs for a run of ours, that is resumed with it."""

    def __init__(self) -> None:
        """Refused where nobody is logged in; on a terminal they ask."""
        self._run: wandb.Run | None = None
        self._file: Path | None = None
        self._kept: set[int] = set()
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
        if self._run.offline:
            # Parts of one run, each from a process, that they put together when they are synced.
            # A part that begins in the same second as another has "-1" after the id, and so on.
            parts, name = f"*-{self._run.id}*", f"run-{self._run.id}.wandb"
            self._file = folder / name
            files = folder.parent.glob(f"{parts}/{name}")
            self._kept = {step for file in files for step, _ in histories(file)}
            return f"wandb sync {folder.parent / parts}"
        # Their server says where to go on.
        self._kept = set(range(self._run.starting_step))
        return self._run.url or str(folder)

    def log(self, updates: int, values: Mapping[str, float]) -> None:
        assert self._run is not None
        if updates not in self._kept:
            # At once; otherwise it waits for the next one.
            self._run.log(dict(values), step=updates, commit=True)
            self._kept.add(updates)

    def finish(self, *, complete: bool) -> None:
        if self._run is not None:
            self._run.finish(exit_code=0 if complete else 1)
        if self._file is not None:
            # Their process may still be writing, and whoever goes on reads what is there.
            until = time.monotonic() + PATIENCE
            while not ended(self._file) and time.monotonic() < until:
                time.sleep(POLL)
