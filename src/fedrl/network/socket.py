"""Between the process that takes a message and the agent's worker: a Unix socket."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Connection
from pathlib import Path

from flwr.app import RecordDict

from fedrl.errors import FedrlError
from fedrl.network.flower_records import asked, from_bytes, telling, to_bytes
from fedrl.network.messages import Answer, Instruction, Refusal

SOCKET = "worker.sock"
# Bytes of a message, at most: more than any model we know takes.
_LARGEST = 1 << 34


def ask_worker(folder: Path, instruction: RecordDict) -> RecordDict | None:
    """What the worker answers; None if there is none, or it dies over it."""
    try:
        with _in(folder), Client(SOCKET, "AF_UNIX") as connection:
            connection.send_bytes(to_bytes(instruction))
            return from_bytes(connection.recv_bytes(_LARGEST))
    except (OSError, EOFError):
        return None


def listen(folder: Path) -> socket.socket:
    """A socket that only the folder's owner can open; what an earlier process left is gone."""
    with _in(folder):
        Path(SOCKET).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            listening.bind(SOCKET)
        finally:
            os.umask(before)
    listening.listen()
    return listening


def serve(listening: socket.socket, answer: Callable[[Instruction], Answer]) -> None:
    """Answer one instruction after the other, for ever."""
    while True:
        accepted, _ = listening.accept()
        # Whoever asked may be gone, or not speak our language.
        with suppress(OSError, EOFError, FedrlError), Connection(accepted.detach()) as connection:
            instruction = asked(from_bytes(connection.recv_bytes(_LARGEST)))
            connection.send_bytes(to_bytes(telling(_answered(answer, instruction))))


def _answered(
    answer: Callable[[Instruction], Answer], instruction: Instruction
) -> Answer | Refusal:
    try:
        return answer(instruction)
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
