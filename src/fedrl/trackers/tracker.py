"""What a tracker is."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

Setting = bool | int | float | str


@dataclass(frozen=True)
class TrackedRun:
    """A run, as far as trackers have to know it."""

    path: Path
    """Its folder."""
    folder: Path
    """Where trackers keep what they have on this machine."""
    key: str
    """A name that no other run has, and that it keeps."""
    settings: Mapping[str, Setting]
    """Every setting of the experiment under its full name."""

    @property
    def name(self) -> str:
        return self.path.name


class Tracker(Protocol):
    """Somewhere that shows how runs go.

    A run that goes on after a kill tells everything again, so a tracker has to know what it has. It
    looks that up where its numbers are, if it can: a note of our own may be wrong after a kill.
    """

    def begin(self, run: TrackedRun) -> str:
        """Open the record of a run, new or as an earlier process left it; how to look at it."""

    def log(self, updates: int, values: Mapping[str, float]) -> None:
        """Keep an evaluation; what is there already is not kept twice."""

    def finish(self, *, complete: bool) -> None:
        """There is no more for now; whether the run came to its end."""
