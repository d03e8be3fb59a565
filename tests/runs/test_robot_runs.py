"""Runs of robots are runs like all others: interrupted, continued, played, drawn."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from PIL import Image

import fedrl
from fedrl.cli.main import main
from fedrl.engine import plan
from fedrl.experiment.toml import to_toml
from fedrl.families import HalfCheetahs, Hoppers
from fedrl.families.robots import host, models
from fedrl.learners.ddpg import DDPG
from fedrl.progress import Silence
from fedrl.runs import driver
from fedrl.runs.run_directory import RunDirectory
from tiny import TINY, Died, DiesAfter, results

# Not hasty: then the programs of a round and of half of one would differ in their last bits.
pytestmark = pytest.mark.usefixtures("unoptimised")
# The noise remembers the step before, so it must be in a checkpoint as well.
LEARNER = DDPG(hidden=(8, 8), batch=4, replay=64, learning_starts=8, exploration="ou")
HOPPERS = replace(TINY, name="hoppers", family=Hoppers(time_limit=25), learner=LEARNER)
CHEETAHS = replace(HOPPERS, name="cheetahs", family=HalfCheetahs(time_limit=25))


@pytest.fixture(scope="module")
def run(unoptimised, tmp_path_factory):
    return fedrl.train(HOPPERS, out=tmp_path_factory.mktemp("runs"), progress=False)


def test_a_run_in_short_stretches_that_died_ends_as_one_that_did_neither(
    run, tmp_path, monkeypatch
):
    longest = plan.stretch(run.experiment)
    monkeypatch.setattr(plan, "STRETCH", plan.STRETCH * 7.5 / longest)
    monkeypatch.setattr(plan, "SHORTEST", 1)
    legs = list(plan.plan(run.experiment))
    assert max(leg.rounds * leg.E for leg in legs) == 5  # halves of E = 10
    assert sum(leg.evaluates for leg in legs) == 4
    monkeypatch.setattr(driver._Pause, "over", lambda self: True)
    directory = RunDirectory.create(tmp_path, run.experiment)
    with pytest.raises(Died):
        driver.carry_out(directory, DiesAfter(13))
    # As in a new process: nothing on the host is needed to go on.
    host._garage.cache_clear()
    models.model.cache_clear()
    driver.carry_out(directory, Silence())
    assert results(directory.path) == results(run.path)


def test_policies_and_evaluations_of_robots_are_those_of_gymnasium(run):
    env = gymnasium.make("fedrl.envs:fedrl/Hopper-v0", max_episode_steps=25)
    policy = run.policy()
    observation, _ = env.reset(seed=0)
    total, over = 0.0, False
    while not over:
        action = policy(observation)
        assert action.shape == env.action_space.shape
        observation, reward, terminated, truncated, _ = env.step(action)
        total, over = total + float(reward), terminated or truncated
    theta = env.unwrapped.theta.tolist()
    returns = run.evaluate([theta], episodes=40).undiscounted
    assert returns.shape == (2, 1)
    # One start of forty; they differ little.
    assert abs(returns[0, 0] - total) < 15


def test_the_commands_about_runs_know_robots(run, tmp_path, capsys):
    assert main(["evaluate", str(run.path), "--theta", "0.04", "--episodes", "2"]) == 0
    assert main(["report", str(run.path), "--out", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "DDPGAvg" in output
    assert list(tmp_path.glob("*.png"))


def test_an_episode_of_a_robot_is_drawn(run, tmp_path, capsys):
    mujoco = models.import_mujoco()
    try:
        mujoco.Renderer(mujoco.MjModel.from_xml_string("<mujoco/>"), 8, 8).close()
    except Exception as error:
        pytest.skip(f"no library that draws without a screen: {error!r}")
    file = tmp_path / "episode.gif"
    assert main(["show", str(run.path), "--theta", "0.04", "--out", str(file)]) == 0
    steps = int(re.match(r"(\d+) steps", capsys.readouterr().out)[1])
    with Image.open(file) as picture:
        assert picture.n_frames <= steps + 1
        first = np.asarray(picture.convert("RGB"), float)
        picture.seek(picture.n_frames - 1)
        last = np.asarray(picture.convert("RGB"), float)
    assert np.abs(first - last).mean() > 1


@pytest.mark.slow
def test_a_killed_process_with_robots_is_continued_to_the_last_bit(tmp_path):
    experiment = replace(CHEETAHS, updates=4000)
    file = tmp_path / "robots.toml"
    file.write_text(to_toml(experiment))

    def start(out):
        command = [sys.executable, "-m", "fedrl", "run", str(file), "--out", str(tmp_path / out)]
        return subprocess.Popen(command, env=os.environ | {"MPLBACKEND": "agg"})

    assert start("whole").wait(timeout=300) == 0
    folder = tmp_path / "killed" / experiment.directory_name
    for seen in (2, 40):  # evaluations before the kill
        process = start("killed")
        while len(list(folder.glob("metrics/*.csv"))) < seen and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert start("killed").wait(timeout=300) == 0
    assert results(folder) == results(tmp_path / "whole" / experiment.directory_name)
