"""`reproduce` end to end: killed for real, resumed, compared."""

import csv
import io
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from rich.console import Console

from fedrl import FedrlError
from fedrl.papers.jin2022 import cell_runs as work
from fedrl.papers.jin2022 import table_figures as figures
from fedrl.papers.jin2022.reproduce import reproduce

QUIET = Console(quiet=True)


def contents(folder):
    """Everything that a run leaves, except how it was cut into pieces."""
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.suffix in (".csv", ".json", ".png", ".pdf")
    }


def start(folder, *arguments):
    command = [
        sys.executable,
        "-m",
        "fedrl",
        "reproduce",
        "figure2",
        "--out",
        str(folder),
        *arguments,
    ]
    # Whoever runs the tests in the background has SIGINT ignored, and a child inherits that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)


def wait_for_pieces(process, folder, count):
    deadline = time.monotonic() + 300
    while len(list(folder.glob("pieces/*/*.npz"))) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    reproduce("figure2", seeds=48, out=folder, console=QUIET)
    return contents(folder)


def test_killed_at_any_moment_it_continues_to_the_very_same_result(tmp_path, uninterrupted):
    folder = tmp_path / "run"
    rng = np.random.default_rng()  # moments nobody chose
    for pieces in (1, 6, 11):
        process = start(folder, "--seeds", "48", "--piece", "16")
        wait_for_pieces(process, folder, pieces)
        time.sleep(rng.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    # The last part runs with pieces of another size: that does not matter either.
    process = start(folder, "--seeds", "48", "--piece", "7")
    output, errors = process.communicate(timeout=300)
    assert process.returncode in (0, 1), errors
    assert "was done before, continuing" in output
    assert output.rstrip().endswith(f"results {folder}")
    assert contents(folder) == uninterrupted


def test_ctrl_c_says_that_nothing_is_lost(tmp_path):
    process = start(tmp_path / "run", "--seeds", "4000", "--piece", "16")
    wait_for_pieces(process, tmp_path / "run", 1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "finished work is saved, and the same command continues" in errors
    assert "Traceback" not in errors


def test_the_results_are_all_there(uninterrupted):
    assert set(uninterrupted) == {
        *("figure2.csv", "figure2.png", "figure2.pdf", "settings.json", "table2.csv")
    }
    settings = json.loads(uninterrupted["settings.json"])
    assert settings["seeds"] == 48
    assert len(settings["cells"]) == 6
    rows = list(csv.DictReader(uninterrupted["table2.csv"].decode().splitlines()))
    columns = ["E", "family", "algorithm", "mean", "se", "ours_mean", "ours_se", "seeds", "z"]
    assert list(rows[0]) == columns
    assert [row["E"] for row in rows] == ["1", "2", "4", "8", "16", "inf"]
    assert rows[0]["mean"] == "129.55"
    z = (float(rows[0]["ours_mean"]) - 129.55) / np.hypot(float(rows[0]["ours_se"]), 0.17)
    assert float(rows[0]["z"]) == pytest.approx(z, abs=1e-3)


def test_a_finished_run_is_shown_again_without_work(tmp_path, monkeypatch):
    reproduce("figure2", seeds=3, out=tmp_path / "run", console=QUIET)
    before = contents(tmp_path / "run")

    def no_work(*_):
        raise AssertionError("a finished run needs no work")

    monkeypatch.setattr(work, "run_piece", no_work)
    reproduce("figure2", seeds=3, out=tmp_path / "run", console=QUIET)
    assert contents(tmp_path / "run") == before


def test_a_cell_that_is_off_by_more_than_three_standard_errors_is_reported(tmp_path, monkeypatch):
    def wrong(cell, start, stop, seed):
        values = np.linspace(0, 1, stop - start)
        curve = np.zeros(len(cell.schedule.recorded_at) - 1, int)
        return {"last": values, "sum": curve, "sum_of_squares": curve}

    monkeypatch.setattr(work, "run_piece", wrong)
    monkeypatch.setattr(work, "_compile", lambda *_: None)
    monkeypatch.setattr(figures, "draw", lambda *_: [])
    console = Console(record=True, width=100, file=io.StringIO())
    assert reproduce("table1", seeds=20, out=tmp_path / "run", console=console) is False
    text = console.export_text()
    assert "✗" in text
    assert "30 off by more than 3" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "table3"}, "unknown target 'table3': did you mean 'table"),
        ({"target": "table1", "seeds": 1}, "--seeds must be between 2 and 100000, got 1"),
        ({"target": "table1", "seed": -1}, "--seed must be between 0"),
        ({"target": "table1", "piece": 0}, "--piece must be at least 1"),
    ],
)
def test_bad_arguments_are_refused_before_any_work(tmp_path, arguments, message):
    with pytest.raises(FedrlError, match=message):
        reproduce(**arguments, out=tmp_path / "run", console=QUIET)
    assert not (tmp_path / "run").exists()
