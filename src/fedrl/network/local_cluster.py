"""`fedrl federation up | status | down`: server and agents together on this machine."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from fedrl.errors import FedrlError
from fedrl.files import write_atomically
from fedrl.network.deployment import Folder
from fedrl.network.processes import GRACE, PATIENCE, runs, signal_group, start, until
from fedrl.network.serve import NODES, read_json

PROCESSES = "processes.json"


def up(folder: Folder, track: Sequence[str] = ()) -> None:
    """Start the server, with trackers, and all agents; they go on when we end."""
    running = _running(folder)
    if running:
        raise FedrlError(
            f"{', '.join(sorted(running))} of {folder.path} run already: "
            f"`fedrl federation down {folder.path}` stops them"
        )
    agents, expected = folder.agents, folder.experiment().agents
    if agents != list(range(expected)):
        raise FedrlError(f"{folder.path} has agents {agents}, the experiment has {expected}")
    nodes = folder.server / NODES
    for of_before in (folder.status, nodes):
        of_before.unlink(missing_ok=True)
    started: dict[str, dict[str, Any]] = {}

    def begin(name: str, *command: str) -> subprocess.Popen[bytes]:
        arguments = ["-m", "fedrl", *command]
        process = start([sys.executable, *arguments], _log(folder, name), outlives=True)
        started[name] = {"pid": process.pid, "arguments": arguments}
        # After each one: whatever happens now, `down` finds what runs.
        write_atomically(folder.path / PROCESSES, json.dumps(started).encode())
        return process

    try:
        tracking = ["--track", *track] if track else []
        server = begin("server", "server", str(folder.path), *tracking)
        # Agents that come before they are known are turned away, and try again for long.
        until(lambda: nodes.exists() or server.poll() is not None, PATIENCE)
        if server.poll() is not None:
            raise FedrlError(f"the server has ended: {last_words(folder)}")
        for number in agents:
            begin(f"agent {number}", "agent", str(folder.path), "--id", str(number))
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
        until(lambda: not _running(folder), 2 * GRACE)
    (folder.path / PROCESSES).unlink(missing_ok=True)
    return sorted(running)


def status(folder: Folder) -> dict[str, Any]:
    """What is known of a training, and what runs of it on this machine."""
    known = read_json(folder.status) or {"state": "not begun"}
    running = _running(folder)
    gone = [name for name in _started(folder) if name not in ("server", *running)]
    ended = {name: last_words(folder, name) for name in gone}
    return {**known, "processes": sorted(running), "ended": ended}


def _started(folder: Folder) -> dict[str, dict[str, Any]]:
    """Everything that `up` has started."""
    return read_json(folder.path / PROCESSES) or {}


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
