"""Files that are there whole or not at all, and folders that one process works in at a time."""

import fcntl
import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from fedrl.errors import FedrlError

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
LOCK = ".lock"


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    """Write a file so that it is there whole or not at all, even after a power cut."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def kept_name(file: Path) -> str:
    """A name that nothing else has, given once and kept in a file."""
    if not file.exists():
        write_atomically(file, uuid4().hex.encode())
    return file.read_text().strip()


def write_arrays(path: Path, arrays: Arrays) -> None:
    """An npz file; its checksums tell when it is damaged."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    write_atomically(path, buffer.getbuffer())


def read_arrays(path: Path) -> Arrays:
    """What `write_arrays` wrote. A damaged file can fail in any of a dozen ways."""
    # Opened here: NumPy would leave a damaged file open.
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out while working in the folder."""
    with (folder / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FedrlError(
                f"another process is working in {folder}: wait for it, or work in another folder"
            ) from None
        yield
