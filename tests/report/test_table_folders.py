"""The report of a federation of tables from its folder alone, as a server writes it."""

import csv
import re

import numpy as np
import pytest

import fedrl
from fedrl import FedrlError
from fedrl.cli.main import main
from fedrl.experiment.toml import to_toml
from fedrl.network.record import COST_COLUMNS, COSTS, Missed, write_missed
from fedrl.report.table_runs import open_run
from fedrl.runs.run_directory import RunDirectory
from fedrl.tabular.experiment import TabularExperiment
from fedrl.tabular.families import WindyCliffs
from pages import page_of
from tiny import TINY

EXPERIMENT = TabularExperiment(
    name="cliffs", family=WindyCliffs(), agents=3, E=3, updates=10, lr=0.5, seed=1
)
TRAINED = (0, 3, 6, 9, 10)


def objective(agent, done):
    return (agent + 1) / 10 + done / 7


def folder(parent, rounds=5, missing=()):
    """What is left after these rounds, the last of which only evaluates; (agent, round) missing."""
    path = parent / EXPERIMENT.directory_name
    path.mkdir(parents=True)
    (path / "experiment.toml").write_text(to_toml(EXPERIMENT))
    directory = RunDirectory(path, EXPERIMENT)
    for done, trained in enumerate(TRAINED[:rounds]):
        rows = [
            f"0,{done},{trained},average,{agent},,train,objective,{objective(agent, done):.9g}\n"
            for agent in range(EXPERIMENT.agents)
            if (agent, done + 1) not in missing
        ]
        directory.save_metrics(trained, "".join(rows))
    if missing:
        write_missed(path, [Missed(number, agent, "no power") for agent, number in missing])
    if rounds == len(TRAINED):
        entries = EXPERIMENT.family.states, EXPERIMENT.family.actions
        directory.finish({"table": np.zeros(entries)})
    return path


def test_the_folder_gives_tables_numbers_figures_and_a_page(tmp_path, capsys):
    path, out, html = folder(tmp_path), tmp_path / "out", tmp_path / "page.html"
    assert main(["report", str(path), "--out", str(out), "--html", str(html)]) == 0
    printed = capsys.readouterr().out
    assert "after 4 of 4 rounds" in printed
    assert "missed" not in printed
    mean = np.mean([[objective(agent, done) for agent in range(3)] for done in (0, 4)], axis=1)
    ends = {"average": mean, **{f"agent {i}": [objective(i, 0), objective(i, 4)] for i in range(3)}}
    for who, values in ends.items():
        (line,) = [x for x in printed.splitlines() if x.strip().startswith(who)]
        assert line.split()[-2:] == [f"{value:.4g}" for value in values]
    with (out / "report.csv").open() as file:
        rows = {(row["agent"], int(row["round"])): row for row in csv.DictReader(file)}
    assert len(rows) == 4 * 5
    assert [int(rows["average", done]["updates"]) for done in range(5)] == list(TRAINED)
    assert float(rows["agent 2", 3]["objective"]) == pytest.approx(objective(2, 3))
    assert {file.suffix for file in out.glob("report-curves.*")} == {".png", ".pdf"}
    text = html.read_text()
    sections = re.findall(r'<section id="(\w+)">', text)
    assert sections == ["experiment", "curves", "results", "costs", "settings", "versions"]
    assert "3 agents with QAvg" in text
    assert "kind = &#34;windy-cliffs&#34;" in text
    # The server has measured nothing here: 4 rounds of 3 agents with a table each.
    table = 8 * EXPERIMENT.family.states * EXPERIMENT.family.actions
    assert f"{4 * 3 * table / 1000:.3g} kB" in text
    assert "computed" in text


def test_what_a_server_has_measured_is_told(tmp_path):
    path = folder(tmp_path)
    (path / COSTS).write_text(f"{COST_COLUMNS}\n" + "1,3,1000,500,0.5,0.25,0.125\n" * 2)
    text = page_of([open_run(path)])
    assert "measured" in text
    assert "2 kB" in text
    assert "not recorded" not in text


def test_agents_that_missed_rounds_are_named(tmp_path, capsys):
    path = folder(tmp_path, missing=[(1, 2), (1, 3), (2, 5)])
    assert main(["report", str(path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "agent 1 missed rounds 2-3 (no power)" in printed
    assert "agent 2 missed the last evaluation (no power)" in printed
    assert f"{objective(2, 3):.4g} (after round 3)" in printed
    assert "rounds 2-3" in page_of([open_run(path)])


def test_what_is_not_finished_is_shown_as_far_as_it_is(tmp_path, capsys):
    path = folder(tmp_path, rounds=3)
    assert main(["report", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "after 2 of 4 rounds, not finished" in printed
    assert "so far" in printed
    with pytest.raises(FedrlError, match="no results yet"):
        page_of([open_run(folder(tmp_path / "new", rounds=0))])


def test_federations_are_compared_with_each_other_only(tmp_path):
    paths = [folder(tmp_path / name) for name in "ab"]
    found = fedrl.compare(*map(open_run, paths), out=tmp_path / "out")
    assert found.index.tolist() == ["average", "agent 0", "agent 1", "agent 2"] * 2
    assert found["at the end"].iloc[1] == f"{objective(0, 4):.4g}"
    assert (tmp_path / "out" / "comparison.csv").is_file()
    (tmp_path / "experiment.toml").write_text(to_toml(TINY))
    with pytest.raises(FedrlError, match="report them one by one"):
        fedrl.compare(open_run(paths[0]), open_run(tmp_path))


def test_damaged_metrics_are_refused(tmp_path):
    path = folder(tmp_path, rounds=2)
    (path / "metrics" / "0000000003.csv").write_text("0,1\nand so on\n")
    with pytest.raises(FedrlError, match="damaged"):
        page_of([open_run(path)])
