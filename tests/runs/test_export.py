"""Exported policies, run by onnxruntime, against our own."""

from dataclasses import dataclass, replace

import numpy as np
import onnxruntime
import pytest

import fedrl
from fedrl import FedrlError, train
from fedrl.cli.main import main
from fedrl.learners import DDPG, DQN, MLP, PPO, Personal
from fedrl.runs.export import export
from published import PENDULUM
from tiny import LEARNER, TINY

pytestmark = pytest.mark.usefixtures("kept", "hasty")
EVERYTHING = Personal(embedding=2, head=True, normalisation=True)
SMALL_DDPG = DDPG(hidden=(8, 8), batch=4, replay=64, learning_starts=8)
SMALL_PPO = PPO(hidden=(8,), rollout=16, batch=8, epochs=2, lr=1e-2)
CASES = {
    "dqn": TINY,
    "personal dqn": replace(TINY, learner=replace(LEARNER, personal=EVERYTHING)),
    "ppo": replace(TINY, learner=replace(SMALL_PPO, entropy_weight=0.1), updates=100),
    "numbers from 3 on": replace(
        TINY,
        family=fedrl.families.gymnasium(
            "gymnasium_worlds:line", vary={"theta": (1.0, 3.0)}, time_limit=20
        ),
    ),
    "bounds of its own": replace(
        TINY,
        family=fedrl.families.gymnasium(
            "gymnasium_worlds:steered", vary={"theta": (1.0, 3.0)}, time_limit=20
        ),
        learner=SMALL_DDPG,
        updates=20,
    ),
    **{
        name: replace(PENDULUM, learner=learner, updates=20, E=10)
        for name, learner in {
            "ddpg": SMALL_DDPG,
            "personal ddpg": replace(SMALL_DDPG, personal=EVERYTHING),
            "ppo, continuous": replace(SMALL_PPO, actions="continuous"),
        }.items()
    },
}


@pytest.mark.parametrize("name", CASES)
def test_a_device_does_what_our_policy_does(tmp_path, rng, name):
    experiment = CASES[name]
    run = train(experiment, out=tmp_path, progress=False)
    seen = rng.normal(size=(500, experiment.family.observation_size)).astype(np.float32) * 2
    for agent in [None, 1] if experiment.has_own_models else [None]:
        file = export(run, tmp_path / f"{agent}.onnx", agent=agent, seed=1)
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        (actions,) = session.run(["action"], {"observation": seen})
        expected = run.policy(agent, seed=1)(seen)
        if experiment.family.continuous:
            np.testing.assert_allclose(actions, expected, atol=1e-5)
        else:
            assert np.mean(actions == expected) > 0.99  # rounding may decide
        assert len(np.unique(expected)) > 1
        # One at a time, as on a device.
        (one,) = session.run(["action"], {"observation": seen[:1]})
        np.testing.assert_allclose(one[0], actions[0], atol=1e-6)


def test_the_command_writes_a_file_once(tmp_path, capsys):
    run = train(TINY, out=tmp_path, progress=False)
    file = tmp_path / "policy.onnx"
    assert main(["export", str(run.path), "--out", str(file)]) == 0
    assert str(file) in capsys.readouterr().out
    before = file.read_bytes()
    assert main(["export", str(run.path), "--out", str(file)]) == 2
    assert "exists: name another file" in capsys.readouterr().err
    assert file.read_bytes() == before
    with pytest.raises(FedrlError, match="cannot write"):
        export(run, tmp_path / "no" / "such.onnx")


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    run = train(TINY, out=tmp_path, progress=False)
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(FedrlError, match=r"pip install 'fedrl\[export\]'"):
        export(run, tmp_path / "policy.onnx")


class Rounded(MLP):
    """Has layers like ours, and something else between them."""


@dataclass(frozen=True)
class RoundedDQN(DQN):
    """A learner with such a network."""

    def init(self, key, observation_size, actions):
        def network(inputs):
            return Rounded((inputs, *self.hidden, actions), key)

        return self.adopt(self.personal.model(network, key, observation_size))


def test_a_network_that_is_not_ours_is_refused(tmp_path):
    learner = RoundedDQN(hidden=(8,), batch=4, replay=64, learning_starts=8)
    run = train(replace(TINY, learner=learner), out=tmp_path, progress=False)
    with pytest.raises(FedrlError, match=r"only networks of fedrl\.learners\.MLP.*Rounded"):
        export(run, tmp_path / "policy.onnx")
    assert not (tmp_path / "policy.onnx").exists()
