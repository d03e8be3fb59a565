"""The whole state of a run in one file, so that it can be continued to the last bit."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedrl.errors import FedrlError
from fedrl.files import Array, read_arrays, write_arrays

FORMAT = 3
# While running: should the newest be damaged, there is one before it.
KEPT = 2


def write(file: Path, digest: str, leaves: list[Array], **about: Any) -> None:
    """Write arrays of the experiment with this digest, and what else is to be known of them."""
    named = {f"{i:04d}": leaf for i, leaf in enumerate(leaves)}
    header = {"format": FORMAT, "experiment": digest, "leaves": list(named), **about}
    write_arrays(file, {"about": np.array(json.dumps(header)), **named})


def read(file: Path, digest: str) -> tuple[dict[str, Any], list[Array]]:
    """What `write` has written; an error says why it cannot be used."""
    arrays = read_arrays(file)
    try:
        about = json.loads(str(arrays["about"]))
        leaves = [arrays[name] for name in about["leaves"]]
        version, experiment = about["format"], about["experiment"]
    except Exception:
        raise FedrlError(f"{file} is damaged or no checkpoint") from None
    if version != FORMAT:
        raise FedrlError(f"{file} is a checkpoint of another version of fedrl")
    if experiment != digest:
        raise FedrlError(f"{file} belongs to another experiment ({experiment})")
    return about, leaves


def save(folder: Path, digest: str, leg: int, trained: int, leaves: list[Array]) -> None:
    """Write the state after leg number `leg`, then drop all but the newest few.

    `trained` says how far that is: should a plan ever have other legs, it is noticed.
    """
    folder.mkdir(exist_ok=True)
    write(folder / f"{leg:08d}.npz", digest, leaves, leg=leg, trained=trained)
    keep(folder, KEPT)


def checkpoints(folder: Path) -> list[Path]:
    """What is there, oldest first."""
    return sorted(folder.glob("[0-9]*.npz"))


def keep(folder: Path, count: int) -> None:
    """Drop all but the newest `count`."""
    for old in checkpoints(folder)[:-count]:
        old.unlink()


def load(file: Path, digest: str) -> tuple[int, int, list[Array]]:
    """(leg, trained, state) of a file; an error says why it cannot be used."""
    about, leaves = read(file, digest)
    return int(about["leg"]), int(about["trained"]), leaves
