"""The whole state of a run in one file, so that it can be continued to the last bit."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from fedrl.errors import FedrlError
from fedrl.experiment.files import write_atomically

FORMAT = 1
KEPT = 2
Array = np.ndarray[Any, Any]


def save(folder: Path, digest: str, leg: int, leaves: list[Array]) -> None:
    """Write the state after leg number `leg`, then drop all but the newest few."""
    folder.mkdir(exist_ok=True)
    names = [f"{i:04d}" for i in range(len(leaves))]
    about = json.dumps({"format": FORMAT, "experiment": digest, "leg": leg, "leaves": names})
    buffer = io.BytesIO()
    named = dict(zip(names, leaves, strict=True))
    np.savez(buffer, allow_pickle=False, about=np.array(about), **named)
    write_atomically(folder / f"{leg:08d}.npz", buffer.getbuffer())
    for old in checkpoints(folder)[:-KEPT]:
        old.unlink()


def checkpoints(folder: Path) -> list[Path]:
    """What is there, oldest first."""
    return sorted(folder.glob("[0-9]*.npz"))


def keep_last(folder: Path) -> None:
    """Drop all but the newest."""
    for old in checkpoints(folder)[:-1]:
        old.unlink()


def load(file: Path, digest: str) -> tuple[int, list[Array]]:
    """(leg, state) of a file; an error says why it cannot be used."""
    try:
        # Opened here: NumPy would leave a damaged file open.
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            about = json.loads(str(arrays["about"]))
            leaves = [arrays[name] for name in about["leaves"]]
        version, experiment, leg = about["format"], about["experiment"], int(about["leg"])
    except Exception as error:  # a damaged archive can fail in any of a dozen ways
        raise FedrlError(f"{file} is damaged or not a checkpoint ({error})") from None
    if version != FORMAT:
        raise FedrlError(f"{file} is a checkpoint of another version of fedrl")
    if experiment != digest:
        raise FedrlError(f"{file} belongs to another experiment ({experiment})")
    return leg, leaves
