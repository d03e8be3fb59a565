"""Adaptations and personalised runs as users meet them: commands, mistakes, reports."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fedrl
from fedrl import FedrlError
from fedrl.cli.main import main
from fedrl.experiment.toml import to_toml
from fedrl.report.arms import arms_of
from fedrl.runs.run_directory import RunDirectory
from published import PERSONAL, publish
from tiny import TINY, contents

OWN = "own environment"


pytestmark = pytest.mark.usefixtures("kept", "hasty")


@pytest.fixture(scope="module")
def run(kept, tmp_path_factory):
    return fedrl.train(PERSONAL, out=tmp_path_factory.mktemp("runs"), progress=False)


@pytest.fixture(scope="module")
def adapted(run):
    """Folders of two adaptations, made by commands."""
    folders = []
    for method in ("e-update", "phi-update"):
        assert main(["adapt", str(run.path), "--method", method, "--every", "10"]) == 0
        folders += run.path.glob(f"adapted/personal-{method}-*")
    assert len(folders) == 2
    return folders


def words(text):
    """What is said, whatever the lines and boxes."""
    return re.sub(r"[\s│]+", " ", text)


def refused(arguments, capsys):
    try:
        status = main(arguments)
    except SystemExit as stopped:
        status = stopped.code
    assert status == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return words(error)


def test_adapt_writes_a_run_and_reports_it(run, adapted, capsys):
    before = (adapted[0] / "metrics.csv").stat().st_mtime_ns
    assert main(["adapt", str(run.path), "--method", "e-update", "--every", "10"]) == 0
    output = words(capsys.readouterr().out)
    assert "personal-e-update" in output
    assert OWN in output
    assert f"run: {adapted[0]}" in output
    assert (adapted[0] / "figures" / "report.csv").is_file()
    # It was there already.
    assert (adapted[0] / "metrics.csv").stat().st_mtime_ns == before


def test_settings_of_an_adaptation_reach_it(run, tmp_path):
    arguments = ["--method", "phi-update", "--theta", "0.5", "1.5", "--embedding", "random"]
    arguments += ["--updates", "30", "--every", "15", "--episodes", "2", "--embedding-lr", "0.25"]
    assert main(["adapt", str(run.path), *arguments, "--out", str(tmp_path)]) == 0
    (folder,) = tmp_path.iterdir()
    found = fedrl.Run(folder)
    experiment = found.experiment
    assert (experiment.updates, experiment.evaluation.every) == (30, 15)
    assert experiment.evaluation.episodes == 2
    assert experiment.learner.personal.embedding_lr == 0.25
    assert experiment.learner.trains == "nothing"
    assert sorted(set(found.metrics()["theta"])) == [0.5, 1.5]
    with np.load(folder / "start.npz") as begins:
        assert len(np.unique(begins["view/embedding"])) == 2 * 2 * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "f-update"], "f-update"),
        ([], "method"),
        (["--method", "e-update", "--theta", "-1"], "(length, positive)"),
        (["--method", "e-update", "--updates", "-5"], "updates must be an integer"),
    ],
)
def test_an_adaptation_that_makes_no_sense_is_refused(run, capsys, arguments, message):
    before = contents(run.path)
    assert message in refused(["adapt", str(run.path), *arguments], capsys)
    assert contents(run.path) == before


def test_e_update_of_a_run_that_shares_everything_is_refused(tmp_path, capsys):
    plain = publish(TINY, tmp_path)
    message = refused(["adapt", str(plain.path), "--method", "e-update"], capsys)
    assert "the agents of this run share everything: use n-update" in message


@pytest.mark.parametrize(
    ("theta", "settings", "message"),
    [
        (None, {"method": "f-update"}, "unknown method 'f-update': did you mean"),
        (None, {"embedding": "zero"}, "unknown embedding 'zero'"),
        (None, {"metod": "e-update"}, "unknown setting of an adaptation 'metod': did you mean"),
        (None, {"updates": 0}, "updates must be an integer of at least 1, got 0"),
        (None, {"every": 0}, "evaluation.every must be an integer of at least 1, got 0"),
        (None, {"episodes": 0}, "evaluation.episodes must be an integer of at least 1, got 0"),
        (None, {"embedding_lr": -1.0}, "embedding_lr must be a number from"),
        ([0.5, -1.0], {}, r"theta of cartpoles must be 1 number \(length, positive\)"),
        ([[0.5, 1.0]], {}, "theta of cartpoles must be 1 number"),
        ([], {}, "theta must be a list of environments"),
        (0.5, {}, "theta must be a list of environments, got 0.5"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(run, theta, settings, message):
    before = contents(run.path)
    with pytest.raises(FedrlError, match=message):
        run.adapt(theta, **settings, progress=False)
    assert contents(run.path) == before


@pytest.mark.parametrize(
    ("experiment", "settings", "message"),
    [
        (TINY, {"method": "e-update"}, "the agents of this run share everything: use n-update"),
        (TINY, {}, "e-update trains what is private"),
        (TINY, {"method": "n-update", "embedding_lr": 0.1}, "embedding_lr = 0.1: .* no embedding"),
        (
            TINY,
            {"method": "n-update", "embedding": "random"},
            "embedding = random: .* no embedding",
        ),
        (replace(PERSONAL, held_out=0), {}, "no held-out environments: say where with theta"),
    ],
)
def test_what_does_not_fit_the_run_is_refused(tmp_path, experiment, settings, message):
    published = publish(experiment, tmp_path)
    before = contents(published.path)
    with pytest.raises(FedrlError, match=message):
        published.adapt(**settings, progress=False)
    assert contents(published.path) == before


def test_a_run_that_is_not_finished_cannot_be_adapted(tmp_path):
    directory = RunDirectory.create(tmp_path, PERSONAL)
    before = contents(directory.path)
    for environment in (None, [0.25, 1.5]):
        with pytest.raises(FedrlError, match="is not finished: `fedrl resume"):
            fedrl.Run(directory.path).adapt(environment, progress=False)
    assert contents(directory.path) == before


def test_adapted_runs_are_evaluated_and_resumed_like_others(adapted, capsys):
    assert main(["evaluate", str(adapted[0]), "--theta", "1", "--agent", "1"]) == 0
    assert "2 seeds, 20 greedy episodes each" in capsys.readouterr().out
    assert main(["resume", str(adapted[0])]) == 0
    assert "is finished already" in words(capsys.readouterr().out)


def test_adaptations_are_compared_pair_by_pair(adapted, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["report", *map(str, adapted), "--out", str(tmp_path)]) == 0
    output = words(capsys.readouterr().out)
    assert "personal-e-update − personal-phi-update" in output
    assert "held-out" not in output
    arms = [arms_of(fedrl.Run(folder))[0] for folder in adapted]
    assert [set(arm.curves) for arm in arms] == [{OWN}, {OWN}]
    for folder, arm in zip(adapted, arms, strict=True):
        frame = fedrl.Run(folder).metrics()
        frame = frame[frame["metric"] == "return"]
        by_hand = frame.groupby(["seed", "updates"])["value"].mean().unstack()
        np.testing.assert_allclose(arm.curves[OWN], by_hand)
        assert arm.updates.tolist() == [0, 10, 20, 30]
    written = pd.read_csv(tmp_path / "comparison.csv")
    assert set(written["arm"]) == {"personal-e-update", "personal-phi-update"}
    assert len(written) == 2 * 2 * 4


def test_an_agents_own_environment_is_met_with_its_own_model(run):
    (arm,) = arms_of(run)
    assert arm.label == "PerDQNAvg, E = 10"
    frame = run.metrics()
    frame = frame[(frame["metric"] == "return") & (frame["split"] == "train")]
    of_agents = frame["agent"] != "average"
    assert (frame["agent"] == frame["environment"].astype(str))[of_agents].all()
    for split, rows in ((OWN, frame[of_agents]), ("train", frame[~of_agents])):
        assert len(rows) == 2 * 2 * 4
        by_hand = rows.groupby(["seed", "updates"])["value"].mean().unstack()
        np.testing.assert_allclose(arm.curves[split], by_hand)
    assert not np.array_equal(arm.curves[OWN], arm.curves["train"])
    assert set(arm.curves) == {OWN, "train", "held-out"}


def test_personal_runs_are_compared_with_plain_ones(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "experiment.toml").write_text(to_toml(TINY))
    metrics = run.metrics()
    metrics[metrics["agent"] == "average"].to_csv(plain / "metrics.csv", index=False)
    assert main(["report", str(plain), str(run.path), "--out", str(tmp_path)]) == 0
    output = words(capsys.readouterr().out)
    assert "PerDQNAvg, E = 10 − DQNAvg, E = 10" in output
    assert "DQNAvg, E = 10 − PerDQNAvg" not in output


def test_a_run_without_held_out_environments_is_reported(run, tmp_path, capsys):
    (tmp_path / "experiment.toml").write_text(to_toml(replace(PERSONAL, held_out=0)))
    metrics = run.metrics()
    metrics[metrics["split"] != "held-out"].to_csv(tmp_path / "metrics.csv", index=False)
    assert main(["report", str(tmp_path)]) == 0
    output = words(capsys.readouterr().out)
    assert "PerDQNAvg, E = 10" in output
    assert OWN in output
    assert "held-out" not in output
    assert set(pd.read_csv(tmp_path / "figures" / "report.csv")["split"]) == {"train", OWN}
