"""`fedrl agent`: an agent's worker, SuperNode and SuperExec, on the agent's machine."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fedrl.errors import FedrlError
from fedrl.experiment.toml import read_settings
from fedrl.files import locked
from fedrl.network.deployment import AGENT, FINISHED, STATE, AgentSettings, Folder
from fedrl.network.processes import environment, start, stop, stop_at_last, until_told
from fedrl.network.runtime import HOME, renew

# Seconds before something that ended is started again: at first, and at most.
SOONEST, LATEST = 0.5, 10.0
# How a worker ends that its settings do not let work.
REFUSED = 78


class _Kept:
    """A program that is started again when it ends, later each time."""

    def __init__(self, name: str, folder: Path, command: Callable[[], list[str]]) -> None:
        """`command` is asked for at every start."""
        self._name, self._command = name, command
        self._log, self._env = folder / f"{name.lower()}.log", environment(folder / HOME)
        self._pause = SOONEST
        self._begin()

    def _begin(self) -> None:
        self.process = start(self._command(), self._log, self._env)
        self._started = time.monotonic()

    def look(self, tell: Callable[[str], None]) -> None:
        if self.process.poll() is None:
            return
        if self.process.returncode == REFUSED:
            raise FedrlError(self._log.read_text().strip().splitlines()[-1])
        lasted = time.monotonic() - self._started
        if lasted < self._pause:
            return
        self._pause = SOONEST if lasted > LATEST else min(2 * self._pause, LATEST)
        tell(f"the {self._name} has ended ({self.process.returncode}); starting it again")
        stop(self.process)
        self._begin()


def attend(folder: Folder, number: int, tell: Callable[[str], None], *, warm: bool = True) -> None:
    """Run an agent until told to stop; `warm` keeps its experiment in memory between rounds."""
    path = folder.agent(number).resolve()
    if not (path / AGENT).is_file():
        raise FedrlError(
            f"{path} is not the folder of an agent: copy agents/{number} of the federation there"
        )
    settings = read_settings(AgentSettings, path / AGENT)
    if settings.id != number:
        raise FedrlError(f"{path / AGENT} is of agent {settings.id}, not {number}")
    commands: dict[str, Callable[[], list[str]]] = {
        "worker": lambda: _ours("worker", path),
        "SuperNode": lambda: _supernode(path, settings),
        "SuperExec": lambda: _ours("superexec", path),
    }
    with until_told(), locked(path):
        if not warm:
            del commands["worker"]
            _refuse_what_cannot_work(path)
        kept: list[_Kept] = []
        try:
            for name, command in commands.items():
                kept.append(_Kept(name, path, command))
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
    checked = subprocess.run([*_ours("worker", path), "--check"], capture_output=True, text=True)
    if checked.returncode:
        raise FedrlError(checked.stderr.strip())


def _ours(module: str, *arguments: object) -> list[str]:
    """The command of a program of ours."""
    return [sys.executable, "-m", f"fedrl.network.{module}", *map(str, arguments)]


def _supernode(path: Path, settings: AgentSettings) -> list[str]:
    """With a new port and a new secret at every start."""
    (path / HOME).mkdir(exist_ok=True)
    return _ours(
        *("supernode", "--superlink", settings.server, "--root-certificates", path / "ca.pem"),
        *("--auth-supernode-private-key", path / "agent.key"),
        *("--node-config", f"agent={json.dumps(str(path))}", *renew(path)),
    )
