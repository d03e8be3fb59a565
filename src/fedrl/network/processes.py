"""Starting the programs of a federation, and leaving none behind."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from fedrl.errors import FedrlError
from fedrl.network.deployment import LOOPBACK

# Seconds a program has to leave when asked to, and to begin its work.
GRACE, PATIENCE = 10.0, 120.0
PR_SET_PDEATHSIG = 1
# How we are told to end.
TOLD = (signal.SIGTERM, signal.SIGINT)


def where(name: str) -> str | None:
    """Where a program is: beside our Python, or on the path."""
    return shutil.which(name, path=_path())


def program(name: str) -> str:
    """Where a program of Flower's is."""
    if found := where(name):
        return found
    raise FedrlError(
        f"{name} is missing: a federation over a network needs Flower, "
        "`pip install 'fedrl[flower]'`"
    )


def _path() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def environment(home: Path) -> dict[str, str]:
    """For Flower's programs: nothing is reported to anybody, and tasks are looked for often."""
    return {
        **os.environ,
        "PATH": _path(),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
    }


def start(
    command: Sequence[str],
    log: Path,
    env: Mapping[str, str] | None = None,
    *,
    outlives: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a program whose output goes to a file; it dies with us unless it `outlives`."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
            preexec_fn=None if outlives else _die_with_parent,
        )


def _die_with_parent() -> None:
    """Between fork and exec: the kernel is to tell us when whoever started us is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def leave_with(pid: int) -> None:
    """End this process when another one is gone, whatever it is doing."""

    def watch() -> None:
        with suppress(psutil.NoSuchProcess):
            other = psutil.Process(pid)
            while runs(other):
                time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def runs(process: psutil.Process) -> bool:
    """Whether a process is still there and at work."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def started_by(process: subprocess.Popen[bytes], names: Sequence[str]) -> dict[str, psutil.Process]:
    """Programs by name that one of ours has started, directly or not."""
    found: dict[str, psutil.Process] = {}
    with suppress(psutil.NoSuchProcess):  # its owner notices
        for one in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.Error):
                # An interpreter and its script, or the program itself.
                words = {Path(word).name for word in one.cmdline()[:2]}
                found |= dict.fromkeys(words.intersection(names), one)
    return found


def name_of(process: subprocess.Popen[bytes]) -> str:
    """Of the program."""
    return Path(str(process.args[0])).name  # type: ignore[index]


def stop(*processes: subprocess.Popen[bytes]) -> None:
    """Ask programs and all they have started to leave; make them if they do not."""
    for process in processes:
        # Once: to Flower's programs a second time means at once.
        if process.poll() is None:
            signal_group(process.pid, signal.SIGTERM)
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        signal_group(process.pid, signal.SIGKILL)
        process.wait()


def stop_at_last(*processes: subprocess.Popen[bytes]) -> None:
    """The same as the last thing we do: nobody can interrupt it."""
    for number in TOLD:
        signal.signal(number, signal.SIG_IGN)
    stop(*processes)


def signal_group(pid: int, number: int) -> None:
    """Send a signal to a program and all that it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


@contextmanager
def until_told() -> Iterator[None]:
    """Turn a request to end into KeyboardInterrupt, so that what was started is stopped."""

    def leave(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {n: signal.signal(n, leave) for n in TOLD}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def free_port() -> int:
    """A port of the loopback that nobody uses at the moment."""
    with socket.create_server((LOOPBACK, 0)) as one:
        return int(one.getsockname()[1])


def refuse_if_taken(port: int, host: str, what: str) -> None:
    """Say so before anything is started."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((host, port))
        except OSError as error:
            raise FedrlError(
                f"port {port} is not free ({error.strerror}): stop what uses it, or choose "
                f"another {what} in federation.toml"
            ) from None


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until a program listens on the loopback."""

    def settled() -> bool:
        with suppress(OSError):
            socket.create_connection((LOOPBACK, port), 1).close()
            return True
        return process.poll() is not None

    if not until(settled, PATIENCE):
        raise FedrlError(f"nothing listens on port {port} after {PATIENCE:g} s: see {log}")
    if process.poll() is not None:
        raise FedrlError(f"{name_of(process)} ended at once: see {log}")


def until(condition: Callable[[], bool], patience: float) -> bool:
    """Wait for something; whether it came in so many seconds."""
    end = time.monotonic() + patience
    while not (there := condition()) and time.monotonic() < end:
        time.sleep(0.1)
    return there
