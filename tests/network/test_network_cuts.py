"""Connections that break and processes of Flower's that die: agents come back, servers say so."""

import signal
import time
from dataclasses import replace

import numpy as np
import pytest

from fedrl.experiment.settings import Evaluation
from fedrl.experiment.toml import to_toml
from fedrl.network.deployment import AGENT, AgentSettings
from in_process import Federation
from network import network, on_linux, until
from tiny import TINY
from unreliable import Proxy

pytestmark = [on_linux, pytest.mark.network, pytest.mark.usefixtures("kept")]

EXPERIMENT = replace(
    TINY,
    name="cuts",
    agents=2,
    E=20,
    updates=20 * 12,
    seeds=1,
    evaluation=Evaluation(every=120, episodes=1),
)


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """Under way; a round needs both agents, and agent 0 is behind an unreliable network."""
    path = tmp_path_factory.mktemp("cuts") / "federation"
    with network(path, EXPERIMENT, proxy="none", quorum=2, deadline=150) as one:
        one.proxy = Proxy(one.deployment.control_port)
        behind = AgentSettings(0, f"127.0.0.1:{one.proxy.port}", theta=theta_of(one, 0))
        (one.folder.agent(0) / AGENT).write_text(to_toml(behind))
        one.server()
        one.agent(0)
        one.agent(1)
        one.wait_for_round(2)
        # Whoever came before the server knew it was started again, too.
        one.restarts = [restarts(one, agent) for agent in range(2)]
        yield one
        one.proxy.end()


def restarts(one, agent):
    return one.log(f"agent {agent}").count("the SuperNode has ended (1); starting it again")


def theta_of(one, agent):
    from fedrl.experiment.toml import read_settings

    return read_settings(AgentSettings, one.folder.agent(agent) / AGENT).theta


@pytest.mark.parametrize("mode", ["cut", "garbage"])
def test_an_agent_comes_back_after_connections_that_fail_at_once(training, mode):
    proxy, refused = training.proxy, training.proxy.refused
    proxy.mode = mode
    until(lambda: proxy.refused > refused, "a connection that fails")
    time.sleep(12)
    proxy.mode = "pass"
    training.wait_for_round(training.round() + 2)
    assert not training.status()["lost"]


def test_a_flower_client_that_gave_up_is_started_again(training):
    # What a handshake that breaks off does to it; without us it would stay, and never ask again.
    assert restarts(training, 0) > training.restarts[0]
    assert restarts(training, 1) == training.restarts[1]


def test_a_connection_that_is_open_and_silent_is_survived(training):
    training.proxy.mode = "silent"
    time.sleep(20)
    training.proxy.mode = "cut"
    time.sleep(0.5)
    training.proxy.mode = "pass"
    training.wait_for_round(training.round() + 1)
    assert not training.status()["lost"]


def test_delays_only_cost_time(training):
    training.proxy.mode = "slow"
    training.wait_for_round(training.round() + 1)
    training.proxy.mode = "pass"
    assert not training.status()["lost"]


def test_an_executor_that_dies_on_an_agent_is_started_again(training):
    agent = training.family("agent 0")
    parent = training.started["agent 0"].pid
    (executor,) = [
        p for p in agent if "fedrl.network.superexec" in p.command and p.parent == parent
    ]
    executor.send(signal.SIGKILL)
    text = "the SuperExec has ended (-9); starting it again"
    until(lambda: text in training.log("agent 0"), text)
    training.wait_for_round(training.round() + 1)


def test_after_all_this_the_model_is_that_of_an_undisturbed_training(training, tmp_path):
    assert training.wait("server") == 0
    reference = Federation(EXPERIMENT, tmp_path).run()
    model = training.model()
    with np.load(reference.path / "models.npz") as expected:
        for name, leaf in dict(expected).items():
            np.testing.assert_array_equal(model[name], leaf)


@pytest.mark.parametrize("name", ["flwr-serverapp", "flower-superexec"])
def test_a_server_whose_programs_die_ends_and_says_what_to_do(tmp_path, name):
    with network(tmp_path / "federation", EXPERIMENT, proxy="none", gathering=600) as one:
        one.server()
        until(lambda: one.status()["state"] == "training", "the wait for agents")
        (process,) = [p for p in one.family("server") if name in p.command]
        process.send(signal.SIGKILL)
        start = time.monotonic()
        assert one.wait("server") == 2
        assert time.monotonic() - start < 60
        said = one.log("server")
        assert f"{name} has ended: see the logs in {one.folder.server}" in said
        assert "Start the server again to go on from the last round" in said
