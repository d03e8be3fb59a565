"""One run on two hosts: two processes of this machine, connected by JAX."""

import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

import fedrl
from fedrl.cli.main import main
from fedrl.runs.run import Run

SMALL = [
    *(
        "--agents",
        "4",
        "--seeds",
        "1",
        "--E",
        "50",
        "--held-out",
        "2",
        "--evaluation.episodes",
        "1",
    ),
    *("--learner.hidden", "8", "--learner.batch", "4", "--learner.replay", "100"),
]
SHORT = [*SMALL, "--updates", "200", "--evaluation.every", "100"]
LONG = [*SMALL, "--updates", "100000000", "--evaluation.every", "100000"]
# Sums over agents in another order, 200 updates.
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}


def free_address():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


def process(folder, name, *arguments):
    with (folder / name).open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "fedrl", *arguments], cwd=folder, stdout=log, stderr=log
        )


@pytest.fixture
def two_hosts(tmp_path):
    """Starts a run and a follower; whatever is left of them ends with the test."""
    started = []

    def start(*settings):
        address = free_address()
        together = ("--hosts", "2")
        leader = process(
            tmp_path, "leader.txt", "run", "cartpoles-dqnavg", *settings, *together,
            "--address", address,
        )  # fmt: skip
        follower = process(tmp_path, "follower.txt", "join", address, *together, "--host", "1")
        started.extend((leader, follower))
        return leader, follower

    yield start
    for one in started:
        one.kill()
        one.wait()


def the_run(folder):
    (path,) = (folder / "runs").iterdir()
    return path


@pytest.mark.network
def test_two_hosts_come_to_the_same_as_one(tmp_path, two_hosts):
    for host in two_hosts(*SHORT):
        assert host.wait(300) == 0, (tmp_path / "leader.txt").read_text()
    both = Run(the_run(tmp_path))
    alone = fedrl.train(both.experiment, out=tmp_path / "alone", progress=False)
    found, expected = both.metrics(), alone.metrics()
    pd.testing.assert_frame_equal(found.drop(columns="value"), expected.drop(columns="value"))
    np.testing.assert_allclose(found["value"], expected["value"], **TOLERANCE)
    assert "as host 1 of 2" in (tmp_path / "follower.txt").read_text()


@pytest.mark.network
def test_a_run_whose_leader_was_killed_goes_on_elsewhere(tmp_path, two_hosts):
    leader, follower = two_hosts(*LONG)
    deadline = time.monotonic() + 240
    while not list(tmp_path.glob("runs/*/checkpoints/*.npz")):
        assert time.monotonic() < deadline
        assert leader.poll() is None
        time.sleep(0.2)
    leader.kill()
    # Nobody leads any more: it does not wait for ever, and does not look as if all were well.
    assert follower.wait(240) != 0
    resumed = process(tmp_path, "resumed.txt", "resume", str(the_run(tmp_path)))
    deadline = time.monotonic() + 120
    while "% done" not in (tmp_path / "resumed.txt").read_text():
        assert time.monotonic() < deadline
        assert resumed.poll() is None
        time.sleep(0.2)
    resumed.send_signal(signal.SIGINT)
    assert resumed.wait(60) == 130
    assert "starting from the beginning" not in (tmp_path / "resumed.txt").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "cartpoles-dqnavg", "--hosts", "2"], "--hosts and --address go together"),
        (["run", "cartpoles-dqnavg", "--address", "a:1"], "--hosts and --address go together"),
        (
            ["run", "cartpoles-dqnavg", "--hosts", "2", "--address", "here"],
            "--address must be the first host's name and a free port of it, .*got 'here'",
        ),
        (["join", "here", "--hosts", "2", "--host", "1"], "--address must be .*got 'here'"),
        (["join", "a:1", "--hosts", "2", "--host", "2"], "host must be .* at most 1, got 2"),
        (["join", "a:1", "--hosts", "2", "--host", "0"], "host must be an integer of at least 1"),
        (["join", "a:1", "--hosts", "1", "--host", "1"], "hosts must be .* at least 2, got 1"),
    ],
)
def test_hosts_that_cannot_meet_are_told_why_before_they_try(
    tmp_path, monkeypatch, capsys, arguments, message
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not list(tmp_path.iterdir())
