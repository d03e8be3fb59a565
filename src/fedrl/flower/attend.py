"""`fedrl agent`: an agent's worker and its SuperNode, on the agent's machine."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from fedrl.errors import FedrlError
from fedrl.experiment.files import locked
from fedrl.experiment.toml import read_settings
from fedrl.flower.preloaded import PROGRAM, write_shim
from fedrl.flower.processes import (
    Descendants,
    environment,
    free_port,
    program,
    start,
    stop,
    stop_at_last,
    until_told,
)
from fedrl.flower.settings import AGENT, FINISHED, STATE, AgentSettings, Folder

# Seconds before something that ended is started again: at first, and at most.
SOONEST, LATEST = 0.5, 10.0
WORKER_LOG, PRELOADED_LOG, NODE_LOG = "worker.log", "preloaded.log", "supernode.log"
# How a worker ends that its settings do not let work.
REFUSED = 78


class _Kept:
    """A program that is started again when it ends, later each time."""

    def __init__(
        self,
        name: str,
        log: Path,
        begin: Callable[[], "subprocess.Popen[bytes]"],
        helpers: Sequence[str] = (),
    ) -> None:
        """`helpers`: programs that it starts, cannot do without, and does not look after."""
        self._name, self._log, self._begin, self._helpers = name, log, begin, helpers
        self._start()
        self._pause = SOONEST

    def _start(self) -> None:
        self.process = self._begin()
        self._below = Descendants(self.process, self._helpers)
        self._started = time.monotonic()

    def look(self, tell: Callable[[str], None]) -> None:
        """Start the program again if it, or one of its helpers, has ended."""
        if self.process.poll() is None:
            ended = self._below.ended()
            if ended is None:
                return
            tell(f"{ended} of {self._name} has ended")
            stop(self.process)
        if self.process.returncode == REFUSED:
            raise FedrlError(self._log.read_text().strip().splitlines()[-1])
        lasted = time.monotonic() - self._started
        if lasted < self._pause:
            return
        self._pause = SOONEST if lasted > LATEST else min(2 * self._pause, LATEST)
        tell(f"{self._name} has ended ({self.process.returncode}); starting it again")
        stop(self.process)
        self._start()


def attend(folder: Folder, number: int, tell: Callable[[str], None], *, warm: bool = True) -> None:
    """Run an agent until told to stop; `warm` keeps its programs in a process of its own."""
    path = folder.agent(number).resolve()
    if not (path / AGENT).is_file():
        raise FedrlError(
            f"{path} is not the folder of an agent: copy agents/{number} of the federation there"
        )
    settings = read_settings(AgentSettings, path / AGENT)
    if settings.id != number:
        raise FedrlError(f"{path / AGENT} is of agent {settings.id}, not {number}")
    with until_told(), locked(path):
        if not warm:
            _refuse_what_cannot_work(path)
        kept: list[_Kept] = []
        try:
            if warm:
                kept.append(_Kept("the worker", path / WORKER_LOG, lambda: _worker(path)))
                log = path / PRELOADED_LOG
                kept.append(_Kept("the preloaded ClientApp", log, lambda: _preloaded(path)))
            log = path / NODE_LOG
            node = partial(_supernode, path, settings, warm)
            kept.append(_Kept("the SuperNode", log, node, helpers=("flower-superexec",)))
            tell(f"agent {number} is connecting to {settings.server}; logs in {path}")
            finished = False
            while True:
                for one in kept:
                    one.look(tell)
                before, finished = finished, (path / STATE / FINISHED).exists()
                if finished and not before:
                    tell(
                        f"agent {number} has answered the last evaluation: its training is "
                        "finished. It stays, should the server ask again; Ctrl-C stops it"
                    )
                time.sleep(0.2)
        finally:
            stop_at_last(*(one.process for one in kept))


def _refuse_what_cannot_work(path: Path) -> None:
    """Settings that cannot be carried out are said here, where their owner looks."""
    command = [sys.executable, "-m", "fedrl.flower.worker", str(path), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True)
    if checked.returncode:
        raise FedrlError(checked.stderr.strip())


def _worker(path: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "fedrl.flower.worker", str(path)]
    return start(command, path / WORKER_LOG)


def _preloaded(path: Path) -> "subprocess.Popen[bytes]":
    return start([sys.executable, "-m", "fedrl.flower.preloaded", str(path)], path / PRELOADED_LOG)


def _supernode(path: Path, settings: AgentSettings, warm: bool) -> "subprocess.Popen[bytes]":
    home = path / "flower"
    home.mkdir(exist_ok=True)
    env = environment(home)
    if warm:
        shim = write_shim(path, program(PROGRAM))
        env["PATH"] = f"{shim}{os.pathsep}{env['PATH']}"
    command = [
        *(sys.executable, "-m", "fedrl.flower.supernode"),
        "--superlink",
        settings.server,
        "--root-certificates",
        str(path / "ca.pem"),
        "--auth-supernode-private-key",
        str(path / "agent.key"),
        "--node-config",
        f"agent={json.dumps(str(path))}",
        "--port",
        str(free_port()),
    ]
    return start(command, path / NODE_LOG, env)
