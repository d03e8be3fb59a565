"""Federations of real processes on the loopback, of which nothing is left behind."""

import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from fedrl.network.certificates import header_of
from fedrl.network.deployment import Deployment
from fedrl.network.init import init
from fedrl.network.processes import free_port

# Seconds for anything that must happen; a busy machine takes its time.
PATIENCE = 180.0
MARK = "FEDRL_TEST_NETWORK"
# Before a command: should these tests be killed, it is told to end.
DYING_WITH_US = (
    *(sys.executable, "-S", "-E", "-c"),
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); os.execv(sys.argv[1], sys.argv[1:])",
)

_nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
with_nginx = pytest.mark.skipif(_nginx is None, reason="nginx is missing: scripts/install-nginx")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")


class Process:
    """What /proc tells of a process."""

    def __init__(self, pid):
        self.pid = int(pid)
        proc = Path(f"/proc/{pid}")
        self.command = proc.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        self.marks = proc.joinpath("environ").read_bytes()
        fields = proc.joinpath("stat").read_text().rpartition(")")[2].split()
        self.state, self.parent, self.session = fields[0], int(fields[1]), int(fields[3])

    def __repr__(self):
        return f"{self.pid} {self.command[:100]}"

    def send(self, number):
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def all_processes():
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            process = Process(entry.name)
            if process.state != "Z":
                yield process


def of_folder(folder):
    """All processes that have to do with a folder, and all that these have started."""
    everybody = {p.pid: p for p in all_processes()}
    text = str(folder).encode()
    found = {p.pid for p in everybody.values() if text in p.marks or str(folder) in p.command}
    one = os.getpid()  # not us, nor those who have started us
    while one in everybody:
        found.discard(one)
        one = everybody.pop(one).parent
    while True:
        # nginx writes its title over its environment.
        more = {
            p.pid for p in everybody.values() if p.parent in found or p.session in found
        } - found
        if not more:
            return [everybody[pid] for pid in sorted(found)]
        found |= more


def until(condition, what, seconds=PATIENCE, every=0.05):
    """What a condition says, once it says something."""
    end = time.monotonic() + seconds
    while not (said := condition()):
        assert time.monotonic() < end, f"{what}: not within {seconds:g} s"
        time.sleep(every)
    return said


class Network:
    """One federation."""

    def __init__(self, path, experiment, *, env=None, **deployment):
        self.ports = (free_port(), free_port())
        how = {"port": self.ports[0], "control_port": self.ports[1]} | deployment
        self.deployment = Deployment(**how)
        self.experiment = experiment
        self.folder = init(path, experiment, self.deployment)
        self.path = path
        self.env = os.environ | {MARK: str(path)} | (env or {})
        self.started = {}

    def begin(self, *arguments, **options):
        """`fedrl` with arguments, in a process group of its own."""
        return subprocess.Popen(
            [*DYING_WITH_US, sys.executable, "-m", "fedrl", *map(str, arguments)],
            env=self.env,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            **options,
        )

    def call(self, *arguments):
        """The same, to its end: (exit status, what it said)."""
        (outcome,) = self.call_at_once(arguments)
        return outcome

    def call_at_once(self, *commands):
        """Several."""
        told = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        processes = [self.begin(*arguments, **told) for arguments in commands]
        output = [process.communicate(timeout=PATIENCE)[0] for process in processes]
        return [(p.returncode, said) for p, said in zip(processes, output, strict=True)]

    def server(self):
        self.folder.status.unlink(missing_ok=True)  # of an earlier one
        return self._start("server", self.folder.server, "server", self.path)

    def agent(self, number, *options):
        where = self.folder.agent(number)
        return self._start(f"agent {number}", where, "agent", self.path, "--id", number, *options)

    def _start(self, name, where, *arguments):
        with (where / "fedrl.log").open("ab") as log:
            self.started[name] = self.begin(*arguments, stdout=log, stderr=subprocess.STDOUT)
        return self.started[name]

    def status(self):
        try:
            return json.loads(self.folder.status.read_bytes())
        except (OSError, ValueError):
            return {"state": "not begun"}

    def round(self):
        """The round that is under way."""
        return self.status().get("round", 0)

    def wait_for_round(self, number):
        def there():
            told = self.status()
            assert told["state"] != "failed", told
            return told.get("round", 0) >= number

        until(there, f"round {number} of {self.path}")

    def wait(self, name="server", seconds=PATIENCE):
        """Until a program that was started ends by itself; its exit status."""
        return self.started[name].wait(seconds)

    def log(self, name, file="fedrl.log"):
        where = self.folder.server
        if name != "server":
            where = self.folder.agent(int(name.split()[1]))
        with suppress(OSError):
            return (where / file).read_text(errors="replace")
        return ""

    def processes(self, *words):
        """Those of this federation whose command line has all the words."""
        return [p for p in of_folder(self.path) if all(word in p.command for word in words)]

    def family(self, name):
        """A program that was started, and everything below it."""
        everybody = of_folder(self.path)
        family = {self.started[name].pid}
        while (
            more := {p.pid for p in everybody if p.parent in family or p.session in family} - family
        ):
            family |= more
        return [p for p in everybody if p.pid in family]

    def kill(self, name):
        """Nobody of a program and of all it has started has time to say goodbye."""
        family = self.family(name)
        for process in family:
            process.send(signal.SIGSTOP)  # or they would start each other again
        for process in family:
            process.send(signal.SIGKILL)
        self.started.pop(name).wait()
        until(lambda: not {p.pid for p in family} & {p.pid for p in all_processes()}, "their end")

    def model(self):
        """The arrays of the finished run."""
        with np.load(self.run / "models.npz") as file:
            return dict(file)

    @property
    def run(self):
        (run,) = self.folder.runs.iterdir()
        return run

    def end(self):
        """Stop everything, whatever it is; who did not leave when asked to."""
        for process in of_folder(self.path):
            process.send(signal.SIGCONT)
        for process in self.started.values():
            if process.poll() is None:
                process.terminate()
        for process in self.started.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
        return swept(self.path)


def swept(folder):
    """Kill what has to do with a folder; who that was."""
    time.sleep(0.3)
    with suppress(AssertionError):  # those who see that their parent is gone look twice a second
        until(lambda: not of_folder(folder), "the end", seconds=8)
    left = of_folder(folder)
    for _ in range(5):
        for process in of_folder(folder):
            process.send(signal.SIGKILL)
        time.sleep(0.1)
    return left


@contextmanager
def network(path, experiment, **options):
    """A federation whose processes are gone afterwards, and went when they were asked to."""
    one = Network(path, experiment, **options)
    try:
        yield one
    except BaseException:
        one.end()
        raise
    left = one.end()
    assert not left, f"these did not leave: {left}"
    for port in one.ports:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0, f"somebody listens on {port}"


PROTOBUF = {"Content-Type": "application/protobuf"}


def connection(training, port=None):
    context = ssl.create_default_context(cafile=training.folder.agent(0) / "ca.pem")
    return http.client.HTTPSConnection("127.0.0.1", port or training.ports[0], context=context)


def status_of(where, method, path, headers=PROTOBUF):
    where.request(method, path, b"", headers)
    response = where.getresponse()
    response.read()
    where.close()
    return response.status


def in_the_name_of(training, agent):
    """Headers that tell an agent from a stranger; others may know them, too: the key is public."""
    public = (training.folder.agent(agent) / "agent.pub").read_bytes()
    return {"flwr-public-key": header_of(public)}
