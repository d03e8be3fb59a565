"""TensorBoard, Weights & Biases and MLflow have each number of a run, and have it once."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from math import inf
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import wandb

import fedrl
from fedrl import FedrlError
from fedrl.cli.main import main
from fedrl.experiment.toml import to_toml
from fedrl.runs import driver
from fedrl.runs.run_directory import RunDirectory
from fedrl.tabular.experiment import TabularExperiment
from fedrl.tabular.families import WindyCliffs
from fedrl.trackers.available import trackers_named
from fedrl.trackers.tracker import TrackedRun
from fedrl.training import resume, track
from in_process import Federation
from tiny import TINY, Died, DiesAfter, results
from tracked import NAMES, READERS, in_event_file, mlflow_runs, recorded

pytestmark = pytest.mark.usefixtures("kept", "hasty", "offline")
ALONE = replace(TINY, E=inf)
CLIFFS = TabularExperiment(
    name="cliffs", family=WindyCliffs(), agents=3, E=3, updates=12, lr=0.5, seed=1
)
# Nothing may reach a network, whatever this machine's user has set up.
OFFLINE = {
    "WANDB_MODE": "offline",
    "WANDB_ERROR_REPORTING": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
FOREIGN = ("WANDB_DIR", "WANDB_PROJECT", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME")


@pytest.fixture(scope="module")
def offline():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in OFFLINE.items():
            patch.setenv(name, value)
        for name in FOREIGN:
            patch.delenv(name, raising=False)
        yield
        wandb.teardown()  # its process


@pytest.fixture(scope="module")
def runs(kept, hasty, offline, tmp_path_factory):
    """A run and one without communication, in a folder; making MLflow's tables takes seconds."""
    folder = tmp_path_factory.mktemp("runs")
    return [fedrl.train(x, out=folder, progress=False, track=NAMES) for x in (TINY, ALONE)]


@pytest.fixture
def out(runs, tmp_path):
    """A folder for runs with MLflow's tables in it."""
    shutil.copy(runs[0].path.parent / "mlflow.db", tmp_path)
    return tmp_path


def assert_has_everything(path, names=NAMES):
    expected = recorded(path)
    for name in names:
        found = READERS[name](path)
        assert {(what, step) for what, step, _ in found} == expected.keys(), name
        for what, step, value in found:
            # TensorBoard has 32 bits.
            assert value == pytest.approx(expected[what, step], rel=1e-6, abs=1e-9), (name, what)


def assert_has_everything_once(path, names=NAMES):
    assert_has_everything(path, names)
    for name in names:
        assert len(READERS[name](path)) == len(recorded(path)), name


def test_each_tracker_has_every_evaluation_once_with_the_means_of_metrics_csv(runs):
    for run in runs:
        assert_has_everything_once(run.path)
    # What is compared has in it what it should.
    together, alone = (recorded(run.path) for run in runs)
    names = {name for name, _ in together}
    assert {"own/return", "train/discounted_return_stderr", "learning/loss", "round"} < names
    assert not any(name.startswith("agents-") for name in names)
    assert "agents-held-out/return" in {name for name, _ in alone}
    assert {step for _, step in together} == {0, 20, 40, 60}


def test_trackers_know_the_settings_and_how_it_ended(runs):
    path = runs[0].path
    _, (found,) = mlflow_runs(path)
    assert found.info.status == "FINISHED"
    told = found.data.params
    assert (told["learner.kind"], told["E"], told["family.time_limit"]) == ("dqn", "10", "20")
    (folder,) = (path / "trackers" / "wandb").glob("offline-run-*")
    assert folder.name.endswith(f"-{path.name}-{(path / 'trackers' / 'key').read_text()[:8]}")
    (events,) = (path / "trackers" / "tensorboard").iterdir()
    assert b"learner.kind" in events.read_bytes()


def test_a_tracked_run_comes_to_the_same_bytes_and_has_the_same_name(runs, tmp_path):
    untracked = fedrl.train(TINY, out=tmp_path, progress=False)
    assert results(untracked.path) == results(runs[0].path)
    assert untracked.path.name == runs[0].path.name
    assert not (untracked.path / "trackers").exists()


def test_a_run_that_is_resumed_again_and_again_is_told_once(out, monkeypatch):
    monkeypatch.setattr(driver._Pause, "over", lambda self: True)
    directory = RunDirectory.create(out, TINY)
    for legs in (3, 4):  # of a seed; it dies in the middle of a leg
        with pytest.raises(Died):
            driver.carry_out(directory, DiesAfter(legs), trackers_named(NAMES))
        _, (found,) = mlflow_runs(directory.path)
        assert found.info.status == "KILLED"
    resume(directory.path, progress=False, track=NAMES)
    assert_has_everything_once(directory.path)
    _, (found,) = mlflow_runs(directory.path)
    assert found.info.status == "FINISHED"
    before = len(list(directory.path.rglob("*tfevents*")))
    assert before > 1
    fedrl.train(TINY, out=out, progress=False, track=NAMES)  # finished already
    assert_has_everything_once(directory.path)


KILLED = """
import os, signal, sys
from pathlib import Path
from fedrl.runs.run_directory import RunDirectory
from fedrl.training import train
from tiny import TINY

save = RunDirectory.save_metrics

def saved_and_killed(self, trained, text):
    save(self, trained, text)
    if trained == 20:
        os.kill(os.getpid(), signal.SIGKILL)

RunDirectory.save_metrics = saved_and_killed
train(TINY, out=sys.argv[1], progress=False, track=("tensorboard", "wandb", "mlflow"))
"""


def as_compiled_here():
    """For another process: it need not compile what we have compiled."""
    return {
        "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }


def test_a_process_killed_between_recording_and_telling_loses_and_doubles_nothing(out):
    # Not with the process of Weights & Biases that we have: a kill is to end that, too.
    environment = {name: x for name, x in os.environ.items() if name != "WANDB_SERVICE"}
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(out)],
        env=environment | as_compiled_here() | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    path = out / TINY.directory_name
    for name in ("tensorboard", "mlflow"):  # wandb may have kept it to itself
        assert {step for _, step, _ in READERS[name](path)} == {0}
    resume(path, progress=False, track=NAMES)
    assert_has_everything_once(path, ["tensorboard", "mlflow"])
    assert_has_everything(path, ["wandb"])


def copied(run, out):
    """The run, as far as fedrl is concerned."""
    path = out / run.path.name
    shutil.copytree(run.path, path, ignore=shutil.ignore_patterns("trackers", ".lock"))
    return path


def test_a_finished_run_can_be_tracked_afterwards_by_command(runs, out, capsys):
    path = copied(runs[1], out)
    shown = []
    for _ in range(2):
        assert main(["track", str(path), "--to", *NAMES]) == 0
        shown.append(capsys.readouterr().out)
        assert_has_everything_once(path)
    assert f"tensorboard --logdir {out}" in shown[0]
    assert results(path) == results(runs[1].path)


def test_a_run_that_is_not_finished_can_be_tracked_so_far(tmp_path, monkeypatch):
    monkeypatch.setattr(driver._Pause, "over", lambda self: True)
    directory = RunDirectory.create(tmp_path, TINY)
    with pytest.raises(Died):
        driver.carry_out(directory, DiesAfter(5))
    track(directory.path, ["tensorboard"], progress=False)
    assert {step for _, step, _ in READERS["tensorboard"](directory.path)} == {0, 20}
    resume(directory.path, progress=False, track="tensorboard")
    assert_has_everything_once(directory.path, ["tensorboard"])


def test_a_record_that_a_kill_has_cut_off_is_written_again(runs, tmp_path):
    path, lost = copied(runs[0], tmp_path), 0
    for cut in (1, 40, 600):
        shutil.rmtree(path / "trackers", ignore_errors=True)
        track(path, ["tensorboard"], progress=False)
        (file,) = (path / "trackers").rglob("*tfevents*")
        file.write_bytes(file.read_bytes()[:-cut])
        lost += len(recorded(path)) - len(in_event_file(file))
        track(path, ["tensorboard"], progress=False)
        files = (path / "trackers").rglob("*tfevents*")
        everything = [x[:2] for file in files for x in in_event_file(file)]
        assert sorted(everything) == sorted(recorded(path))
    assert lost > len(recorded(path)) / 4


def test_what_wandb_may_have_lost_is_told_again(runs, tmp_path):
    path = copied(runs[0], tmp_path)
    track(path, ["wandb"], progress=False)
    (mark,) = (path / "trackers" / "wandb").glob("*.last")
    assert mark.read_text() == "60\n"
    mark.write_text("20\n")  # as an earlier process left it, and a killed one went on
    track(path, ["wandb"], progress=False)
    assert_has_everything(path, ["wandb"])
    told = [step for what, step, _ in READERS["wandb"](path) if what == "round"]
    assert sorted(told) == [0, 20, 40, 40, 60, 60]
    assert mark.read_text() == "60\n"


def test_parts_of_wandbs_that_began_in_the_same_second_count(runs, tmp_path):
    path = copied(runs[0], tmp_path)
    track(path, ["wandb"], progress=False)
    (folder,) = (path / "trackers" / "wandb").glob("offline-run-*")
    folder.rename(f"{folder}-1")  # as it is called where there is one of that second already
    track(path, ["wandb"], progress=False)
    assert_has_everything_once(path, ["wandb"])


def test_wandbs_server_says_where_to_go_on(tmp_path, monkeypatch):
    logged = []
    theirs = SimpleNamespace(
        id="x",
        offline=False,
        starting_step=21,
        url="https://example.com/x",
        settings=SimpleNamespace(sync_dir=tmp_path),
        log=lambda values, step, commit: logged.append(step),
        finish=lambda exit_code: logged.append(("end", exit_code)),
    )
    monkeypatch.setattr(wandb, "init", lambda **_: theirs)
    (tracker,) = trackers_named("wandb").values()
    assert tracker.begin(TrackedRun(tmp_path, tmp_path, "key", {})) == "https://example.com/x"
    for step in (0, 20, 40, 40):
        tracker.log(step, {"x": 1.0})
    tracker.finish(complete=False)
    assert logged == [40, ("end", 1)]


class Failing:
    """A tracker that cannot do one thing."""

    def __init__(self, at):
        self.at, self.calls = at, []

    def _called(self, what):
        self.calls.append(what)
        if what == self.at:
            raise ConnectionError("nobody there")
        return what

    def begin(self, run):
        return self._called("begin")

    def log(self, updates, values):
        self._called(f"log {updates}")

    def finish(self, *, complete):
        self._called("finish")


EVERYTHING = ["begin", "log 0", "log 20", "log 40", "log 60", "finish"]


@pytest.mark.parametrize("at", ["begin", "log 20", "finish"])
def test_a_tracker_that_fails_is_left_out_and_the_run_goes_on(at, runs, tmp_path):
    directory = RunDirectory.create(tmp_path, TINY)
    failing, good = Failing(at), Failing(None)
    with pytest.warns(UserWarning, match="no longer tracked with failing") as warned:
        driver.carry_out(directory, DiesAfter(inf), {"failing": failing, "good": good})
    (warning,) = warned
    assert "(ConnectionError: nobody there)" in str(warning.message)
    assert f"fedrl track {directory.path} --to failing" in str(warning.message)
    # What it may have opened is closed.
    assert failing.calls == [*EVERYTHING[: EVERYTHING.index(at) + 1], "finish"]
    assert good.calls == EVERYTHING
    assert results(directory.path) == results(runs[0].path)


def test_a_failure_to_track_afterwards_is_an_error(runs, out, monkeypatch, capsys):
    path = copied(runs[0], out)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://here")
    assert main(["track", str(path), "--to", "mlflow"]) == 2
    assert "fedrl: no longer tracked with mlflow" in capsys.readouterr().err


@pytest.fixture(scope="module")
def settings_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("settings") / "tiny.toml"
    file.write_text(to_toml(TINY))
    return str(file)


def test_an_unknown_tracker_is_refused_before_anything_is_made(
    runs, settings_file, tmp_path, capsys
):
    folder, path = tmp_path / "runs", copied(runs[0], tmp_path)
    message = "fedrl: unknown tracker 'tensorbord': did you mean 'tensorboard'?"
    for command in (
        ["run", settings_file, "--out", str(folder), "--track", "mlflow", "tensorbord"],
        ["resume", str(path), "--track", "tensorbord"],
        ["track", str(path), "--to", "tensorbord"],
    ):
        assert main(command) == 2
        assert message in capsys.readouterr().err
    assert not folder.exists()
    assert not (path / "trackers").exists()
    with pytest.raises(FedrlError, match="unknown tracker 'tensorbord'"):
        fedrl.train(TINY, out=folder, progress=False, track="tensorbord")
    assert not folder.exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_package_is_refused_before_anything_is_made(
    name, settings_file, tmp_path, monkeypatch, capsys
):
    ours = f"fedrl.trackers.{name}_tracker"
    for loaded in [x for x in sys.modules if x == ours or x.startswith(f"{name}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, name, None)
    folder = tmp_path / "runs"
    assert main(["run", settings_file, "--out", str(folder), "--track", name]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"fedrl: tracking with {name} needs a package that is missing")
    assert f"pip install 'fedrl[{name}]'" in error
    assert not folder.exists()


def test_wandb_without_an_account_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    def refuse():
        raise wandb.errors.UsageError("No API key configured.")

    monkeypatch.setattr(
        wandb, "setup", lambda: SimpleNamespace(settings=SimpleNamespace(mode="online"))
    )
    monkeypatch.setattr(wandb, "login", refuse)
    with pytest.raises(FedrlError, match=r"No API key configured\. WANDB_MODE=offline keeps"):
        fedrl.train(TINY, out=tmp_path / "runs", progress=False, track=["wandb"])
    assert not (tmp_path / "runs").exists()


def test_a_federation_is_tracked_as_it_goes_and_afterwards(tmp_path):
    federation, log = Federation(CLIFFS, tmp_path), []
    with federation.record.tracked(trackers_named(["tensorboard"]), log.append):
        federation.run()
    assert log == [f"tracked: tensorboard --logdir {federation.path.parent}"]
    assert_has_everything_once(federation.path, ["tensorboard"])
    expected = recorded(federation.path)
    assert ("train/objective", 12) in expected
    assert np.isfinite(list(expected.values())).all()
    track(federation.path, ["tensorboard", "wandb"], progress=False)
    assert_has_everything_once(federation.path, ["tensorboard", "wandb"])


def test_a_federation_says_that_it_is_finished_after_its_trackers_are(tmp_path):
    federation = Federation(CLIFFS, tmp_path)
    status = tmp_path / "status.json"

    class Late(Failing):
        def finish(self, *, complete):
            self.calls.append((complete, json.loads(status.read_text())["state"]))

    late = Late(None)
    with federation.record.tracked({"late": late}, print):
        federation.run()
    assert late.calls[-2:] == ["log 12", (True, "training")]
    assert json.loads(status.read_text())["state"] == "finished"


def test_help_names_the_trackers_and_loads_none_of_them():
    program = """
import sys
from fedrl.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print([name for name in ("jax", "tensorboard", "wandb", "mlflow") if name in sys.modules])
"""
    for arguments in (["--help"], ["track", "--help"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1] == "[]"
        assert "track" in done.stdout
    assert "tensorboard, wandb, mlflow" in " ".join(done.stdout.split())
