"""`fedrl agent`: an agent's worker, SuperNode and SuperExec, on the agent's machine."""

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
from fedrl.network.supernode import HOME

# Seconds before something that ended is started again: at first, and at most.
SOONEST, LATEST = 0.5, 10.0
# How a worker ends that its settings do not let work.
REFUSED = 78


class _Kept:
    """A program that is started again when it ends, later each time."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name, self._folder, self._log = name, folder, folder / f"{name.lower()}.log"
        self._pause = SOONEST
        self._begin()

    def _begin(self) -> None:
        command = _ours(self._name.lower(), self._folder)
        self.process = start(command, self._log, environment(self._folder / HOME))
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
    with until_told(), locked(path):
        if not warm:
            _refuse_what_cannot_work(path)
        kept: list[_Kept] = []
        try:
            for name in (*(["worker"] if warm else []), "SuperNode", "SuperExec"):
                kept.append(_Kept(name, path))
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
