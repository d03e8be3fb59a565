"""A federation over TLS, node authentication and nginx, as the commands run it."""

import json
import re
import signal
import socket
import subprocess
import sys
import tomllib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tomli_w

import fedrl
from fedrl.cli.main import main
from fedrl.experiment.settings import Evaluation
from fedrl.network import nginx
from in_process import Federation
from network import Network, network, of_folder, on_linux, until, with_nginx
from tiny import TINY

pytestmark = [with_nginx, on_linux, pytest.mark.network, pytest.mark.usefixtures("kept")]

EXPERIMENT = replace(
    TINY,
    name="network",
    E=20,
    updates=110,  # the last round is shorter
    seeds=1,
    evaluation=Evaluation(every=40, episodes=1),
)


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with network(tmp_path_factory.mktemp("network") / "federation", EXPERIMENT) as one:
        yield one


@pytest.fixture(scope="module")
def interrupted(federation):
    """`up` until the second round, what others were told meanwhile, and Ctrl-C."""
    output = federation.path.parent / "up.log"
    with output.open("w") as log:
        process = federation.begin("federation", "up", federation.path, stdout=log, stderr=log)
        federation.started["up"] = process
    federation.wait_for_round(2)
    again, by_hand, status = federation.call_at_once(
        ("federation", "up", federation.path),
        ("agent", federation.path, "--id", "0"),
        ("federation", "status", federation.path),
    )
    seen = SimpleNamespace(
        again=again,
        by_hand=by_hand,
        status=status,
        running=federation.processes(),
        sockets=[(federation.folder.agent(i) / "worker.sock").stat().st_mode for i in range(2)],
    )
    process.send_signal(signal.SIGINT)
    seen.code = process.wait(60)
    seen.left = until_gone(federation)
    seen.output = output.read_text()
    return seen


def until_gone(federation):
    try:
        until(lambda: not of_folder(federation.path), "their end", seconds=5)
    except AssertionError:
        return of_folder(federation.path)
    return []


@pytest.fixture(scope="module")
def finished(federation, interrupted):
    """`up --detach` for the rest, and `down`."""
    seen = SimpleNamespace(
        detached=federation.call("federation", "up", "--detach", federation.path)
    )
    until(lambda: federation.status()["state"] == "finished", "the end of the training")
    until(lambda: not federation.processes("fedrl server"), "the end of the server")
    code, output = federation.call("federation", "status", "--json", federation.path)
    assert code == 0, output
    seen.told = json.loads(output)
    seen.words = federation.call("federation", "status", federation.path)
    seen.down = federation.call("federation", "down", federation.path)
    seen.left = until_gone(federation)
    seen.down_again = federation.call("federation", "down", federation.path)
    return seen


def test_everything_runs_once(interrupted):
    code, output = interrupted.again
    assert code == 2
    assert "agent 0, agent 1, server of" in output
    assert "run already" in output
    code, output = interrupted.by_hand
    assert code == 2
    assert "another process is working in" in output


def test_status_says_how_far_it_is(interrupted):
    code, output = interrupted.status
    assert code == 0
    lines = output.splitlines()
    assert re.match(r"training: [1-5] of 6 rounds, return [\d.]+ in training$", lines[0])
    assert "agents there: 0, 1" in lines
    assert "running here: agent 0, agent 1, server" in lines


def test_a_worker_that_waits_for_an_agents_messages_opens_only_to_its_owner(interrupted):
    assert {oct(mode) for mode in interrupted.sockets} == {oct(0o140600)}


def test_ctrl_c_stops_everything(interrupted):
    commands = " ".join(process.command for process in interrupted.running)
    for program in ("flower-superlink", "nginx", "network.supernode", "flwr-serverapp", "worker"):
        assert program in commands
    assert interrupted.code == 130
    assert "fedrl: interrupted; finished work is saved" in interrupted.output
    assert "Traceback" not in interrupted.output
    assert interrupted.left == []


def test_what_was_interrupted_goes_on_in_the_background_until_it_is_finished(finished, federation):
    code, output = finished.detached
    assert code == 0, output
    assert output.startswith("started; fedrl federation status")
    assert finished.told["processes"] == ["agent 0", "agent 1"]
    assert "still running here: agent 0, agent 1" in finished.words[1]
    assert "its training is finished" in federation.log("agent 0")
    assert finished.down == (0, "stopped agent 0, agent 1\n")
    assert finished.left == []
    assert finished.down_again == (0, "nothing was running\n")


def test_status_reports_rounds_agents_returns_and_bytes(finished, federation):
    status = finished.told
    assert (status["done"], status["rounds"], status["trained"]) == (6, 6, 110)
    assert status["alive"] == [0, 1]
    assert {agent["round"] for agent in status["agents"].values()} == {7}
    assert all(1 <= agent["return"] <= 20 for agent in status["agents"].values())
    assert status["lost"] == []
    # The last round brings the model to two agents, and numbers back.
    model = sum(leaf.nbytes for leaf in federation.model().values())
    assert 2 * model < status["bytes"]["sent"] < 2 * model + 2000
    assert 0 < status["bytes"]["received"] < 1000
    code, words = finished.words
    assert code == 0
    assert words.startswith("finished: 6 of 6 rounds, return ")
    for text in (
        "agent 1: last answer in the last evaluation; return",
        "bytes in the last round",
        "seconds",
    ):
        assert text in words


@pytest.fixture(scope="module")
def in_process(tmp_path_factory):
    """The same loop with the same agents in this process, undisturbed."""
    return Federation(EXPERIMENT, tmp_path_factory.mktemp("in-process")).run()


def test_the_model_is_that_of_the_same_agents_in_one_process_bit_for_bit(
    finished, federation, in_process
):
    with np.load(in_process.path / "models.npz") as expected:
        model = federation.model()
        assert model.keys() == dict(expected).keys()
        for name, leaf in model.items():
            assert leaf.dtype == expected[name].dtype
            np.testing.assert_array_equal(leaf, expected[name])
    # So is everything that was measured.
    metrics = fedrl.Run(federation.run).metrics()
    assert metrics.equals(fedrl.Run(in_process.path).metrics())
    assert len(metrics) > 10


def test_the_model_is_that_of_the_engine_with_all_agents_in_one_program(
    finished, federation, tmp_path
):
    local = fedrl.train(EXPERIMENT, out=tmp_path, progress=False)
    with np.load(local.path / "models.npz") as expected:
        for name, leaf in federation.model().items():
            scale = np.abs(expected[name][:, :1]).max()
            np.testing.assert_allclose(leaf, expected[name][:, :1], rtol=0, atol=1e-6 * scale)


def test_the_result_is_an_ordinary_run(finished, federation, capsys):
    run = fedrl.Run(federation.run)
    assert run.finished
    assert run.experiment == EXPERIMENT
    assert run.evaluate([[0.5], [1.0]], episodes=2).undiscounted.shape == (1, 2)
    assert main(["evaluate", str(run.path), "--theta", "0.5"]) == 0
    assert main(["report", str(run.path)]) == 0
    assert "network" in capsys.readouterr().out


def test_a_finished_training_is_not_begun_again(finished, federation):
    before = federation.model()
    code, output = federation.call("federation", "up", federation.path)
    assert code == 2
    assert "the server has ended: this training is finished" in output
    assert until_gone(federation) == []
    assert all(np.array_equal(before[name], leaf) for name, leaf in federation.model().items())


def test_an_agent_that_cannot_work_is_said_to_have_ended_and_why(tmp_path):
    folder = tmp_path / "fed"
    assert main(["federation", "init", str(folder), "--agents", "2", "--proxy", "none"]) == 0
    for agent in (0, 1):
        settings = folder / "agents" / str(agent) / "agent.toml"
        table = tomllib.loads(settings.read_text()) | {"environment": "no_such_module:make"}
        settings.write_text(
            tomli_w.dumps({name: x for name, x in table.items() if name != "theta"})
        )
    command = [sys.executable, "-m", "fedrl", "federation", "up", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    said = " ".join(done.stdout.split())
    for agent in (0, 1):
        assert f"agent {agent} has ended: cannot make the environment" in said
    assert "No module named 'no_such_module'" in said
    assert "all agents have ended" in done.stderr


@pytest.mark.parametrize("command", ["up", "status", "down"])
def test_what_is_not_a_federation_is_said_to_be_none(tmp_path, capsys, command):
    assert main(["federation", command, str(tmp_path / "nothing")]) == 2
    error = capsys.readouterr().err
    assert "is not the folder of a federation" in error
    assert f"`fedrl federation init {tmp_path}/nothing` makes one" in error


@pytest.mark.parametrize("which", ["port", "control_port"])
def test_a_port_that_is_taken_is_named_before_anything_runs(tmp_path, which):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        one = Network(tmp_path / "federation", EXPERIMENT, **{which: number})
        code, output = one.call("federation", "up", one.path)
    assert code == 2
    assert f"port {number} is not free (Address already in use)" in output
    assert f"choose another {which} in federation.toml" in output
    assert of_folder(one.path) == []


def test_without_nginx_there_is_no_server_on_a_network(tmp_path, monkeypatch, capsys):
    one = Network(tmp_path / "federation", EXPERIMENT)
    monkeypatch.setattr(nginx.shutil, "which", lambda *_, **__: None)
    assert main(["server", str(one.path)]) == 2
    error = capsys.readouterr().err
    assert "nginx is missing (on Debian: apt install nginx-light)" in error
    assert 'proxy = "none"' in error
    assert of_folder(one.path) == []
