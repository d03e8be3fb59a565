"""The report of a federation of tables: what its agents measured, round by round."""

import csv
import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from fedrl import FedrlError
from fedrl.cli.main import main
from fedrl.experiment.toml import to_toml
from fedrl.network.messages import Refusal
from fedrl.report.table_report import TableReport
from fedrl.report.table_runs import TableRun, open_run
from fedrl.runs.run import Run
from fedrl.strategies import ControlVariates, Prox, Yogi
from fedrl.tabular.experiment import TabularExperiment
from fedrl.tabular.families import WindyCliffs
from in_process import Federation
from pages import page_of
from tiny import TINY

pytestmark = pytest.mark.usefixtures("kept", "hasty")

EXPERIMENT = TabularExperiment(
    name="cliffs", family=WindyCliffs(), agents=3, E=3, updates=12, lr=0.5, seed=1
)


def federation(folder, missing=(), away=(), stopped_in=None):
    """A training in which (agent, round) fail, or are away; stopped in a round, or finished."""
    done = Federation(EXPERIMENT, folder)
    everybody, status = dict(done.transport.marks), done.record.status

    def change(agent, asked, answer):
        if asked.round == stopped_in:
            raise KeyboardInterrupt
        return Refusal("no power") if (agent, asked.round) in missing else answer

    def present(planned, there):
        status(planned, there)
        absent = {agent for agent, number in away if number == planned.number}
        done.transport.marks = {i: x for i, x in everybody.items() if i not in absent}

    done.transport.change, done.record.status = change, present
    with suppress(KeyboardInterrupt):
        done.run()
    return done


@pytest.fixture(scope="module")
def finished(kept, hasty, tmp_path_factory):
    return federation(tmp_path_factory.mktemp("finished"))


def measured(done):
    """(agent, round) -> objective, from the answers themselves."""
    return {
        (x.agent, x.answer.round - 1): x.answer.metrics["objective"]
        for x in done.transport.exchanges
    }


def test_the_report_prints_the_objectives_and_writes_figure_numbers_and_page(
    finished, tmp_path, capsys
):
    out, html = tmp_path / "figures", tmp_path / "page.html"
    assert main(["report", str(finished.path), "--out", str(out), "--html", str(html)]) == 0
    printed = capsys.readouterr().out
    assert "4 of 4 rounds" in printed
    assert "not finished" not in printed
    found = measured(finished)
    for agent in range(3):
        (line,) = [x for x in printed.splitlines() if x.strip().startswith(f"agent {agent}")]
        assert line.split()[-2:] == [f"{found[agent, 0]:.4g}", f"{found[agent, 4]:.4g}"]
    with (out / "report.csv").open() as file:
        rows = {(row["agent"], int(row["round"])): row for row in csv.DictReader(file)}
    assert len(rows) == 4 * 5
    for number in range(5):
        of_agents = [found[agent, number] for agent in range(3)]
        for agent, value in enumerate(of_agents):
            row = rows[f"agent {agent}", number]
            assert float(row["objective"]) == pytest.approx(value, rel=1e-8)
            assert int(row["updates"]) == 3 * number
        average = float(rows["average", number]["objective"])
        assert average == pytest.approx(np.mean(of_agents), rel=1e-8)
    assert {file.suffix for file in out.glob("report-curves.*")} == {".png", ".pdf"}
    text = html.read_text()
    for words in ("Objective by round", "agent 2", "windy-cliffs", "4 of 4 rounds", "64"):
        assert words in text


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({}, "(E = 3), 4 times in all. Shown"),
        ({"correction": Prox()}, "(FedProx, μ = 0.1). Shown"),
        ({"correction": ControlVariates()}, "(control variates, SCAFFOLD). Shown"),
        ({"server_optimizer": Yogi()}, "with Yogi (FedYogi, step size 0.01). Shown"),
    ],
)
def test_tables_are_told_with_all_parts_of_their_strategy(finished, parts, words):
    run = TableRun(finished.path)
    run.experiment = replace(EXPERIMENT, **parts)
    (text,) = TableReport([run]).told()
    assert "They learn for 12 updates each; every 3 updates they average their tables" in text
    assert words in text


def test_an_unfinished_training_is_reported_as_far_as_it_is(tmp_path, capsys):
    done = federation(tmp_path, stopped_in=3)
    assert main(["report", str(done.path)]) == 0
    printed = capsys.readouterr().out
    assert "1 of 4 rounds, not finished" in printed  # the second one has not been evaluated yet
    assert "so far" in printed
    assert "not finished" in page_of([open_run(done.path)])


def test_the_report_names_the_rounds_that_agents_missed(tmp_path, capsys):
    done = federation(tmp_path, missing={(1, 2), (1, 3)}, away={(2, 5)})
    assert main(["report", str(done.path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "agent 1 missed rounds 2-3 (no power)" in printed
    assert "agent 2 missed the last evaluation (it was not there)" in printed
    assert "rounds 2-3" in page_of([open_run(done.path)])
    # The last value that is known, and from when.
    objectives = open_run(done.path).objectives
    assert np.isnan(objectives.loc[4, "agent 2"])
    assert f"{objectives.loc[3, 'agent 2']:.4g} (after round 3)" in printed


def test_the_folder_of_a_federation_stands_for_its_trainings(finished, tmp_path, capsys):
    server = tmp_path / "fed" / "server"
    server.mkdir(parents=True)
    (server / "federation.toml").write_text("")
    assert main(["report", str(server.parent)]) == 2
    assert f"{server.parent} has no results yet" in capsys.readouterr().err
    (server / "runs").symlink_to(finished.path.parent)
    assert main(["report", str(server.parent)]) == 0
    assert "4 of 4 rounds" in capsys.readouterr().out


def test_a_training_without_a_round_says_so(tmp_path, capsys):
    folder = tmp_path / "cliffs"
    folder.mkdir()
    (folder / "experiment.toml").write_text(to_toml(EXPERIMENT))
    assert main(["report", str(folder)]) == 2
    assert "has no results yet" in capsys.readouterr().err


def test_tables_and_networks_are_reported_one_by_one(finished, tmp_path, capsys):
    other = tmp_path / "networks"
    other.mkdir()
    (other / "experiment.toml").write_text(to_toml(TINY))
    assert main(["report", str(finished.path), str(other)]) == 2
    assert "report them one by one" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["resume"], ["evaluate", "--theta", "1"], ["show", "--theta", "1"]]
)
def test_other_commands_say_that_a_run_is_of_tables(finished, capsys, command):
    name, *rest = command
    assert main([name, str(finished.path), *rest]) == 2
    error = capsys.readouterr().err
    assert "is about tables" in error
    assert "fedrl report" in error


def test_a_server_that_starts_again_knows_who_missed_rounds_before(tmp_path):
    federation(tmp_path, missing={(1, 2)}, stopped_in=4)
    again = federation(tmp_path)
    status = json.loads((tmp_path / "status.json").read_text())
    assert [(one["round"], one["agent"]) for one in status["lost"]] == [(2, 1)]
    assert (again.path / "missed.csv").read_text().splitlines()[0] == "round,agent,why"


def test_a_training_that_nobody_missed_has_no_such_file(finished):
    assert not (finished.path / "missed.csv").exists()


def test_a_table_run_is_told_from_others(finished, tmp_path):
    found = open_run(finished.path)
    assert isinstance(found, TableRun)
    assert found.experiment == EXPERIMENT
    with pytest.raises(FedrlError, match="is not a run"):
        open_run(tmp_path)
    (tmp_path / "experiment.toml").write_text(to_toml(TINY))
    assert isinstance(open_run(tmp_path), Run)
    (tmp_path / "experiment.toml").write_text("= nothing")
    with pytest.raises(FedrlError, match="is not TOML"):
        open_run(tmp_path)
