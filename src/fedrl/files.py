"""Files that are there whole or not at all, and folders that one process works in at a time.

A folder may come from elsewhere, and a disk may fail: what is damaged is refused in one sentence,
and nothing is written through a link.
"""

import errno
import fcntl
import io
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import ZIP_STORED

import numpy as np

from fedrl.errors import FedrlError

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
LOCK = ".lock"
# Bytes of a file of settings, at most.
LONGEST_TEXT = 1 << 20


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    """Write a file so that it is there whole or not at all, even after a power cut."""
    try:
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
    except OSError as error:  # a full disk does not say which file it has no space for
        raise OSError(error.errno, error.strerror, str(path)) from None


def kept_name(file: Path) -> str:
    """A name that nothing else has, given once and kept in a file."""
    if not file.exists():
        write_atomically(file, uuid4().hex.encode())
    name = read_text(file).strip()
    if not (name.isascii() and name.isalnum()):
        raise FedrlError(f"{file} is damaged: delete it")
    return name


def read_text(path: Path) -> str:
    """A small text file."""
    try:
        with path.open("rb") as file:
            content = file.read(LONGEST_TEXT + 1)
        if len(content) > LONGEST_TEXT:
            raise FedrlError(f"cannot read {path}: it is longer than {LONGEST_TEXT:,} bytes")
        return content.decode()
    except OSError as error:
        raise FedrlError(f"cannot read {path}: {error}") from None
    except UnicodeDecodeError:
        raise FedrlError(f"cannot read {path}: it is not text in UTF-8") from None


def as_npz(arrays: Arrays) -> memoryview:
    """Arrays as the content of an npz file, always the same for the same arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getbuffer()


def write_arrays(path: Path, arrays: Arrays) -> None:
    """An npz file; its checksums tell when it is damaged."""
    write_atomically(path, as_npz(arrays))


def read_arrays(path: Path) -> Arrays:
    """What `write_arrays` wrote; anything else is refused."""
    # Opened here: NumPy would leave a damaged file open.
    with path.open("rb") as stream:
        try:
            with np.load(stream, allow_pickle=False) as arrays:
                members = arrays.zip.infolist()
                # We do not compress: what is larger inside than outside would fill the memory.
                if (
                    all(member.compress_type == ZIP_STORED for member in members)
                    and sum(member.file_size for member in members)
                    <= os.fstat(stream.fileno()).st_size
                ):
                    return {name: arrays[name] for name in arrays.files}
        except Exception:
            pass  # a damaged file fails in any of a dozen ways
    # What NumPy says is left out: among other things, how to load a file unsafely.
    raise FedrlError(f"{path} is damaged or not written by fedrl")


def checksum(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def refuse_links(folder: Path, tolerated: str = "") -> None:
    """Refuse a folder in which we could write elsewhere, or wait for ever.

    `tolerated`: a subfolder whose logs may be links to anywhere.
    """
    inside = os.path.realpath(folder)
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *files)):
            with suppress(FileNotFoundError):  # another process is at work
                mode = path.lstat().st_mode
                if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                    continue
                if not stat.S_ISLNK(mode):
                    raise FedrlError(f"{path} is neither a file nor a folder: remove it")
                log = tolerated and path.suffix == ".log" and folder / tolerated in path.parents
                if not log and not Path(os.path.realpath(path)).is_relative_to(inside):
                    raise FedrlError(
                        f"{path} is a link that leads out of {folder}, where fedrl neither reads "
                        "nor writes: remove it"
                    )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out while working in the folder."""
    path = folder / LOCK
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FedrlError(f"{path} is a link: remove it") from None
        raise
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FedrlError(
                f"another process is working in {folder}: wait for it, or work in another folder"
            ) from None
        yield
    finally:
        os.close(handle)
