"""A contestant in a process of its own, with the memory of all the processes that it starts."""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

# Seconds between two looks at the memory, and after which a contestant has failed.
LOOK, PATIENCE = 0.25, 900.0
PAGE = os.sysconf("SC_PAGE_SIZE")


class Outcome(NamedTuple):
    """What a contestant said, or why it did not."""

    record: dict[str, Any]
    error: str
    peak: int
    """Bytes resident at once in all its processes; pages that they share count for each."""
    seconds: float


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    patience: float = PATIENCE,
) -> Outcome:
    """Run it to its end; nothing of it is left behind."""
    begun = time.perf_counter()
    # What the system says at the end includes what we had when it was begun.
    peak, ours = 0, _largest(resource.getrusage(resource.RUSAGE_SELF))
    # Files and not pipes: nobody reads while we wait.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
        )
        status: int | None = None
        try:
            while status is None and time.perf_counter() - begun < patience:
                peak = max(peak, resident(process.pid))
                time.sleep(LOOK)
                status, largest = ended(process, os.WNOHANG)
                peak = max(peak, largest if largest > ours else 0)
        finally:
            late = status is None
            if late:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                ended(process, 0)
        said, complained = text(out), text(err)
    seconds = time.perf_counter() - begun
    if late:
        return Outcome({}, f"not done after {patience:g} s", peak, seconds)
    if status:
        lines = complained.strip().splitlines() or [f"exit status {status}"]
        return Outcome({}, lines[-1], peak, seconds)
    try:
        return Outcome(json.loads(said.strip().splitlines()[-1]), "", peak, seconds)
    except (IndexError, ValueError):
        return Outcome({}, f"said {said[-200:]!r} and no record", peak, seconds)


def ended(process: "subprocess.Popen[bytes]", options: int) -> tuple[int | None, int]:
    """The exit status, if there is one, and the most that one of its processes had resident."""
    pid, status, usage = os.wait4(process.pid, options)
    if not pid:
        return None, 0
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, _largest(usage)


def _largest(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def text(file: Any) -> str:
    file.seek(0)
    found: str = file.read().decode(errors="replace")
    return found


def resident(root: int) -> int:
    """Bytes of a process and of all below it, now; 0 where there is no /proc."""
    parents: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(fields[1])].append(int(entry.name))
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        waiting += parents[pid]
        with suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    return total
