"""Every correction and server optimizer over a network: the model of the local engine, and whole
after a kill.
"""

from dataclasses import replace

import numpy as np
import pytest

import fedrl
from every_strategy import NETWORKS, PARTS, SMALL, TABLES
from fedrl.network.messages import CORRECTION
from fedrl.strategies.corrections import ControlVariates
from in_process import Federation
from tiny import Died

pytestmark = pytest.mark.usefixtures("kept", "hasty")


def model_of(path):
    with np.load(path / "models.npz") as arrays:
        return dict(arrays)


def assert_same(one, other, tolerance):
    assert one.keys() == other.keys()
    for name in one:
        size = np.abs(other[name]).max(initial=0.0)
        np.testing.assert_allclose(one[name], other[name], rtol=0, atol=tolerance * size)


@pytest.mark.parametrize("learner", NETWORKS)
@pytest.mark.parametrize("kind", PARTS)
def test_networks_are_those_of_the_local_engine(tmp_path, kind, learner):
    experiment = replace(NETWORKS[learner], **PARTS[kind])
    local = fedrl.train(experiment, out=tmp_path / "local", progress=False)
    federation = Federation(experiment, tmp_path).run()
    assert not federation.log
    one, other = model_of(federation.path), model_of(local.path)
    assert_same(one, other, 1e-4)
    # The part has done something.
    plain = fedrl.train(NETWORKS[learner], out=tmp_path / "plain", progress=False)
    begun = model_of(plain.path)
    assert max(np.abs(begun[n] - one[n]).max(initial=0.0) for n in one) > 1e-4


@pytest.mark.parametrize("learner", TABLES)
@pytest.mark.parametrize("kind", PARTS)
def test_tables_are_those_of_the_local_rounds(tmp_path, kind, learner):
    experiment = replace(TABLES[learner], **PARTS[kind])
    federation = Federation(experiment, tmp_path).run()
    assert not federation.log
    found, local = model_of(federation.path)["table"], experiment.run().shared[0]
    np.testing.assert_allclose(found, local, rtol=1e-9, atol=1e-9)
    plain = TABLES[learner].run().shared[0]
    assert np.abs(found - plain).max() > 1e-6


def partly(experiment):
    """Some agents sit rounds out, and keep what they know."""
    return replace(experiment, participation=0.67, agents=4)


@pytest.mark.parametrize("kind", ["control variates by path", "both"])
def test_who_sits_out_keeps_its_memory(tmp_path, kind):
    experiment = partly(replace(SMALL, updates=40, **PARTS[kind]))
    local = fedrl.train(experiment, out=tmp_path / "local", progress=False)
    federation = Federation(experiment, tmp_path).run()
    asked = [set(federation.transport.asked(number)) for number in (1, 2, 3, 4)]
    assert any(who != {0, 1, 2, 3} for who in asked)
    assert_same(model_of(federation.path), model_of(local.path), 1e-4)


@pytest.mark.parametrize("kind", PARTS)
def test_killed_after_any_round_the_model_is_the_same_to_the_last_bit(tmp_path, kind):
    experiment = replace(TABLES["qavg"], **PARTS[kind])
    whole = Federation(experiment, tmp_path / "whole").run()
    for number in (1, 3):
        federation = Federation(experiment, tmp_path / str(number))
        save = federation.server.save

        def saved(planned, save=save, number=number):
            save(planned)
            if planned.number == number:
                raise Died

        federation.server.save = saved
        with pytest.raises(Died):
            federation.run()
        again = Federation(experiment, tmp_path / str(number)).run()
        assert again.log == [f"going on after round {number}"]
        one, other = model_of(again.path)["table"], model_of(whole.path)["table"]
        assert one.tobytes() == other.tobytes()


def offers(federation, agent, name):
    return {
        x.instruction.round: x.answer.shared[name]
        for x in federation.transport.exchanges
        if x.agent == agent and x.answer.shared
    }


def test_control_variates_travel_and_their_sum_is_the_servers(tmp_path):
    experiment = replace(TABLES["qavg"], correction=ControlVariates())
    federation = Federation(experiment, tmp_path).run()
    name = f"{CORRECTION}all"
    for x in federation.transport.exchanges:
        assert set(x.instruction.model) == {"table", name}
        assert set(x.answer.shared) == ({"table", name} if x.instruction.E else set())
    # c is the average of all changes of the agents' c_i, which began at zero.
    changes = [sum(offers(federation, agent, name).values()) for agent in range(3)]
    sent = federation.server.progress.server.sent.correction["all"]
    np.testing.assert_allclose(sent, np.mean(changes, 0), rtol=1e-12)
    assert np.abs(sent).max() > 1e-3


def test_an_offer_that_was_rejected_does_not_count_for_the_agent_either(tmp_path):
    experiment = replace(TABLES["qavg"], correction=ControlVariates())
    federation = Federation(experiment, tmp_path)
    name = f"{CORRECTION}all"

    def spoilt(agent, asked, answer):
        if (agent, asked.round) == (1, 2):
            return replace(answer, shared=answer.shared | {name: answer.shared[name] * np.nan})
        return answer

    federation.transport.change = spoilt
    federation.run()
    (line,) = federation.log
    assert "without agent 1: its answer was rejected: correction/all has values" in line
    counted = {
        x.instruction.round: x.instruction.counted
        for x in federation.transport.exchanges
        if x.agent == 1
    }
    assert counted == {1: 0, 2: 1, 3: 1, 4: 3, 5: 4}
    # The server's c is still the average of the agents' ones: of their changes that counted.
    total = sum(
        change
        for agent in range(3)
        for number, change in offers(federation, agent, name).items()
        if (agent, number) != (1, 2)
    )
    sent = federation.server.progress.server.sent.correction["all"]
    np.testing.assert_allclose(sent, total / 3, rtol=1e-12)
    for agent in range(3):
        client = federation.transport.agents[agent]
        memory = client._state.memory
        np.testing.assert_allclose(
            np.asarray(memory.own)[..., 0],
            sum(x for n, x in offers(federation, agent, name).items() if (agent, n) != (1, 2)),
            rtol=1e-12,
        )


@pytest.mark.parametrize("kind", PARTS)
def test_no_honest_agent_is_too_far_away(tmp_path, kind):
    """Where what is sent is no average of tables that agents have: far from all that was proved."""
    experiment = replace(TABLES["qavg"], lr=0.4, E=10, updates=60, **PARTS[kind])
    assert not Federation(experiment, tmp_path).run().log
