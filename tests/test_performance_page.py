"""The page says what was measured, and nothing in it was written by hand."""

import json
import re
from dataclasses import asdict

import pytest
from benchmarks import page, recorded
from benchmarks.case import Aim, Case, Contestant, Work, from_json
from benchmarks.page import aims, contestants, grid, limits, markdown, together
from benchmarks.recorded import Bench, Measured

CASE = Case(
    name="one",
    section="dqn",
    title="small",
    unit="updates/s",
    contestants=(
        Contestant("ours", ("x",), agents=5),
        Contestant("theirs", ("y",), role="peer", agents=5),
    ),
    work=Work(operations=1e6),
    aims=(Aim("ours", 3.0, "theirs"), Aim("ours", 1.0)),
    bound=1 << 30,
)
RESULTS = {
    "ours": {"values": [100.0, 200.0, 120.0], "peaks": [1 << 29]},
    "theirs": {"values": [50.0, 60.0, 70.0], "peaks": [1 << 30]},
}
CEILINGS = {"float32": 1e9, "float64": 5e8, "bandwidth": [[1000, 1e9]]}


def test_the_page_is_what_the_records_make():
    assert page.PAGE.read_text() == page.page(), "make performance"


def test_every_picture_is_there():
    for name in re.findall(r"\(images/([\w.-]+)\)", page.page()):
        assert (page.IMAGES / name).exists(), name


def test_a_case_comes_back_from_its_record():
    assert from_json(json.loads(json.dumps(asdict(CASE)))) == CASE


def test_tables():
    assert markdown(("a", "b"), [("1", "2")]) == "| a | b |\n|---|---|\n| 1 | 2 |"
    rows = [
        {"network": "n", "size": "5 x 1", "updates_per_second": 1200.0},
        {"network": "m", "size": "5 x 2", "updates_per_second": 2.5e6},
    ]
    assert grid(rows, "network", "size").splitlines()[2:] == [
        "| 5 x 1 | 1,200 |  |",
        "| 5 x 2 |  | 2.5 M |",
    ]


def test_a_case_in_words():
    lines = contestants(CASE, RESULTS, CEILINGS).splitlines()
    assert lines[2] == "| **ours** | 120 | 100 to 200 |  | 12% (arithmetic) | 0.50 GB |"
    assert lines[3] == "| theirs | 60 | 50 to 70 | 2.0x |  | 1.00 GB |"
    said = aims(CASE, RESULTS)
    assert "3.0x theirs: **missed** (2.0x)" in said
    assert "1.0x the fastest peer, theirs: reached (2.0x)" in said
    assert "1 million operations at 1 GFLOP/s in float32" in limits(CASE, RESULTS, CEILINGS)


def test_all_cells_together_is_the_ratio_of_their_times():
    results = {"ours": {"values": [10.0]}, "NumPy loops": {"values": [1.0]}}
    slower = {"ours": {"values": [2.0]}, "NumPy loops": {"values": [0.5]}}
    names = (Contestant("ours", ()), Contestant("NumPy loops", (), role="peer"))
    case = Case("c", "tabular", "c", "seeds/s", names, bound=1)
    said = together([Measured(case, results), Measured(case, slower)])
    assert f"{(1 + 2) / (0.1 + 0.5):.0f} times" in said


@pytest.mark.parametrize(("seconds", "repeats"), [(0.5, None), (4.0, 1)])
def test_a_hasty_record_says_so(seconds, repeats):
    record = {
        "settings": {"seconds": seconds, "repeats": repeats, "full": False},
        "machine": {"cores": 2, "processor": "P"},
        "begun": "today",
        "versions": {},
        "ceilings": CEILINGS,
        "left_out": [],
    }
    bench = Bench(record, [Measured(CASE, RESULTS)])
    assert page.PROVISIONAL in page.overview(bench)
    record["settings"] |= {"seconds": 4.0, "repeats": None}
    assert page.PROVISIONAL not in page.overview(bench)


def test_what_is_not_there_is_left_out(tmp_path, monkeypatch):
    assert recorded.load("nothing", tmp_path) is None
    monkeypatch.setattr(recorded, "load", lambda *_: None)
    text = page.page()
    assert "## DQNAvg" in text
    assert "performance-" not in text


def test_many_agents(monkeypatch):
    row = {
        "agents": 5,
        "waves": 1,
        "updates_per_second": 4e4,
        "slowest": 3e4,
        "fastest": 5e4,
        "core_microseconds_per_update": 12.34,
        "peak_bytes": 10_000_000,
    }
    more = row | {"agents": 1005, "waves": 40, "updates_per_second": 5e4, "peak_bytes": 54_000_000}
    machine = {"platform": "cpu", "cores": 2, "processor": "P", "jax": "1"}
    monkeypatch.setattr(
        recorded,
        "load",
        lambda name: (
            {"machine": machine, "rows": [row, more]} if name == "agents_2_cores" else None
        ),
    )
    table = "\n".join(page.agents())
    assert "| 5 | 1 | 40,000 (30,000 to 50,000) | 25 µs | 12.3 µs |  |" in table
    assert "| 1,005 | 40 | 50,000 (30,000 to 50,000) | 20 µs | 12.3 µs | 44 kB |" in table
