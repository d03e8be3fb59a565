"""What adapting agents must not do, each once done wrong."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from fedrl import FedrlError
from fedrl.cli import commands
from fedrl.cli.main import main
from fedrl.engine.host_loop import actions_of
from fedrl.envs import FamilyEnv
from fedrl.families import Acrobots
from fedrl.report.arms import arms_of, same_draws, told_apart
from fedrl.runs import launch
from fedrl.training import resume
from published import MORE_PERSONAL, PERSONAL, models, publish, same_bits
from tiny import TINY

pytestmark = pytest.mark.usefixtures("kept", "hasty")

PHI = {"method": "phi-update", "every": 10, "progress": False}


@pytest.mark.parametrize("method", ["phi-update", "n-update"])
def test_private_statistics_stay_where_private_parts_are_not_trained(tmp_path, method):
    run = publish(MORE_PERSONAL, tmp_path)
    after = models(run.adapt([1.0], method=method, updates=4, every=4, progress=False))
    for name, before in models(run).items():
        if "view/" in name:
            assert same_bits(after[name][:, 1], before[:, 0]), name


def test_episodes_are_counted_as_episodes_in_gymnasium(tmp_path):
    run = publish(replace(TINY, unit="episodes", updates=8, E=2), tmp_path)
    resets = []

    class Counts(gymnasium.Wrapper):
        def reset(self, *, seed=None, **more):
            resets.append(seed)
            return super().reset(seed=seed, **more)

    env = Counts(gymnasium.make("CartPole-v1"))
    run.adapt(env, method="n-update", updates=30, every=30, progress=False)
    assert len(resets) >= 30


def test_training_does_not_begin_from_the_same_states_after_each_evaluation(tmp_path):
    run = publish(PERSONAL, tmp_path)
    starts = []

    class Looks(gymnasium.Wrapper):
        def reset(self, *, seed=None, **more):
            seen, info = super().reset(seed=seed, **more)
            if seed is None:
                starts.append(tuple(seen))
            return seen, info

    run.adapt(Looks(gymnasium.make("CartPole-v1")), updates=30, every=5, progress=False)
    assert len(set(starts)) == len(starts)


def test_every_evaluation_in_an_environment_has_starts_of_its_own_the_same_for_all_methods(
    tmp_path,
):
    run = publish(PERSONAL, tmp_path)
    starts = []

    class Looks(gymnasium.Wrapper):
        def reset(self, *, seed=None, **more):
            starts[-1].append(seed)
            return super().reset(seed=seed, **more)

    for method in ("e-update", "n-update"):
        starts.append([])
        env = Looks(gymnasium.make("CartPole-v1"))
        run.adapt(env, method=method, updates=4, every=2, episodes=3, progress=False)
    one, other = ([seed for seed in seeds if seed is not None] for seeds in starts)
    assert one == other
    # Three evaluations, and training before each of them but the first, and after the last.
    assert len(set(one)) == len(one) == 3 * 3 + 1 + 2


def test_adaptations_to_other_thetas_are_not_paired(tmp_path):
    run = publish(PERSONAL, tmp_path)
    one, other = (arms_of(run.adapt(t, **PHI))[0] for t in ([0.25, 1.5], [1.0, 1.7]))
    assert not same_draws((one, other))


def test_adaptations_that_begin_differently_have_labels_that_say_so(tmp_path):
    run = publish(PERSONAL, tmp_path)
    arms = [arms_of(run.adapt([1.0], embedding=e, **PHI))[0] for e in ("average", "random")]
    labels = [arm.label for arm in told_apart(arms)]
    assert len(set(labels)) == 2
    assert not any("()" in label for label in labels)


def test_an_environment_without_a_time_limit_is_cut_off_like_the_familys(tmp_path):
    run = publish(replace(PERSONAL, family=Acrobots(time_limit=20)), tmp_path)
    env, steps = FamilyEnv(Acrobots(), 1.0), []
    step = env.step

    def counted(action):
        steps.append(action)
        assert len(steps) < 1000
        return step(action)

    env.step = counted
    run.adapt(env, episodes=1, **PHI)


def test_an_adaptation_without_its_start_is_refused(tmp_path, monkeypatch):
    class Stops(launch.Silence):
        def headline(self, text):
            raise KeyboardInterrupt

    run = publish(PERSONAL, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(launch, "Silence", Stops)
        with pytest.raises(KeyboardInterrupt):
            run.adapt([0.25, 1.5], out=tmp_path / "out", **PHI)
    (folder,) = (tmp_path / "out").iterdir()
    (folder / "start.npz").unlink()
    with pytest.raises(FedrlError, match=r"start\.npz.* is missing or was changed"):
        resume(folder, progress=False)


def test_the_largest_action_is_within_the_bounds():
    class Family:
        observation_size, continuous, actions = 1, True, 1

    class Env:
        observation_space = spaces.Box(-1, 1, (1,))

    rng = np.random.default_rng(0)
    for low, high in np.sort(rng.normal(0, 3, (100, 2)), 1).astype(np.float32):
        env = Env()
        env.action_space = spaces.Box(np.array([low]), np.array([high]))
        for x in (-1, 1):
            assert env.action_space.contains(actions_of(env, Family)(np.float32([x])))


def test_a_number_in_an_array_is_no_list_of_environments(tmp_path):
    with pytest.raises(FedrlError, match="theta must be a list"):
        publish(PERSONAL, tmp_path).adapt(np.array(0.5), progress=False)


@pytest.mark.parametrize(
    "arguments",
    [["claims", "--piece", "0"], ["table2", "--agents", "0"]],
)
def test_zero_is_an_argument_too(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("_claims", "_cells"):
        monkeypatch.setattr(commands.Reproduce, name, lambda self: 0)
    assert main(["reproduce", *arguments]) == 2
