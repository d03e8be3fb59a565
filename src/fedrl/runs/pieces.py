"""A folder of finished pieces of work, safe against interruption at any moment.

`settings.json` says what the folder is for; `pieces/<part>/<start>-<stop>.npz` holds the results of
replicates start..stop-1 of a part. A piece appears under its name only when it is whole.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from fedrl.arguments import short
from fedrl.errors import FedrlError
from fedrl.files import (
    Arrays,
    locked,
    read_arrays,
    refuse_links,
    write_arrays,
    write_atomically,
)

SETTINGS = "settings.json"
PIECE = re.compile(r"(\d+)-(\d+)\.npz")


class Pieces:
    """The pieces of one run. Make one with `open`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: Path, settings: Mapping[str, Any]) -> "Pieces":
        """A new folder for these settings, or the one that an earlier run with them has left.

        Refuses, and changes nothing, if the folder belongs to other settings or to something else.
        """
        wanted = json.loads(json.dumps(settings))
        existing = path / SETTINGS
        try:
            path.mkdir(parents=True, exist_ok=True)
            # What a kill in the middle of the very first write has left.
            for stale in path.glob(f".{SETTINGS}.*"):
                stale.unlink()
            if existing.exists():
                _refuse_other_settings(existing, wanted)
                refuse_links(path)
            elif any(path.iterdir()):
                raise FedrlError(
                    f"--out {path} is not empty and has no {SETTINGS}, so it is not a folder of "
                    "ours: name a new folder"
                )
            else:
                write_atomically(existing, (json.dumps(wanted, indent=2) + "\n").encode())
            if not os.access(path, os.W_OK):
                raise PermissionError(13, os.strerror(13))
        except FileExistsError:
            raise FedrlError(f"--out {path} is a file: name a folder") from None
        except OSError as error:
            raise FedrlError(
                f"--out {path} cannot be written ({error.strerror}): name a folder you may write to"
            ) from None
        return cls(path)

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes out while working in the folder."""
        return locked(self.path)

    def save(self, part: str, start: int, stop: int, arrays: Arrays) -> None:
        """Keep the results of replicates start..stop-1."""
        folder = self.path / "pieces" / part
        folder.mkdir(parents=True, exist_ok=True)
        write_arrays(folder / f"{start:08d}-{stop:08d}.npz", arrays)

    def pieces(self, part: str) -> list[tuple[int, int, Path]]:
        """(start, stop, file) of what is done, in order."""
        folder = self.path / "pieces" / part
        if not folder.is_dir():
            return []
        found = ((PIECE.fullmatch(file.name), file) for file in folder.iterdir())
        return sorted((int(name[1]), int(name[2]), file) for name, file in found if name)

    def missing(self, part: str, total: int, size: int) -> Iterator[tuple[int, int]]:
        """(start, stop) of what is left of replicates 0..total-1, in pieces of at most `size`."""
        done = 0
        for start, stop, _ in [*self.pieces(part), (total, total, None)]:
            for first in range(done, start, size):
                yield first, min(first + size, start)
            done = max(done, stop)

    def load(
        self, part: str, total: int, fits: Callable[[Arrays, int], bool] = lambda arrays, n: True
    ) -> list[Arrays]:
        """The pieces of a part, in order; refused unless they make up replicates 0..total-1.

        `fits` tells whether arrays can be the results of so many replicates.
        """
        loaded = []
        done = 0
        for start, stop, file in self.pieces(part):
            if start != done or stop > total:
                raise FedrlError(
                    f"{file} does not continue the pieces before it, which end at {done}: delete "
                    f"{file.parent} and run the same command again"
                )
            done = stop
            try:
                arrays = read_arrays(file)
                if not fits(arrays, stop - start):
                    raise FedrlError(f"{file} is damaged")
            except FedrlError as error:
                raise FedrlError(f"{error}: delete it and run the same command again") from None
            loaded.append(arrays)
        return loaded


def _refuse_other_settings(file: Path, wanted: dict[str, Any]) -> None:
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise FedrlError(f"{file} does not hold settings of ours: name another folder with --out")
    missing = object()
    for name in (*wanted, *found):
        if found.get(name, missing) != wanted.get(name, missing):
            raise FedrlError(
                f"--out {file.parent} holds results with {name} = {short(found.get(name))}, this "
                f"command has {name} = {short(wanted.get(name))}: name another folder, or use the "
                "same settings to continue"
            )
