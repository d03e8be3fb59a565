"""Runs as a user of the command meets them."""

import re
from dataclasses import fields, is_dataclass, replace
from math import inf

import numpy as np
import pytest
import scipy.stats
from PIL import Image

import fedrl
from fedrl.cli.main import main
from fedrl.experiment.presets import PRESETS, preset
from fedrl.experiment.settings import from_toml
from fedrl.experiment.toml import to_toml
from fedrl.families import GymnasiumFamily
from fedrl.strategies import Momentum, Prox
from fedrl.tabular.experiment import TABULAR_PRESETS
from tiny import TINY

pytestmark = pytest.mark.usefixtures("kept", "hasty")


@pytest.fixture(scope="module")
def folder(kept, tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def settings_file(folder):
    file = folder / "tiny.toml"
    file.write_text(to_toml(TINY))
    return str(file)


@pytest.fixture(scope="module")
def runs(folder, settings_file):
    """A run with communication and one without, made by one command."""
    assert main(["run", settings_file, "--out", str(folder), "--baseline"]) == 0
    return folder / TINY.directory_name, folder / replace(TINY, E=inf).directory_name


@pytest.mark.parametrize("flag", ["--server-optimizer", "--server_optimizer"])
@pytest.mark.parametrize("between", [" ", "="])
def test_parts_of_a_strategy_are_chosen_by_name_and_set(capsys, flag, between):
    words = f"{flag}{between}momentum {flag}.beta 0.5 --correction prox --correction.mu 0.01"
    assert main(["run", "cartpoles-dqnavg", *words.split(), "--dry-run"]) == 0
    told = from_toml(capsys.readouterr().out)
    assert (told.server_optimizer, told.correction) == (Momentum(beta=0.5), Prox(mu=0.01))


def refused(arguments, capsys):
    """What the command says when it refuses."""
    try:
        status = main(arguments)
    except SystemExit as stopped:
        status = stopped.code
    assert status == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    # The boxes that arguments are explained in break lines.
    return re.sub(r"[\s│]+", " ", error)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cartpole-dqnavg"], "unknown preset 'cartpole-dqnavg': did you mean 'cartpoles-dqnavg'"),
        (["missing.toml"], "cannot read missing.toml"),
        (["windycliffs-qavg"], "windycliffs-qavg is for federations over a network only"),
        (["windycliffs-qavg"], "fedrl federation init DIR --experiment windycliffs-qavg"),
        (["cartpoles-dqnavg", "--agnets", "3"], "--agents"),
        (["cartpoles-dqnavg", "--learner.gama", "0.5"], "--learner.gamma"),
        (["cartpoles-dqnavg", "--agents", "three"], "three"),
        (["cartpoles-dqnavg", "--agents", "0"], "agents must be an integer of at least 1"),
        (["cartpoles-dqnavg", "--learner.gamma", "1"], "learner.gamma must be a number in [0, 1)"),
        (["cartpoles-dqnavg", "--learner.loss", "mae"], "mae"),
        (["cartpoles-dqnavg", "--E", "0"], "E must be a positive integer or inf"),
        (["cartpoles-dqnavg", "--E", "30000"], "E = 30000 is longer than the training"),
        (["cartpoles-dqnavg", "--E", "inf", "--baseline"], "this one has it already"),
        (["cartpoles-dqnavg", "--family.length", "2", "1"], "length must be two positive numbers"),
    ],
)
def test_a_mistake_is_explained_and_nothing_is_run(
    tmp_path, monkeypatch, capsys, arguments, message
):
    monkeypatch.chdir(tmp_path)
    assert message in refused(["run", *arguments], capsys)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_run_is_told_from_an_experiment(runs, settings_file, capsys):
    error = refused(["run", str(runs[0])], capsys)
    for command in ("resume", "report"):
        assert f"`fedrl {command} {runs[0]}`" in error
    assert f"`fedrl run {runs[0]}/experiment.toml`" in error
    assert "is a folder: name a preset" in refused(["run", str(runs[0] / "checkpoints")], capsys)
    for command in (["report"], ["resume"], ["evaluate", "--theta", "1"]):
        error = refused([command[0], settings_file, *command[1:]], capsys)
        assert f"{settings_file} is a file, not the folder of a run" in error
        assert f"`fedrl run {settings_file}`" in error


def test_an_experiment_on_tables_is_for_federations(tmp_path, capsys):
    file = tmp_path / "tables.toml"
    file.write_text(to_toml(TABULAR_PRESETS["windycliffs-qavg"]))
    error = refused(["run", str(file)], capsys)
    assert f"{file} is about tables" in error
    assert "fedrl federation init" in error


@pytest.mark.parametrize("low", ["-0.01", "0"])
def test_a_family_without_defaults_takes_its_settings_from_the_command_line(
    tmp_path, monkeypatch, capsys, low
):
    monkeypatch.chdir(tmp_path)
    own = ["--family.environment", "MountainCar-v0", "--family.vary", "goal_velocity", low, "0.02"]
    for first, second in ((["--family", "gymnasium"], own), (["--family=gymnasium"], own)):
        arguments = [*first, "--seeds", "2", *second, "--E", "50"]
        assert main(["run", "cartpoles-dqnavg", "--dry-run", *arguments]) == 0
        experiment = from_toml(capsys.readouterr().out)
        family = experiment.family
        assert family == GymnasiumFamily(
            environment="MountainCar-v0", vary=(("goal_velocity", float(low), 0.02),)
        )
        assert (experiment.seeds, experiment.E, family.time_limit) == (2, 50, 200)


def test_a_family_without_defaults_says_what_it_needs(capsys):
    said = refused(["run", "cartpoles-dqnavg", "--family", "gymnasium"], capsys)
    assert "--family gymnasium has settings that must be given: give them as --family." in said
    assert "family.vary is empty" in said


def test_a_run_without_a_preset_is_explained(capsys):
    assert "preset" in refused(["run"], capsys).lower()


def test_a_dry_run_prints_the_whole_experiment_and_where_it_would_go(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    changes = ["--E", "inf", "--learner.lr", "0.5", "--learner.hidden", "4", "5", "--seed", "7"]
    changes += ["--survives.replay", "False", "--family.length", "1", "2"]
    assert main(["run", "cartpoles-dqnavg", "--dry-run", *changes]) == 0
    output = capsys.readouterr().out
    experiment = from_toml(output)
    default = preset("cartpoles-dqnavg")
    expected = replace(
        default,
        E=inf,
        seed=7,
        learner=replace(default.learner, lr=0.5, hidden=(4, 5)),
        survives=replace(default.survives, replay=False),
        family=replace(default.family, length=(1.0, 2.0)),
    )
    assert experiment == expected
    assert output.splitlines()[-1] == f"# runs/{expected.directory_name}"
    assert list(tmp_path.iterdir()) == []


def names(settings, where=""):
    for field in fields(settings):
        value = getattr(settings, field.name)
        if is_dataclass(value):
            yield from names(value, f"{where}{field.name}.")
        else:
            yield where + field.name


@pytest.mark.parametrize("name", ["cartpoles-dqnavg", "acrobots-dqnavg-released"])
def test_help_documents_every_setting(capsys, name):
    with pytest.raises(SystemExit) as stopped:
        main(["run", name, "--help"])
    assert stopped.value.code == 0
    output = capsys.readouterr().out
    settings = list(names(preset(name)))
    assert len(settings) > 25
    for setting in (*settings, "out", "baseline", "dry-run"):
        assert f"--{setting.replace('_', '-')} " in output or f"--{setting}\n" in output
    for words in ("Step size of Adam", "inf: never communicate", "Root of all random numbers"):
        assert words in re.sub(r"[\s│]+", " ", output)


def test_a_run_that_is_finished_is_reported_again(runs, folder, settings_file, capsys):
    metrics = runs[0] / "metrics.csv"
    before = metrics.stat().st_mtime_ns
    assert main(["run", settings_file, "--out", str(folder)]) == 0
    output = capsys.readouterr().out
    assert f"{runs[0]} is finished already" in output
    assert "DQNAvg, E = 10" in output
    assert metrics.stat().st_mtime_ns == before


def test_a_report_compares_with_baseline_and_writes_figures(runs, tmp_path, capsys):
    assert main(["report", *map(str, runs), "--out", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    for words in ("DQNAvg, E = 10", "E = ∞", "Baseline", "Return at the end", "mean over 2 seeds"):
        assert words in output
    for words in ("DQNAvg, E = 10 − E = ∞", "DQNAvg, E = 10 − Baseline", "Differences"):
        assert words in output
    written = {file.name for file in tmp_path.iterdir()}
    assert "comparison.csv" in written
    assert any(name.startswith("comparison-curves") for name in written)


def test_a_report_of_one_run_has_its_own_arms_only(runs, capsys):
    assert main(["report", str(runs[0])]) == 0
    output = capsys.readouterr().out
    assert "Baseline" not in output
    assert "Differences" not in output
    assert (runs[0] / "figures" / "report.csv").is_file()


def test_a_report_of_what_is_no_run_is_refused(tmp_path, capsys):
    assert "is not a run: it has no experiment.toml" in refused(["report", str(tmp_path)], capsys)
    missing = str(tmp_path / "missing")
    assert "there is no such folder" in refused(["resume", missing], capsys)


def test_evaluate_plays_in_the_environments_that_were_asked_for(runs, capsys):
    command = ["evaluate", str(runs[1]), "--theta", "0.5", "1.5", "--episodes", "2"]
    assert main(command) == 0
    averaged = capsys.readouterr().out
    assert "length" in averaged
    assert "2 seeds, 2 greedy episodes each" in averaged
    rows = [line.split() for line in averaged.splitlines() if re.match(r"\s*[01]\.5\s", line)]
    assert [row[0] for row in rows] == ["0.5", "1.5"]
    for row in rows:
        # At least one step, at most the time limit.
        assert 1 <= float(row[1]) <= 20
    assert main([*command, "--agent", "0"]) == 0


def table_of(arguments, capsys):
    """What `evaluate` prints, and the rows of its table by environment."""
    assert main(["evaluate", *arguments]) == 0
    output = capsys.readouterr().out
    rows = [line.split() for line in output.splitlines() if re.match(r"\s*[01]\.5\s", line)]
    return output, rows


def test_every_theta_is_played_however_they_are_given(runs, capsys):
    path = str(runs[1])
    _, together = table_of([path, "--theta", "0.5", "1.5"], capsys)
    _, repeated = table_of([path, "--theta", "0.5", "--theta", "1.5"], capsys)
    assert repeated == together
    assert [row[0] for row in together] == ["0.5", "1.5"]


def test_an_environment_that_is_listed_again_is_played_once(runs, capsys):
    _, rows = table_of([str(runs[1]), "--theta", "0.5", "1.5", "0.5"], capsys)
    assert [row[0] for row in rows] == ["0.5", "1.5"]


def test_with_one_seed_the_intervals_are_over_its_episodes(settings_file, folder, capsys):
    alone = replace(TINY, seeds=1)
    assert main(["run", settings_file, "--seeds", "1", "--out", str(folder)]) == 0
    run = fedrl.Run(folder / alone.directory_name)
    output, (row,) = table_of([str(run.path), "--theta", "0.5", "--episodes", "30"], capsys)
    assert "1 seed, 30 greedy episodes each (the intervals: over episodes of this one" in output
    lengths = run.evaluate([0.5], episodes=30, each=True).undiscounted[0, 0]
    assert lengths.shape == (30,)
    low, high = scipy.stats.ttest_1samp(lengths, 0).confidence_interval(0.95)
    assert high > low  # they differ, as their starts do
    assert float(row[1]) == pytest.approx(lengths.mean(), abs=0.051)
    assert float(row[3]) == pytest.approx((high - low) / 2, abs=0.051)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "--theta", "0.5", "1.0"], "--theta takes 1 number, got 2"),
        (
            ["evaluate", "--theta", "-1"],
            "must be 1 number (length, positive)",
        ),
        (["evaluate", "--theta", "1", "--agent", "0"], "all agents of this run have the averaged"),
        (
            ["evaluate", "--theta", "1", "--episodes", "0"],
            "episodes must be an integer",
        ),
        (["show", "--theta", "1", "--seed", "2"], "seed must be an integer of at least 0 and at"),
    ],
)
def test_a_question_that_a_run_cannot_answer_is_refused(runs, capsys, arguments, message):
    command, *rest = arguments
    assert message in refused([command, str(runs[0]), *rest], capsys)


def test_theta_of_a_family_with_two_constants_comes_in_pairs():
    from fedrl.cli.existing_runs import grouped
    from fedrl.errors import FedrlError

    assert grouped(((1.0, 2.0, 3.0, 4.0),), 2) == [(1.0, 2.0), (3.0, 4.0)]
    assert grouped(((1.0, 2.0), (3.0, 4.0)), 2) == [(1.0, 2.0), (3.0, 4.0)]
    for numbers in ((), (1.0,), (1.0, 2.0, 3.0)):
        with pytest.raises(FedrlError, match=rf"takes 2 number.*got {len(numbers)}"):
            grouped((numbers,), 2)
    with pytest.raises(FedrlError, match=r"takes 2 number.*got 1 and 1"):
        grouped(((1.0,), (2.0,)), 2)


def frames(path):
    with Image.open(path) as picture:
        for index in range(picture.n_frames):
            picture.seek(index)
            yield np.asarray(picture.convert("RGB"))


def test_show_makes_a_moving_picture_of_the_environment(runs, tmp_path, capsys):
    pictures = {}
    for theta in ("0.4", "1.6"):
        assert main(["show", str(runs[0]), "--theta", theta]) == 0
        said = re.match(r"(\d+) steps, return (\d+): (.*)\n", capsys.readouterr().out)
        steps, total, path = int(said[1]), int(said[2]), said[3]
        assert path == str(runs[0] / "figures" / f"episode-{theta}-seed0.gif")
        assert steps == total
        pictures[theta] = list(frames(path))
        # GIF merges frames that do not differ; these do.
        assert 1 < len(pictures[theta]) <= steps + 1
        assert not np.array_equal(pictures[theta][0], pictures[theta][-1])
    assert not np.array_equal(pictures["0.4"][0], pictures["1.6"][0])
    other = tmp_path / "new" / "film.gif"
    assert main(["show", str(runs[0]), "--theta", "0.4", "--out", str(other)]) == 0
    assert other.read_bytes() == (runs[0] / "figures" / "episode-0.4-seed0.gif").read_bytes()


def test_the_list_shows_every_preset_by_its_whole_name(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list"]) == 0
    shown = capsys.readouterr().out.split()
    assert set(PRESETS) <= set(shown)
