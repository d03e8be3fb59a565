"""The harness with contestants that are made up: no test depends on time."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import harness, process, summary, table
from benchmarks.case import Aim, Case, Contestant, Work
from benchmarks.catalogue import Settings, cases
from benchmarks.process import Outcome
from benchmarks.work import of_dqn

ROOT = Path(__file__).parents[1]
PEERS = ROOT / ".venv-peers" / "bin" / "python"
GB = 1 << 30
CEILINGS = {"float32": 1e9, "float64": 5e8, "bandwidth": [[1000, 4e9], [10_000, 1e9]]}
CASE = Case(
    name="case",
    section="dqn",
    title="a case",
    unit="updates/s",
    contestants=(
        Contestant("ours, 1 seed", ("a",), agents=5),
        Contestant("ours, 8 seeds", ("b",), agents=40),
        Contestant("slow", ("c",), role="peer", python="torch", agents=5),
        Contestant("many", ("d",), role="peer", python="torch", agents=40),
        Contestant("products", ("e",), role="bound"),
    ),
    bound=GB,
    repeats=2,
    work=Work(operations=1e6, moved=1e6, kept=500),
    aims=(Aim("ours, 8 seeds", 4.0, "slow"), Aim("ours, 1 seed", 1.0), Aim("ours, 8 seeds", 1.0)),
)


def result(*values, peak=0, **more):
    return {"values": list(values), "peaks": [peak], **more}


RESULTS = {
    "ours, 1 seed": result(100.0, 140.0),
    "ours, 8 seeds": result(300.0, 500.0, 310.0),
    "slow": result(100.0),
    "many": result(400.0),
    "products": result(800.0),
}


def record_of(**results):
    return {"cases": {"case": {"results": results}}, "versions": {}}


# What numbers mean


def test_medians_and_spreads():
    found = summary.measured(CASE, RESULTS, "ours")
    assert found["ours, 8 seeds"] == summary.Spread(310.0, 300.0, 500.0)
    assert found["ours, 1 seed"].median == 120.0
    assert list(summary.measured(CASE, RESULTS)) == list(RESULTS)


def test_ours_is_compared_with_peers_of_as_many_agents():
    few, _, many = (summary.verdicts(CASE, RESULTS)[i] for i in (1, 0, 2))
    assert (few.over, few.ratio, few.reached) == ("slow", 1.2, True)
    assert (many.over, many.reached) == ("many", False)


def test_an_aim_names_its_peer():
    named = summary.verdicts(CASE, RESULTS)[0]
    assert (named.over, named.ratio, named.reached) == ("slow", 3.1, False)
    assert "MISSED: 3.1x" in table.judged(named)


def test_an_aim_without_its_peer_is_not_judged():
    left = {name: found for name, found in RESULTS.items() if name.startswith("ours")}
    assert summary.verdicts(CASE, left) == []
    assert "not measured" in table.row(CASE, {}, CEILINGS)


def test_seconds_are_better_when_they_are_few():
    case = replace(CASE, unit="s", higher=False)
    ours, theirs = summary.spread([2.0]), summary.spread([6.0])
    assert summary.ratio(case, ours, theirs) == 3.0
    assert summary.fastest(case, {"a": ours, "b": theirs}) == "a"
    limited = {"ours, 1 seed": result(4.0, limits=[3.0])}
    (limit,) = summary.limits(replace(case, work=None), limited, CEILINGS)
    assert summary.of_limit(case, summary.spread([4.0]), limit) == 0.75


def test_the_tightest_limit_comes_first():
    found = summary.limits(CASE, RESULTS, CEILINGS)
    assert [(one.name, one.value) for one in found] == [
        ("products", 800.0),
        ("arithmetic", 1000.0),
        ("memory", 4000.0),
    ]
    assert summary.bandwidth(CEILINGS, kept=5000) == 1e9
    assert summary.bandwidth(CEILINGS, kept=1e9) == 1e9


def test_the_arithmetic_of_an_update():
    work = of_dqn((128, 128), 128)
    assert work.operations == pytest.approx(17.4e6, rel=0.01)
    parameters = 4 * 128 + 128 + 128 * 128 + 128 + 128 * 2 + 2
    assert work.moved == 4 * 6 * parameters + 128 * 44


def test_memory_is_bounded_for_ours_alone():
    large = {
        "ours, 1 seed": result(1.0, peak=2 * GB),
        "slow": result(1.0, peak=2 * GB),
        "many": {**result(), "error": "no"},
    }
    first, second = summary.troubles(CASE, large)
    assert "ours, 1 seed had 2.00 GB resident, more than 1.00 GB" in first
    assert "many failed: no" in second
    assert summary.troubles(CASE, RESULTS) == []


def test_the_table_has_a_line_for_each_case():
    lines = table.whole([CASE], {"case": RESULTS}, CEILINGS)
    assert lines[-2].startswith("case")
    assert "39% (products)" in lines[-1]
    assert "many 400" in lines[-1]


def test_the_record_has_it_all_in_numbers():
    found = summary.digest(CASE, RESULTS, CEILINGS)
    assert found["spreads"]["slow"] == {"median": 100.0, "smallest": 100.0, "largest": 100.0}
    assert found["of_limit"]["ours, 8 seeds"] == pytest.approx(310 / 800)
    assert [aim["reached"] for aim in found["aims"]] == [False, True, False]
    assert json.loads(json.dumps(found)) == found


# How cases are run


def fake(values):
    """Contestants that take no time; a text is why one failed."""
    asked = []

    def run(one):
        asked.append(one.name)
        value = values[one.name]
        if isinstance(value, str):
            return Outcome({}, value, GB, 1.0)
        return Outcome({"value": value, "versions": {"jax": "1"}}, "", GB, 1.0)

    return run, asked


def measured(record, values, case=CASE):
    run, asked = fake(values)
    harness.measure([case], record, run, lambda: None, lambda _: None)
    return asked


def test_contestants_take_turns():
    record = record_of()
    names = [one.name for one in CASE.contestants]
    assert measured(record, dict.fromkeys(names, 1.0)) == names * 2
    assert record["cases"]["case"]["results"]["slow"]["values"] == [1.0, 1.0]
    assert record["versions"]["torch"] == {"jax": "1"}


def test_an_interrupted_run_goes_on():
    record = record_of(**{"ours, 1 seed": result(1.0), "ours, 8 seeds": result(1.0, 2.0)})
    names = [one.name for one in CASE.contestants]
    asked = measured(record, dict.fromkeys(names, 1.0))
    assert asked == [*names[2:], names[0], *names[2:]]
    assert measured(record, {}) == []


def test_who_fails_is_left_alone():
    values = dict.fromkeys([one.name for one in CASE.contestants], 1.0) | {"slow": "broken"}
    record = record_of()
    assert measured(record, values).count("slow") == 1
    assert record["cases"]["case"]["results"]["slow"]["error"] == "broken"


def test_results_that_differ_are_an_error():
    record = record_of()
    ours, other, *_ = CASE.contestants
    for one, check in ((ours, [1.0, 2.0]), (other, [1.0, 2.0 + 1e-6])):
        step = harness.Step(CASE, one, 0)
        harness.note(record, step, Outcome({"value": 1.0, "check": check}, "", 0, 1.0))
    results = record["cases"]["case"]["results"]
    assert "error" not in results[ours.name]
    assert "differ" in results[other.name]["error"]
    harness.tidy(record)
    assert "reference" not in record["cases"]["case"]


def test_contestants_without_their_interpreter_are_left_out():
    (kept,), missing = harness.present([CASE], {"ours": "python"})
    assert [one.name for one in kept.contestants] == ["ours, 1 seed", "ours, 8 seeds", "products"]
    assert missing == [f"{name}: there is no torch interpreter" for name in ("many", "slow")]


def test_a_record_of_another_machine_is_not_gone_on_with(tmp_path):
    path, settings = tmp_path / "sub" / "bench.json", Settings()
    record = harness.read(path, settings, {"cores": 2})
    harness.write(path, record)
    assert harness.read(path, settings, {"cores": 2}) == record
    for others in ((settings, {"cores": 3}), (Settings(seconds=1.0), {"cores": 2})):
        with pytest.raises(SystemExit, match="--fresh"):
            harness.read(path, *others)
    assert [*path.parent.iterdir()] == [path]


def test_a_ceiling_is_the_most_that_was_seen():
    seen = {"float32": 3.0, "float64": 1.0, "bandwidth": [[10, 5.0], [20, 1.0]], "versions": {}}
    before = {"float32": 2.0, "float64": 2.0, "bandwidth": [[10, 4.0], [20, 4.0]]}
    found = harness.ceilings(lambda _: Outcome(seen, "", 0, 1.0), before)
    assert found == {"float32": 3.0, "float64": 2.0, "bandwidth": [[10, 5.0], [20, 4.0]]}
    with pytest.raises(SystemExit, match="broken"):
        harness.ceilings(lambda _: Outcome({}, "broken", 0, 1.0), {})


def test_cases_can_be_told_apart():
    short, full = cases(Settings()), cases(Settings(full=True))
    for found in (short, full):
        assert len({case.name for case in found}) == len(found)
        for case in found:
            names = [one.name for one in case.contestants]
            assert len(set(names)) == len(names)
            assert {aim.ours for aim in case.aims} <= set(names)
            assert {aim.over for aim in case.aims} <= {*names, ""}
            assert case.repeats >= (1 if case.section == "flower" else 2)
    assert {case.name for case in short} < {case.name for case in full}


# Processes


def program(text, patience=60.0):
    return process.run([sys.executable, "-c", text], os.environ, ROOT, patience)


def test_a_process_says_what_it_found_and_how_much_memory_it_had():
    text = "import time; x = bytearray(300 << 20); print('noise'); time.sleep(1)\n"
    text += "print('{\"value\": 1.5}')"
    outcome = program(text)
    assert outcome.record == {"value": 1.5}
    assert not outcome.error
    assert 300 << 20 < outcome.peak < 600 << 20


def test_a_process_that_fails_says_why():
    assert program("raise ValueError('so')").error == "ValueError: so"
    assert "no record" in program("print('nothing')").error


def test_a_process_that_does_not_end_is_ended():
    assert "not done" in program("import time; time.sleep(100)", patience=0.5).error


@pytest.mark.skipif(not PEERS.exists(), reason="make .venv-peers/ready")
def test_stacked_peers_learn_what_plain_loops_learn():
    found = subprocess.run(
        [PEERS, "-m", "benchmarks.peers.agreement"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for one in json.loads(found.stdout.strip().splitlines()[-1]).values():
        assert one["difference"] < 1e-5 < 1e-2 < one["change"]
