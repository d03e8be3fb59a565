"""Between the process that takes a message and the agent's worker: a Unix socket."""

import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedrl.errors import FedrlError
from fedrl.network.messages import Answer, Instruction, Refusal, from_bytes, to_bytes

SOCKET = "worker.sock"
_LENGTH = struct.Struct(">Q")
# More than any model we know; a length beyond it is not ours.
_LARGEST = 1 << 34


def ask_worker(folder: Path, instruction: Instruction) -> Answer | Refusal | None:
    """What the worker answers; None if there is none, or it dies over it."""
    try:
        with _in(folder), socket.socket(socket.AF_UNIX) as connection:
            connection.connect(SOCKET)
            _send(connection, to_bytes(instruction))
            answer = from_bytes(_receive(connection))
    except (OSError, EOFError):
        return None
    assert not isinstance(answer, Instruction)
    return answer


def listen(folder: Path, name: str = SOCKET) -> socket.socket:
    """A socket that only the folder's owner can open; what an earlier process left is gone."""
    with _in(folder):
        Path(name).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            listening.bind(name)
        finally:
            os.umask(before)
    listening.listen()
    return listening


def serve(listening: socket.socket, answer: Callable[[Instruction], Answer]) -> None:
    """Answer one instruction after the other, for ever."""
    while True:
        connection, _ = listening.accept()
        with connection:
            try:
                asked = from_bytes(_receive(connection))
                assert isinstance(asked, Instruction)
                _send(connection, to_bytes(_answered(answer, asked)))
            except (OSError, EOFError, FedrlError):
                continue  # whoever asked is gone, or does not speak our language


def _answered(answer: Callable[[Instruction], Answer], asked: Instruction) -> Answer | Refusal:
    try:
        return answer(asked)
    except Exception as error:
        return Refusal(str(error) if isinstance(error, FedrlError) else repr(error))


@contextmanager
def _in(folder: Path) -> Iterator[None]:
    # The path of a socket has at most 107 characters, a folder's may have more.
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _send(connection: socket.socket, content: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(content)) + content)


def _receive(connection: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > _LARGEST:
        raise EOFError(f"a message of {length} bytes")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, length: int) -> bytes:
    parts = []
    while length:
        part = connection.recv(min(length, 1 << 20))
        if not part:
            raise EOFError("the connection has ended")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
