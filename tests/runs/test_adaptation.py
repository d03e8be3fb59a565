"""Adaptations to new environments: runs like all others, that train what their method says."""

import shutil
from dataclasses import replace
from math import inf

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedrl
from fedrl.engine.evaluation import greedy_returns
from fedrl.experiment.settings import Evaluation, read_experiment
from fedrl.keys import Purpose, replicate_key
from fedrl.progress import Silence
from fedrl.runs import driver, launch
from fedrl.runs import run as run_module
from fedrl.runs.adaptation import METHODS, Adaptation, experiment_of
from fedrl.training import resume
from published import (
    MORE_PERSONAL,
    PENDULUM,
    PERSONAL,
    is_private,
    models,
    publish,
    same_bits,
    start,
)
from tiny import contents, results

THETAS = [0.25, 1.5]


pytestmark = pytest.mark.usefixtures("kept", "hasty")


@pytest.fixture(scope="module")
def run(kept, tmp_path_factory):
    return fedrl.train(PERSONAL, out=tmp_path_factory.mktemp("runs"), progress=False)


@pytest.fixture(scope="module")
def adapted(run):
    """Adaptations to the held-out environments of a run, by method; each is made once."""
    made = {}

    def adapt(method):
        if method not in made:
            made[method] = run.adapt(method=method, every=10, progress=False)
        return made[method]

    return adapt


def returns(run):
    """(seeds, evaluations, environments)."""
    frame = run.metrics()
    frame = frame[frame["metric"] == "return"]
    assert set(frame["split"]) == {"train"}
    assert (frame["agent"] == frame["environment"].astype(str)).all()
    table = frame.pivot_table(index="seed", columns=["updates", "environment"], values="value")
    seeds, agents = run.experiment.seeds, run.experiment.agents
    return table.to_numpy().reshape(seeds, -1, agents)


def test_an_adaptation_is_a_run_below_the_one_it_comes_from(run, adapted):
    own = adapted("e-update")
    assert own.path.parent == run.path / "adapted"
    assert own.path.name.startswith("personal-e-update-")
    names = {file.name for file in own.path.iterdir()}
    assert {"experiment.toml", "start.npz", "metrics.csv", "models.npz"} <= names
    assert own.finished
    experiment = own.experiment
    assert read_experiment(own.path / "experiment.toml") == experiment
    # An agent in each of the held-out environments, which never communicates.
    assert (experiment.agents, experiment.held_out, experiment.E) == (2, 0, inf)
    assert experiment.learner.trains == "private"
    # Half as long as the run, and its agents need not begin with random actions.
    assert experiment.updates == 30
    assert experiment.learner.epsilon_start == PERSONAL.learner.epsilon_end
    assert experiment.learner.replay == 30 + 8
    assert returns(own).shape == (2, 4, 2)
    assert set(own.metrics()["updates"]) == {0, 10, 20, 30}


def test_what_is_not_said_follows_from_the_run():
    long = replace(PERSONAL, updates=1000, evaluation=Evaluation(every=50, episodes=3))
    found = experiment_of(Adaptation(), long, 7)
    assert (found.name, found.agents, found.updates) == ("personal-e-update", 7, 500)
    assert found.evaluation == Evaluation(every=25, episodes=3, where="own")
    assert found.learner.replay == long.learner.replay
    said = Adaptation("scratch", updates=80, every=40, episodes=2, embedding_lr=0.5)
    found = experiment_of(said, long, 7)
    assert (found.updates, found.name) == (80, "personal-scratch")
    assert found.evaluation == Evaluation(every=40, episodes=2, where="own")
    assert found.learner.personal == replace(long.learner.personal, embedding_lr=0.5)
    # Who knows nothing has to explore.
    assert found.learner.epsilon_start == long.learner.epsilon_start


def test_what_others_get_of_a_run_is_enough_to_adapt_it(run, adapted, tmp_path):
    for name in ("experiment.toml", "models.npz"):
        shutil.copy(run.path / name, tmp_path)
    own = fedrl.Run(tmp_path).adapt(method="e-update", every=10, progress=False)
    original = adapted("e-update")
    assert own.path == tmp_path / "adapted" / original.path.name
    assert results(own.path) == results(original.path)


def test_the_same_adaptation_again_is_not_run_again(run, adapted):
    before = contents(adapted("e-update").path)
    again = run.adapt(method="e-update", every=10, progress=False)
    assert again.path == adapted("e-update").path
    assert contents(again.path) == before


def test_other_environments_other_starts_and_other_settings_go_to_folders_of_their_own(run):
    here = {"method": "phi-update", "every": 10, "progress": False}
    made = [
        run.adapt(THETAS, **here),
        run.adapt(THETAS[::-1], **here),
        run.adapt(THETAS, **here, embedding="random"),
        run.adapt(THETAS, **{**here, "every": 15}),
    ]
    assert len({one.path for one in made}) == 4
    for one, thetas in zip(made, (THETAS, THETAS[::-1], THETAS, THETAS), strict=True):
        assert start(one)["thetas"].dtype == np.float32
        assert start(one)["thetas"][..., 0].tolist() == [thetas, thetas]
        measured = one.metrics().groupby(["seed", "environment"])["theta"].unique()
        assert [list(x) for x in measured] == [[theta] for theta in [*thetas, *thetas]]


def test_an_adaptation_can_be_put_elsewhere(run, tmp_path):
    there = tmp_path / "new" / "folder"
    settings = {"method": "phi-update", "every": 10, "progress": False}
    assert run.adapt(THETAS, out=there, **settings).path.parent == there
    assert run.adapt(THETAS, out=str(there), **settings).path.parent == there
    assert len(list(there.iterdir())) == 1


class StopsAfter(Silence):
    """Lets a run go until so many evaluations are measured."""

    def __init__(self, evaluations):
        self.left = evaluations

    def headline(self, text):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize(("evaluations", "checkpoints"), [(1, 0), (3, 2)])
def test_an_adaptation_that_was_interrupted_goes_on_as_if_it_had_not(
    run, adapted, tmp_path, monkeypatch, evaluations, checkpoints
):
    monkeypatch.setattr(driver._Pause, "over", lambda self: True)
    monkeypatch.setattr(launch, "Silence", lambda: StopsAfter(evaluations))
    settings = {"method": "en-update", "every": 10, "out": tmp_path, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        run.adapt(**settings)
    (folder,) = tmp_path.iterdir()
    assert len(list(folder.glob("checkpoints/*.npz"))) == checkpoints
    assert not fedrl.Run(folder).finished
    monkeypatch.undo()
    # Nothing but its own folder is needed to go on.
    if checkpoints:
        assert run.adapt(**settings).path == folder
    else:
        resume(folder, progress=False)
    assert results(folder) == results(adapted("en-update").path)


@pytest.fixture(scope="module")
def pendulum(kept, tmp_path_factory):
    return publish(PENDULUM, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def more(kept, tmp_path_factory):
    return publish(MORE_PERSONAL, tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("kind", ["run", "more", "pendulum"])
@pytest.mark.parametrize("method", ["e-update", "n-update", "phi-update"])
def test_what_is_not_trained_stays_bit_for_bit_and_all_else_changes(adapted, kind, method, request):
    published = request.getfixturevalue(kind)
    after = (
        adapted(method)
        if kind == "run"
        else published.adapt([1.0, 1.5], method=method, updates=10, every=10, progress=False)
    )
    before, after = models(published), models(after)
    assert before.keys() == after.keys()
    for name, array in after.items():
        assert np.isfinite(array).all()
        private = is_private(name, published.experiment)
        trained = method != "phi-update" and private == (method == "e-update")
        if method == "n-update" and "normaliser" in name:
            continue  # statistics are counted, not trained
        for seed in (0, 1):
            for agent in (1, 2):
                kept = same_bits(array[seed, agent], before[name][seed, 0])
                assert kept != trained, name


def test_en_update_changes_everything_and_phi_update_nothing(run, adapted):
    before, en, phi = (models(x) for x in (run, adapted("en-update"), adapted("phi-update")))
    for name, array in before.items():
        for model in range(3):
            assert same_bits(phi[name][:, model], array[:, 0])
            assert not np.isclose(en[name][:, model], array[:, 0]).all()
    trained = adapted("phi-update").metrics()
    assert set(trained["updates"]) == {0, 10, 20, 30}
    assert "loss" not in set(trained["metric"])


@pytest.fixture
def begun(run, tmp_path, monkeypatch):
    """An adaptation that has not done anything yet."""
    monkeypatch.setattr(run_module, "go_on", lambda directory, console: None)
    return lambda **settings: run.adapt(**settings, out=tmp_path, progress=False)


def test_scratch_begins_with_networks_that_nobody_has_trained(run, begun):
    scratch = begun(method="scratch")
    published, begins = models(run), start(scratch)
    for name in published:
        assert len(np.unique(begins[name].reshape(4, -1), axis=0)) == 4
        assert not np.isclose(begins[name], published[name][:, :1]).any()
    assert scratch.experiment.learner.trains == "everything"


def test_an_adaptation_begins_with_the_mean_of_the_trained_embeddings(run, adapted):
    published = models(run)
    trained = published["view/embedding"][:, 1:]
    # The agents' own differ, and so does every one from their mean.
    assert np.abs(trained - trained.mean(1, keepdims=True)).min() > 1e-3
    for method in ("e-update", "en-update", "phi-update", "n-update"):
        begins = start(adapted(method))
        for environment in (0, 1):
            np.testing.assert_allclose(
                begins["view/embedding"][:, environment], trained.mean(1), rtol=1e-6
            )
            for name, array in published.items():
                assert same_bits(begins[name][:, environment], array[:, 0])


def test_a_random_embedding_is_another_one_in_every_environment(run, begun):
    begins = start(begun(method="e-update", embedding="random"))
    for name, array in models(run).items():
        if name != "view/embedding":
            for environment in (0, 1):
                assert same_bits(begins[name][:, environment], array[:, 0])
    drawn = begins["view/embedding"]
    assert drawn.shape == (2, 2, 2)
    assert len(np.unique(drawn)) == drawn.size
    assert 0.25 < np.abs(drawn).max() <= 0.5
    # All methods begin alike.
    for method in ("en-update", "n-update", "phi-update"):
        assert same_bits(start(begun(method=method, embedding="random"))["view/embedding"], drawn)


def test_new_environments_are_the_held_out_ones_unless_given(run, adapted):
    frame = run.metrics()
    held_out = frame[frame["split"] == "held-out"]
    expected = held_out.groupby(["seed", "environment"])["theta"].first()
    for method in ("e-update", "phi-update"):
        found = adapted(method).metrics().groupby(["seed", "environment"])["theta"]
        assert (found.nunique() == 1).all()
        assert (found.first() == expected).all()
        thetas = start(adapted(method))["thetas"]
        assert same_bits(thetas.ravel(), expected.to_numpy(np.float32))


def test_all_methods_meet_the_same_beginnings_and_none_of_them_the_runs(adapted):
    methods = ("e-update", "en-update", "phi-update", "n-update")
    untrained = [returns(adapted(method))[:, 0] for method in methods]
    assert len(np.unique(untrained[0])) > 1
    for other in untrained[1:]:
        np.testing.assert_array_equal(other, untrained[0])
    # Later on they differ, or the above would say nothing.
    assert not np.array_equal(returns(adapted("en-update")), returns(adapted("phi-update")))
    seeds = {experiment_of(Adaptation(method), PERSONAL, 2).seed for method in METHODS}
    assert seeds == {adapted("e-update").experiment.seed}
    others = (experiment_of(Adaptation(), replace(PERSONAL, seed=i), 2).seed for i in range(50))
    assert seeds == {next(others)}
    assert PERSONAL.seed not in seeds
    assert not seeds & set(others)


def by_hand(run, models, seed, trained):
    """What `models` get in the environments of an adaptation, (models, environments)."""
    experiment = run.experiment
    key = replicate_key(experiment.seed, jnp.int32(seed), Purpose.EVALUATION)
    thetas = jnp.asarray(start(run)["thetas"][seed])
    key = jax.random.fold_in(key, trained)
    family, policy = experiment.family, experiment.learner.policy
    return greedy_returns(family, policy, models, thetas, key, episodes=1, gamma=0.9).undiscounted


def test_phi_update_measures_the_average_model_where_it_was_not_trained(run, adapted):
    found = returns(adapted("phi-update"))
    for seed in (0, 1):
        model = jax.tree.map(lambda leaf: leaf[None], run.model(seed=seed))
        for number, trained in enumerate((0, 10, 20, 30)):
            expected = by_hand(adapted("phi-update"), model, seed, trained)
            np.testing.assert_array_equal(found[seed, number], expected[0])


def test_the_last_evaluation_is_of_the_models_that_are_kept_each_at_home(run):
    # From random embeddings, so that they differ.
    random = run.adapt(method="en-update", embedding="random", every=30, progress=False)
    differ = False
    for seed in (0, 1):
        models = [random.model(agent, seed) for agent in (None, 0, 1)]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
        expected = np.asarray(by_hand(random, stacked, seed, 30))
        at_home = np.diag(expected[1:])
        np.testing.assert_array_equal(returns(random)[seed, -1], at_home)
        differ |= not np.array_equal(expected[0], at_home)
    assert differ
