"""`fedrl federation up | status | down`: server and agents together on this machine."""

import json
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from fedrl.errors import FedrlError
from fedrl.files import write_atomically
from fedrl.network.deployment import Folder
from fedrl.network.processes import GRACE, runs, signal_group, start
from fedrl.network.serve import NODES, PATIENCE, read_status

PROCESSES = "processes.json"


def up(folder: Folder, track: Sequence[str] = ()) -> None:
    """Start the server, with trackers, and all agents; they go on when we end."""
    running = _running(folder)
    if running:
        raise FedrlError(
            f"{', '.join(sorted(running))} of {folder.path} run already: "
            f"`fedrl federation down {folder.path}` stops them"
        )
    agents = folder.agents
    expected = folder.experiment().agents
    if agents != list(range(expected)):
        raise FedrlError(f"{folder.path} has agents {agents}, the experiment has {expected}")
    for of_before in (folder.status, folder.server / NODES):
        of_before.unlink(missing_ok=True)
    tracking = ["--track", *track] if track else []
    commands = {"server": ["server", str(folder.path), *tracking]}
    commands |= {f"agent {i}": ["agent", str(folder.path), "--id", str(i)] for i in agents}
    started: dict[str, dict[str, Any]] = {}
    try:
        for name, arguments in commands.items():
            arguments = ["-m", "fedrl", *arguments]
            process = start([sys.executable, *arguments], _log(folder, name), outlives=True)
            started[name] = {"pid": process.pid, "arguments": arguments}
            # After each one: whatever happens now, `down` finds what runs.
            write_atomically(folder.path / PROCESSES, json.dumps(started).encode())
            if name == "server":
                # Agents that come before they are known are turned away, and try again for long.
                until = time.monotonic() + PATIENCE
                registered = folder.server / NODES
                while not registered.exists() and process.poll() is None:
                    if time.monotonic() > until:
                        break
                    time.sleep(0.2)
                if process.poll() is not None:
                    raise FedrlError(f"the server has ended: {last_words(folder, name)}")
    except BaseException:
        down(folder)
        raise


def _log(folder: Folder, name: str) -> Path:
    where = folder.server if name == "server" else folder.agent(int(name.removeprefix("agent ")))
    return where / "fedrl.log"


def last_words(folder: Folder, name: str = "server") -> str:
    """What a program that `up` has started said at last."""
    log = _log(folder, name)
    lines = log.read_text("utf-8").strip().splitlines() if log.exists() else []
    return lines[-1].removeprefix("fedrl: ") if lines else "without a word"


def down(folder: Folder) -> list[str]:
    """Stop what `up` has started; the names of what was running."""
    running = _running(folder)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in running.values():
            signal_group(pid, number)
        until = time.monotonic() + 2 * GRACE
        while _running(folder) and time.monotonic() < until:
            time.sleep(0.1)
    (folder.path / PROCESSES).unlink(missing_ok=True)
    return sorted(running)


def status(folder: Folder) -> dict[str, Any]:
    """What is known of a training, and what runs of it on this machine."""
    known = read_status(folder) or {"state": "not begun"}
    running = _running(folder)
    gone = [name for name in _started(folder) if name != "server" and name not in running]
    ended = {name: last_words(folder, name) for name in gone}
    return {**known, "processes": sorted(running), "ended": ended}


def _started(folder: Folder) -> dict[str, dict[str, Any]]:
    """Everything that `up` has started."""
    try:
        started = json.loads((folder.path / PROCESSES).read_bytes())
    except (OSError, ValueError):
        return {}
    return started if isinstance(started, dict) else {}


def _running(folder: Folder) -> dict[str, int]:
    """What `up` has started and still runs, by name."""
    running = {}
    for name, one in _started(folder).items():
        with suppress(psutil.Error):
            process = psutil.Process(one["pid"])
            # Numbers of processes are used again.
            if runs(process) and process.cmdline()[1:] == one.get("arguments"):
                running[name] = one["pid"]
    return running
