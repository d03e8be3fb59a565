"""Runs: what is in their folders, what their policies do, and that nothing is lost or repeated."""

import json
import shutil
import signal
from dataclasses import replace
from math import inf

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedrl
from fedrl import FedrlError
from fedrl.engine import plan
from fedrl.engine.footprint import needed_bytes
from fedrl.experiment.settings import read_experiment
from fedrl.keys import Purpose
from fedrl.progress import Silence
from fedrl.runs import checkpoint, driver
from fedrl.runs.run_directory import RunDirectory
from fedrl.training import resume
from tiny import TINY, Died, DiesAfter, contents, results

ALONE = replace(TINY, E=inf)
LEGS = 4  # evaluations after 0, 20, 40 and 60 updates

pytestmark = pytest.mark.usefixtures("kept", "hasty")


@pytest.fixture(scope="module")
def run(kept, hasty, tmp_path_factory):
    return fedrl.train(TINY, out=tmp_path_factory.mktemp("runs"), progress=False)


@pytest.fixture(scope="module")
def alone(kept, hasty, tmp_path_factory):
    return fedrl.train(ALONE, out=tmp_path_factory.mktemp("runs"), progress=False)


def test_a_run_knows_how_long_it_took_all_processes_together(tmp_path, monkeypatch):
    seconds = iter(range(0, 10_000, 100))  # of a clock that is looked at

    class Clock:
        monotonic = staticmethod(lambda: float(next(seconds)))

    directory = RunDirectory.create(tmp_path, TINY)
    assert directory.seconds is None
    monkeypatch.setattr(driver, "time", Clock)
    with pytest.raises(Died):
        driver.carry_out(directory, DiesAfter(5))
    first = directory.seconds
    driver.carry_out(directory, Silence())
    assert 0 < first < directory.seconds <= next(seconds)
    assert fedrl.Run(directory.path).seconds == directory.seconds
    assert directory.seconds % 100 == 0


def test_a_run_directory_says_what_was_asked_measured_and_learnt(run):
    assert run.path.name == TINY.directory_name == f"tiny-{TINY.digest}"
    names = {file.name for file in run.path.iterdir()}
    about_it = {"experiment.toml", "about.json", "seconds.txt", "metrics.csv", "models.npz"}
    assert names == about_it | {"SHA256SUMS", "checkpoints", ".lock"}
    assert (run.path / "checkpoints" / f"{LEGS - 1:08d}.npz").is_file()
    assert read_experiment(run.path / "experiment.toml") == run.experiment == TINY
    about = json.loads((run.path / "about.json").read_text())
    assert about["versions"]["jax"] == jax.__version__
    assert run.finished


def test_every_model_is_measured_in_every_environment_at_every_evaluation(run, alone):
    for measured, models in ((run, ["average"]), (alone, ["average", "0", "1"])):
        frame = measured.metrics()
        header = "seed,round,updates,agent,environment,theta,split,metric,value"
        assert ",".join(frame.columns) == header
        returns = frame[frame["metric"].isin(["return", "discounted_return"])]
        places = {("train", 0), ("train", 1), ("held-out", 0), ("held-out", 1)}
        expected = {
            (seed, updates, model, *place, metric)
            for seed in (0, 1)
            for updates in (0, 20, 40, 60)
            for model in models
            for place in places
            for metric in ("return", "discounted_return")
        }
        columns = ["seed", "updates", "agent", "split", "environment", "metric"]
        assert len(returns) == len(expected)
        assert set(returns[columns].itertuples(index=False, name=None)) == expected
        rounds = returns["updates"] // 10 if measured is run else 0
        assert (returns["round"] == rounds).all()


def test_a_loss_is_reported_for_each_agent_and_stretch_of_training(run):
    frame = run.metrics()
    learning = frame[frame["split"] == "learning"]
    assert set(learning["metric"]) == {"loss", "explored_return"}
    loss = learning[learning["metric"] == "loss"]
    assert len(loss) == 2 * 2 * (LEGS - 1)
    assert (loss["value"] > 0).all()
    assert (loss["agent"] == loss["environment"].astype(str)).all()
    explored = learning[learning["metric"] == "explored_return"]["value"]
    assert explored.between(1, 20).all()


def test_an_environment_keeps_its_theta_and_no_two_have_the_same(run, alone):
    place = ["seed", "split", "environment"]
    of_place = run.metrics().groupby(place)["theta"]
    assert (of_place.nunique() == 1).all()
    thetas = of_place.first()
    assert thetas.between(0.2, 1.8).all()
    np.testing.assert_array_equal(thetas.xs("train", level=1), thetas.xs("learning", level=1))
    assert thetas.drop("learning", level=1).nunique() == 2 * 4
    # The environments of an experiment do not depend on how its agents communicate.
    assert (thetas == alone.metrics().groupby(place)["theta"].first()).all()


def test_returns_of_cart_poles_count_steps_and_discount_them(run, alone):
    for measured in (run, alone):
        frame = measured.metrics()
        wide = frame[frame["split"] != "learning"].pivot_table(
            index=["seed", "updates", "agent", "split", "environment"],
            columns="metric",
            values="value",
        )
        assert wide["return"].between(1, 20).all()
        assert (wide["return"] % 1 == 0).all()
        assert wide["return"].nunique() > 2
        gamma = TINY.learner.gamma
        expected = (1 - gamma ** wide["return"]) / (1 - gamma)
        np.testing.assert_allclose(wide["discounted_return"], expected, rtol=1e-5)


def numpy_action(path, seed, model, observations):
    with np.load(path / "models.npz") as arrays:
        x = np.asarray(observations, np.float64)
        for layer in (0, 1):
            weight = arrays[f"network/layers/{layer}/weight"][seed, model]
            # The last layer is stored with its outputs first.
            weight = weight.T if layer == 1 else weight
            x = x @ weight + arrays[f"network/layers/{layer}/bias"][seed, model]
            x = np.maximum(x, 0) if layer == 0 else x
    return x.argmax(-1)


def test_the_policy_takes_the_action_of_largest_q(run, alone, rng):
    observations = rng.normal(0, 30, size=(200, 4)).astype(np.float32)
    taken = []
    for seed in (0, 1):
        cases = [(run, None, 0), (alone, None, 0), (alone, 0, 1), (alone, 1, 2)]
        for measured, agent, model in cases:
            expected = numpy_action(measured.path, seed, model, observations)
            policy = measured.policy(agent, seed)
            np.testing.assert_array_equal(policy(observations), expected)
            assert policy(observations[0]) == expected[0]
            taken.append(expected)
    # A wrong seed, agent or layout would be noticed.
    assert len(np.unique(taken, axis=0)) > 4


def test_the_average_of_agents_alone_is_numpys_mean_of_their_models(alone):
    with np.load(alone.path / "models.npz") as arrays:
        assert len(arrays.files) == 4
        for name in arrays.files:
            models = arrays[name]
            assert models.shape[:2] == (2, 3)
            np.testing.assert_allclose(models[:, 0], models[:, 1:].mean(axis=1), atol=1e-6)


def test_the_policy_plays_in_gymnasium(run):
    policy = run.policy()
    env = gymnasium.make("fedrl.envs:fedrl/CartPole-v0", theta=1.0)
    observation, _ = env.reset(seed=0)
    steps, over = 0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        assert reward == 1
        steps, over = steps + 1, terminated or truncated
    assert 8 <= steps <= 500


def test_evaluating_is_playing_the_episodes_one_after_the_other(alone):
    thetas = [0.3, 1.0, 1.7]
    found = alone.evaluate(thetas, agent=1, episodes=3)
    family = TINY.family
    step, policies = jax.jit(family.step), [alone.policy(1, seed) for seed in (0, 1)]
    root = jax.random.fold_in(jax.random.key(TINY.seed), Purpose.PLAYING)
    for seed, policy in enumerate(policies):
        for j, theta in enumerate(thetas):
            constants = family.constants(jnp.array([theta], jnp.float32))
            lengths = []
            for episode in range(3):
                key = jax.random.fold_in(jax.random.fold_in(root, j), episode)
                state, steps, over = family.reset(key), 0, False
                while steps < 20 and not over:
                    state, _, over = step(state, policy(state), constants)
                    steps += 1
                lengths.append(steps)
            assert found.undiscounted[seed, j] == pytest.approx(np.mean(lengths))
            discounted = [(1 - 0.9**n) / (1 - 0.9) for n in lengths]
            assert found.discounted[seed, j] == pytest.approx(np.mean(discounted), rel=1e-5)


def test_the_same_environment_has_the_same_return_wherever_it_is_listed(run):
    found = run.evaluate([0.3, 1.0, 0.3, 1.0], episodes=3, each=True)
    for values in found:
        assert values.shape == (2, 4, 3)
        np.testing.assert_array_equal(values[:, :2], values[:, 2:])
    means = run.evaluate([0.3, 1.0], episodes=3)
    for values, mean in zip(found, means, strict=True):
        np.testing.assert_allclose(values[:, :2].mean(-1), mean, rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"agent": 2}, "agent must be an integer of at least 0 and at most 1"),
        ({"agent": -1}, "agent must be"),
        ({"seed": 2}, "seed must be an integer of at least 0 and at most 1"),
    ],
)
def test_a_model_that_does_not_exist_is_refused(alone, arguments, message):
    with pytest.raises(FedrlError, match=message):
        alone.policy(**arguments)


def test_agents_that_communicate_have_no_models_of_their_own(run):
    with pytest.raises(FedrlError, match="all agents of this run have the averaged model"):
        run.policy(agent=0)


def test_the_same_settings_give_the_same_files_and_another_seed_others(run, tmp_path):
    again = fedrl.train(TINY, out=tmp_path, progress=False)
    assert results(again.path) == results(run.path)
    other = fedrl.train(replace(TINY, seed=1), out=tmp_path, progress=False)
    assert other.path != again.path
    for name, content in results(other.path).items():
        assert content != results(run.path)[name]


def test_a_finished_run_is_returned_as_it_is(run):
    before = contents(run.path)
    again = fedrl.train(TINY, out=run.path.parent, progress=False)
    assert again.path == run.path
    assert resume(run.path, progress=False).path == run.path
    assert contents(run.path) == before


def test_a_folder_with_something_else_is_refused_and_stays_as_it_is(tmp_path):
    folder = tmp_path / TINY.directory_name
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    before = contents(folder)
    with pytest.raises(FedrlError, match="is not empty and not a run of ours"):
        fedrl.train(TINY, out=tmp_path, progress=False)
    with pytest.raises(FedrlError, match=r"is not a run: it has no experiment\.toml"):
        resume(folder, progress=False)
    assert contents(folder) == before


def test_a_folder_with_another_experiment_is_refused_and_stays_as_it_is(run, tmp_path):
    folder = tmp_path / ALONE.directory_name
    shutil.copytree(run.path, folder)
    before = contents(folder)
    with pytest.raises(FedrlError, match="holds another experiment"):
        fedrl.train(ALONE, out=tmp_path, progress=False)
    assert contents(folder) == before


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FedrlError, match="a file is in the way"):
        fedrl.train(TINY, out=tmp_path / "file", progress=False)


def test_two_processes_do_not_work_in_one_run(tmp_path):
    directory = RunDirectory.create(tmp_path, TINY)
    with directory.locked(), pytest.raises(FedrlError, match="another process is working in"):
        fedrl.train(TINY, out=tmp_path, progress=False)
    assert set(contents(directory.path)) == {"experiment.toml", "about.json", "SHA256SUMS"}


class Stopped(Exception):  # noqa: N818
    """The end of the process, as far as the run is concerned."""


class StopsAfter(Silence):
    """Lets a run go until so many legs are measured; what it was warned of."""

    def __init__(self, legs=inf, stop=None):
        self.legs, self.stop, self.warnings = legs, stop, []

    def headline(self, text):
        self.legs -= 1
        if self.legs == 0:
            self.stop()

    def warn(self, text):
        self.warnings.append(text)


def die():
    raise Stopped


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """A run that died after three of four evaluations, with checkpoints of the first two."""
    monkeypatch.setattr(driver._Pause, "over", lambda self: True)
    directory = RunDirectory.create(tmp_path, TINY)
    with pytest.raises(Stopped):
        driver.carry_out(directory, StopsAfter(3, die))
    assert sorted(file.name for file in directory.checkpoints.iterdir()) == [
        "00000000.npz",
        "00000001.npz",
    ]
    return directory


def go_on(directory):
    watcher = StopsAfter()
    driver.carry_out(directory, watcher)
    return watcher.warnings


def test_a_run_that_died_goes_on_as_if_it_had_not(stopped, run):
    frame = fedrl.Run(stopped.path).metrics()
    assert set(frame["updates"]) == {0, 20, 40}
    with pytest.raises(FedrlError, match="is not finished: `fedrl resume"):
        fedrl.Run(stopped.path).policy()
    assert go_on(stopped) == []
    assert results(stopped.path) == results(run.path)
    # The newest checkpoint is kept.
    assert [file.name for file in stopped.checkpoints.iterdir()] == ["00000003.npz"]


@pytest.mark.parametrize("keep", [0, 0.5])
def test_a_damaged_checkpoint_is_passed_over_for_an_older_one(stopped, run, keep):
    newest = checkpoint.checkpoints(stopped.checkpoints)[-1]
    whole = newest.read_bytes()
    newest.write_bytes(whole[: int(keep * len(whole))])
    (warning,) = go_on(stopped)
    assert str(newest) in warning
    assert results(stopped.path) == results(run.path)


def test_flipped_bits_in_a_checkpoint_are_noticed(stopped, run):
    newest = checkpoint.checkpoints(stopped.checkpoints)[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    newest.write_bytes(content)
    (warning,) = go_on(stopped)
    assert "is damaged" in warning
    assert results(stopped.path) == results(run.path)


def test_no_damage_to_the_ends_of_a_checkpoint_is_more_than_a_refusal(stopped):
    newest = checkpoint.checkpoints(stopped.checkpoints)[-1]
    whole, digest = newest.read_bytes(), TINY.digest
    *_, intact = checkpoint.load(newest, digest)
    places = [*range(200), *range(len(whole) - 200, len(whole))]
    refused = 0
    for place in places:
        content = bytearray(whole)
        content[place] ^= 0xFF
        newest.write_bytes(content)
        try:
            *_, leaves = checkpoint.load(newest, digest)
        except FedrlError:
            refused += 1
        else:  # a byte that says nothing, such as a date
            assert all(np.array_equal(a, b) for a, b in zip(leaves, intact, strict=True))
    assert refused > len(places) / 4


def test_a_run_whose_settings_were_edited_is_not_continued(stopped):
    file = stopped.path / "experiment.toml"
    file.write_text(file.read_text("utf-8").replace("updates = 60", "updates = 80"), "utf-8")
    before = sorted(stopped.path.rglob("*"))
    with pytest.raises(FedrlError, match="not what this run began with"):
        resume(stopped.path, progress=False)
    assert sorted(stopped.path.rglob("*")) == before


def test_what_a_kill_in_the_middle_of_writing_left_is_swept_away(stopped, run):
    stale = stopped.checkpoints / ".00000009.npz.abcdef"
    stale.write_bytes(b"half a checkpoint")
    go_on(stopped)
    assert not stale.exists()
    assert results(stopped.path) == results(run.path)


def test_an_experiment_that_does_not_fit_is_refused_before_anything_is_written(tmp_path):
    huge = replace(TINY, agents=10**6, seeds=1000)
    # A replay of 64 rows of 11 numbers of 4 bytes, at least, for each agent of each seed.
    assert needed_bytes(huge) > 10**9 * 64 * 11 * 4
    assert needed_bytes(TINY) < 10**6
    with pytest.raises(FedrlError, match=r"GB of memory .*: lower seeds"):
        fedrl.train(huge, out=tmp_path, progress=False)
    assert list(tmp_path.iterdir()) == []


def test_training_something_else_than_an_experiment_is_a_clear_error(tmp_path):
    with pytest.raises(FedrlError, match="experiment must be Experiment, got 'cartpoles-dqnavg'"):
        fedrl.train("cartpoles-dqnavg", out=tmp_path)


def test_without_any_good_checkpoint_a_run_begins_again(stopped, run):
    for file in checkpoint.checkpoints(stopped.checkpoints):
        file.write_bytes(b"PK")
    *refused, beginning = go_on(stopped)
    assert len(refused) == 2
    assert "starting from the beginning" in beginning
    assert results(stopped.path) == results(run.path)


def test_a_checkpoint_of_another_experiment_is_not_used(stopped, run):
    other = replace(TINY, seed=1)
    *_, leaves = checkpoint.load(checkpoint.checkpoints(stopped.checkpoints)[-1], TINY.digest)
    checkpoint.save(stopped.checkpoints, other.digest, 2, 40, [0 * leaf for leaf in leaves])
    (warning,) = go_on(stopped)
    assert f"belongs to another experiment ({other.digest})" in warning
    assert results(stopped.path) == results(run.path)


def test_a_checkpoint_of_other_shapes_is_not_used(stopped, run):
    *_, leaves = checkpoint.load(checkpoint.checkpoints(stopped.checkpoints)[-1], TINY.digest)
    checkpoint.save(stopped.checkpoints, TINY.digest, 2, 40, leaves[:-1])
    (warning,) = go_on(stopped)
    assert "arrays of other shapes" in warning
    assert results(stopped.path) == results(run.path)


def test_a_checkpoint_from_elsewhere_in_the_plan_is_not_used(stopped, run, monkeypatch):
    monkeypatch.setattr(plan, "STRETCH", plan.STRETCH * 15 / plan.stretch(TINY))
    monkeypatch.setattr(plan, "SHORTEST", 1)
    assert len(list(plan.plan(TINY))) == 7  # a round each instead of two
    (warning,) = go_on(stopped)
    assert "pauses at other places" in warning
    assert results(stopped.path) == results(run.path)


def test_a_run_that_died_before_its_models_were_written_is_finished(run, tmp_path):
    folder = tmp_path / run.path.name
    shutil.copytree(run.path, folder)
    (folder / "models.npz").unlink()
    fedrl.train(TINY, out=tmp_path, progress=False)
    assert results(folder) == results(run.path)


def test_who_is_asked_to_stop_saves_first(run, tmp_path):
    number = signal.SIGTERM
    before = signal.getsignal(number)
    directory = RunDirectory.create(tmp_path, TINY)
    watcher = StopsAfter(2, lambda: signal.raise_signal(number))
    with pytest.raises(KeyboardInterrupt):
        driver.carry_out(directory, watcher)
    assert "stopping in a moment" in watcher.warnings[0]
    assert (directory.checkpoints / "00000001.npz").is_file()
    assert not (directory.checkpoints / "00000002.npz").exists()
    assert signal.getsignal(number) == before
    assert go_on(directory) == []
    assert results(directory.path) == results(run.path)
