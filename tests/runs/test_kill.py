"""Processes that are really killed: what they leave behind is continued to the last bit."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

import fedrl
from fedrl.experiment.settings import Evaluation
from fedrl.experiment.toml import to_toml
from tiny import TINY, results

# Seconds of training: a few hundred legs of a few milliseconds.
EXPERIMENT = replace(TINY, name="killed", updates=260_000, evaluation=Evaluation(800, 1))


@pytest.fixture(scope="module")
def begin(tmp_path_factory):
    """Starts `fedrl` with arguments; what one process compiled is there for the next."""
    compiled = tmp_path_factory.mktemp("compiled")
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(compiled),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }

    def start(*arguments):
        return subprocess.Popen(
            [sys.executable, "-m", "fedrl", *map(str, arguments)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


@pytest.fixture(scope="module")
def settings_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("settings") / "killed.toml"
    file.write_text(to_toml(EXPERIMENT))
    return file


@pytest.fixture(scope="module")
def uninterrupted(begin, settings_file, tmp_path_factory):
    out = tmp_path_factory.mktemp("uninterrupted")
    process = begin("run", settings_file, "--out", out)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return results(out / EXPERIMENT.directory_name)


def wait_for(something, process, seconds=60):
    """Until there is something, or the process is over."""
    end = time.monotonic() + seconds
    while not something() and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.01)


def files(folder):
    return sorted(file.name for file in folder.glob("[0-9]*"))


def test_a_run_that_is_killed_and_interrupted_ends_as_if_nothing_had_been(
    begin, settings_file, uninterrupted, tmp_path
):
    seed = random.SystemRandom().randrange(10**6)
    print(f"moments of death from seed {seed}")
    rng = random.Random(seed)
    folder = tmp_path / EXPERIMENT.directory_name
    measured, checkpoints = folder / "metrics", folder / "checkpoints"
    arguments = ("run", settings_file, "--out", tmp_path)
    for number in (signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGKILL):
        before = len(files(measured))
        process = begin(*arguments)
        # Into its own work, however long it takes to start; then at any moment.
        wait_for(lambda before=before: len(files(measured)) > before, process)
        wait_for(lambda: files(checkpoints), process)
        time.sleep(rng.uniform(0, 0.5))
        assert process.poll() is None, process.communicate()[0]
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
        assert len(files(measured)) > before
        if number == signal.SIGKILL:
            assert process.returncode == -signal.SIGKILL
        else:
            assert process.returncode == 130
            assert "stopping in a moment" in output
            assert "fedrl: interrupted; finished work is saved" in output
            assert "Traceback" not in output
            # Nothing is lost: the state is that of the last evaluation.
            leg, trained = (int(files(f)[-1].split(".")[0]) for f in (checkpoints, measured))
            assert leg * EXPERIMENT.evaluation.every == trained
        arguments = ("resume", folder)
    assert not fedrl.Run(folder).finished
    process = begin(*arguments)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert results(folder) == uninterrupted
