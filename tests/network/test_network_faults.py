"""Processes that are killed and stopped while a federation trains: nothing is lost or done twice.

All of it happens to one training, one after the other; what comes out in the end is compared, bit
for bit, with the same loop and agents in one undisturbed process.
"""

import re
import signal
import time
from dataclasses import replace

import numpy as np
import pytest

from fedrl.errors import FedrlError
from fedrl.experiment.settings import Evaluation
from fedrl.experiment.toml import to_toml
from fedrl.network.answering import Agent
from fedrl.network.deployment import AGENT, FEDERATION, AgentSettings
from in_process import Federation, agents_of, client_of
from network import network, on_linux, until, with_nginx
from tiny import TINY

pytestmark = [with_nginx, on_linux, pytest.mark.network, pytest.mark.usefixtures("kept")]

EXPERIMENT = replace(
    TINY,
    name="faults",
    E=20,
    updates=20 * 11,
    seeds=1,
    evaluation=Evaluation(every=80, episodes=1),
)
# The world of agent 1 is its owner's own.
MODULE = """\
import gymnasium


def make():
    env = gymnasium.make("CartPole-v1", max_episode_steps=20)
    env.unwrapped.length = 0.7
    return env
"""


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """Under way; a round needs both agents."""
    base = tmp_path_factory.mktemp("faults")
    (base / "modules").mkdir()
    (base / "modules" / "stick.py").write_text(MODULE)
    env = {"PYTHONPATH": str(base / "modules")}
    with network(base / "federation", EXPERIMENT, env=env, quorum=2, deadline=150) as one:
        own = AgentSettings(1, one.deployment.address, environment="stick:make")
        (one.folder.agent(1) / AGENT).write_text(to_toml(own))
        one.server()
        one.agent(0)
        one.agent(1)
        one.wait_for_round(2)
        yield one


def program(training, name):
    """A program that `fedrl agent` keeps running for agent 0."""

    def running():
        agent = training.started["agent 0"].pid
        return [p for p in training.processes(name, "agents/0") if p.parent == agent]

    (one,) = until(running, f"{name} of agent 0")
    return one


def next_round(training):
    """The beginning of one."""
    number = training.round() + 1
    training.wait_for_round(number)
    return number


def in_the_middle(training):
    """Agent 0 has been asked for a round and cannot answer: (its stopped worker, the round)."""
    worker = program(training, "fedrl.network.worker")
    superexec = program(training, "fedrl.network.superexec")
    worker.send(signal.SIGSTOP)

    def asking():
        forks = training.processes("fedrl.network.superexec", "agents/0")
        return {p.pid for p in forks if p.parent == superexec.pid}

    def waiting():
        before = asking()
        time.sleep(1.5)
        return before & asking()

    until(waiting, "a message for agent 0")
    return worker, training.round()


def test_no_command_line_shows_the_token_of_a_message(training):
    worker, _ = in_the_middle(training)
    shown = training.processes("--token")
    worker.send(signal.SIGCONT)
    assert shown, "the ServerApp's, which Flower starts"
    assert all("flwr-serverapp" in one.command for one in shown)


def test_a_round_survives_the_death_of_the_worker_over_it(training):
    worker, number = in_the_middle(training)
    worker.send(signal.SIGKILL)
    # Meanwhile the work is done from disk.
    training.wait_for_round(number + 1)
    assert "no worker is running, working from disk" in training.log("agent 0", "superexec.log")
    assert "the worker has ended (-9); starting it again" in training.log("agent 0")
    assert program(training, "fedrl.network.worker").pid != worker.pid


def test_a_superexec_that_dies_is_started_again(training):
    superexec = program(training, "fedrl.network.superexec")
    number = next_round(training)
    superexec.send(signal.SIGKILL)
    training.wait_for_round(number + 1)
    text = "the SuperExec has ended (-9); starting it again"
    until(lambda: text in training.log("agent 0"), text)
    assert program(training, "fedrl.network.superexec").pid != superexec.pid


def test_an_agent_that_is_killed_in_a_round_and_started_again_takes_part_in_it(training):
    worker, number = in_the_middle(training)
    agent = training.started["agent 0"]
    agent.kill()
    worker.send(signal.SIGKILL)
    agent.wait()
    training.agent(0)
    training.wait_for_round(number + 1)
    log = training.log("server", "server.log")
    assert f"round {number}: agents [0] are back; asking again" in log


@pytest.fixture(scope="module")
def killed(training):
    """The round in which the server was killed, with everything it had started."""
    number = next_round(training)
    training.kill("server")
    return number


def test_when_all_agents_fail_the_server_says_why_and_nothing_is_overwritten(training, killed):
    states = [training.folder.agent(i) / "state" for i in range(2)]
    kept = [files(path) for path in (*states, training.run / "checkpoints")]
    for path in states:
        path.rename(path.with_name("aside"))
        path.write_text("not a folder\n")
    training.server()
    assert training.wait("server") == 1
    status = training.status()
    assert status["state"] == "failed"
    assert f"round {killed} has 0 valid answers and needs 2" in status["why"]
    for agent in range(2):
        state = training.folder.agent(agent) / "state"
        assert f"agent {agent}: {state} cannot be used (File exists)" in status["why"]
    assert "start the server again to try this round again" in status["why"]
    assert status["why"] in training.log("server")
    for path in states:
        path.unlink()
        path.with_name("aside").rename(path)
    assert [files(path) for path in (*states, training.run / "checkpoints")] == kept
    assert not (training.run / "models.npz").exists()


def test_a_server_that_was_killed_goes_on_from_its_last_round(training, killed):
    # From here on one answer is enough, and soon.
    hasty = replace(training.deployment, quorum=1, deadline=10)
    (training.folder.server / FEDERATION).write_text(to_toml(hasty))
    training.server()
    training.wait_for_round(killed)
    status = training.status()
    assert (status["round"], status["done"]) == (killed, killed - 1)
    training.wait_for_round(killed + 1)
    assert f"going on after round {killed - 1}" in training.log("server", "server.log")
    # Nobody but Flower's programs had to be started again, and nobody by hand.
    for agent in ("agent 0", "agent 1"):
        assert "the SuperNode has ended (0); starting it again" in training.log(agent)
        assert training.started[agent].poll() is None


def files(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.npz")}


def test_a_straggler_is_left_behind_at_the_deadline_and_comes_back(training):
    family = training.family("agent 0")
    for process in family:
        process.send(signal.SIGSTOP)

    def left_behind():
        return [one for one in training.status()["lost"] if one["agent"] == 0]

    (lost, *_) = until(left_behind, "a round without the straggler")
    assert lost["why"] == "it did not answer before the deadline"
    training.wait_for_round(lost["round"] + 1)
    for process in family:
        process.send(signal.SIGCONT)
    since = training.round()
    until(lambda: training.status()["agents"]["0"]["round"] >= since, "its return")


def test_after_all_this_the_model_is_that_of_an_undisturbed_training(
    training, tmp_path, monkeypatch
):
    assert training.wait("server") == 0
    agents = agents_of(EXPERIMENT, tmp_path)
    monkeypatch.syspath_prepend(training.path.parent / "modules")
    client = client_of(EXPERIMENT, 1, environment="stick:make")
    agents[1] = Agent(tmp_path / "agent 1", client, EXPERIMENT.digest)
    late, silent = lost_rounds(training)
    assert late[0] | silent[0]
    heard = {i: Heard(agent, late[i], silent[i]) for i, agent in agents.items()}
    reference = Federation(EXPERIMENT, tmp_path, heard).run()
    model = training.model()
    with np.load(reference.path / "models.npz") as expected:
        assert model.keys() == dict(expected).keys()
        for name, leaf in model.items():
            np.testing.assert_array_equal(leaf, expected[name])


class Heard:
    """An agent whose answers come too late in some rounds, and who is not reached in others."""

    def __init__(self, agent, late, silent):
        self.agent, self.late, self.silent = agent, late, silent

    def answer(self, asked):
        if asked.round in self.silent:
            raise FedrlError("it was stopped")
        answer = self.agent.answer(asked)
        if asked.round in self.late:
            raise FedrlError("it was too late")
        return answer


def lost_rounds(training):
    """Rounds that went on without an agent: those it had heard of, and the others."""
    lost = {0: set(), 1: set()}
    for line in training.log("server", "server.log").splitlines():
        if found := re.search(r"round (\d+): without agent (\d+)", line):
            lost[int(found[2])].add(int(found[1]))
        elif found := re.search(r"going on after round (\d+)", line):
            # What came after it is done again.
            lost = {i: {n for n in rounds if n <= int(found[1])} for i, rounds in lost.items()}
    late, silent = {}, {}
    for agent, rounds in lost.items():
        log = training.log(f"agent {agent}", "supernode.log")
        heard = {int(n) for n in re.findall(r"ROUND (\d+)\]\n[^\n]*Receiving", log)}
        late[agent], silent[agent] = rounds & heard, rounds - heard
    return late, silent
