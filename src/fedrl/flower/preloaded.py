"""A process with Flower's ClientApp program in memory, from which each message gets a copy.

A SuperNode starts `flwr-clientapp` for every message, which imports for more than a second. In an
agent's folder `bin/flwr-clientapp` is found first: it asks this process for a copy of itself that
runs the very same program, and where there is none starts the real one.

`python -m fedrl.flower.preloaded FOLDER` is what `fedrl agent` starts.
"""

import json
import os
import shlex
import signal
import socket
import sys
import threading
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from fedrl.flower.socket import listen

PROGRAM = "flwr-clientapp"
SOCKET = "preloaded.sock"

# Runs without site-packages, so that it starts in some hundredths of a second.
_SHIM = """\
import json, os, socket, sys
folder, real = sys.argv[1:3]
try:
    os.chdir(folder)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect({socket!r})
except OSError:
    os.execv(real, [real, *sys.argv[3:]])
request = json.dumps([sys.argv[3:], dict(os.environ)]).encode() + b"\\n"
socket.send_fds(connection, [request[:1]], [1, 2])
connection.sendall(request[1:])
code = connection.recv(1)
sys.exit(code[0] if code else 1)
"""


def write_shim(folder: Path, real: str) -> Path:
    """The folder to put in front of PATH."""
    bin = folder / "bin"
    bin.mkdir(exist_ok=True)
    script = bin / "preloaded.py"
    script.write_text(_SHIM.format(socket=SOCKET))
    words = (sys.executable, "-S", "-E", str(script), str(folder), real)
    command = bin / PROGRAM
    command.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    command.chmod(0o755)
    return bin


def main(folder: Path) -> None:
    """Make copies until whoever started us is gone."""
    (entry,) = entry_points(group="console_scripts", name=PROGRAM)
    program = entry.load()
    import fedrl.flower.client_app  # noqa: F401 (what the program will load)

    listening = listen(folder, SOCKET)
    # Copies are reaped by the kernel; each one says itself how it ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    parent = os.getppid()
    listening.settimeout(0.5)
    print("ready", flush=True)
    while os.getppid() == parent:
        try:
            connection, _ = listening.accept()
        except TimeoutError:
            continue
        # No threads here, so that a copy is whole.
        if os.fork() == 0:
            listening.close()
            _run(program, connection)
        connection.close()


def _run(program: Any, connection: socket.socket) -> None:
    """In a copy: be the program that the shim was asked to be; does not return."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        connection.settimeout(None)
        first, (output, errors), _, _ = socket.recv_fds(connection, 1, 2)
        arguments, environment = _request(first, connection)
        os.dup2(output, 1)
        os.dup2(errors, 2)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = [PROGRAM, *arguments]
        _leave_with(connection)
        program()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            connection.sendall(bytes([code & 255]))
        finally:
            os._exit(code)


def _leave_with(connection: socket.socket) -> None:
    """Whoever kills the shim means us."""

    def watch() -> None:
        while True:
            try:
                if connection.recv(1, socket.MSG_PEEK) == b"":
                    # Without a word: what Flower's program would say on leaving, the SuperNode
                    # would take for an end, and wait for the answer for ever.
                    os._exit(1)
            except OSError:
                return
            time.sleep(0.5)

    threading.Thread(target=watch, daemon=True).start()


def _request(first: bytes, connection: socket.socket) -> tuple[list[str], dict[str, str]]:
    parts = [first]
    while not parts[-1].endswith(b"\n"):
        parts.append(connection.recv(1 << 16))
        if not parts[-1]:
            raise EOFError("the shim is gone")
    arguments, environment = json.loads(b"".join(parts))
    return arguments, environment


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
