"""Runs cases: contestants in turn, again and again, and keeps what is known after each."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import process
from benchmarks.case import Case, Contestant, Python
from benchmarks.catalogue import Settings
from benchmarks.process import Outcome

ROOT = Path(__file__).parents[1]
FORMAT = 1
SAME = 1e-9
"""How far results may be apart that ought to be the same."""

Interpreters = Mapping[Python, str]
Run = Callable[[Contestant], Outcome]


class Step(NamedTuple):
    """One run of one contestant."""

    case: Case
    contestant: Contestant
    repeat: int


def empty(settings: Settings, machine: Mapping[str, Any]) -> dict[str, Any]:
    """A record in which nothing is measured yet."""
    return {
        "format": FORMAT,
        "settings": asdict(settings),
        "machine": dict(machine),
        "begun": time.strftime("%Y-%m-%d"),
        "ceilings": {},
        "versions": {},
        "left_out": [],
        "cases": {},
    }


def read(path: Path, settings: Settings, machine: Mapping[str, Any]) -> dict[str, Any]:
    """What an earlier run has left, if it measured the same on the same machine."""
    if not path.exists():
        return empty(settings, machine)
    record: dict[str, Any] = json.loads(path.read_text())
    before = {name: record.get(name) for name in ("format", "settings", "machine")}
    now = {"format": FORMAT, "settings": asdict(settings), "machine": dict(machine)}
    if before != now:
        what = ", ".join(name for name in now if before[name] != now[name])
        raise SystemExit(f"{path} is of another {what}: name another file with --json, or --fresh")
    return record


def write(path: Path, record: Mapping[str, Any]) -> None:
    """At once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1) + "\n")
    part.replace(path)


def present(cases: list[Case], pythons: Interpreters) -> tuple[list[Case], list[str]]:
    """The cases without contestants whose interpreter is not there, and who these are."""
    missing = {
        f"{one.name}: there is no {one.python} interpreter"
        for case in cases
        for one in case.contestants
        if one.python not in pythons
    }
    kept = [
        replace(case, contestants=tuple(one for one in case.contestants if one.python in pythons))
        for case in cases
    ]
    return kept, sorted(missing)


def steps(cases: list[Case], record: Mapping[str, Any]) -> Iterator[Step]:
    """What is left to do, contestants in turn; those that failed once are left alone."""
    for case in cases:
        results = record["cases"].get(case.name, {}).get("results", {})
        for repeat in range(case.repeats):
            for one in case.contestants:
                known = results.get(one.name, {})
                if len(known.get("values", [])) <= repeat and "error" not in known:
                    yield Step(case, one, repeat)


def runner(pythons: Interpreters) -> Run:
    """Runs a contestant with its interpreter; peers see the benchmarks and nothing else of ours."""
    paths = {"ours": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}

    def run(one: Contestant) -> Outcome:
        environment = {**os.environ, "PYTHONPATH": paths.get(one.python, str(ROOT))}
        return process.run([pythons[one.python], *one.command], environment, ROOT)

    return run


def ceilings(run: Run, known: dict[str, Any]) -> dict[str, Any]:
    """What the machine can do at most: the most that was seen, as others may have been busy."""
    outcome = run(Contestant("ceilings", ("-m", "benchmarks.ceilings")))
    if outcome.error:
        raise SystemExit(f"the ceilings of this machine could not be measured: {outcome.error}")
    found = outcome.record
    before = dict(known.get("bandwidth", []))
    speeds = [[size, max(speed, before.get(size, 0.0))] for size, speed in found["bandwidth"]]
    products = {name: max(found[name], known.get(name, 0.0)) for name in ("float32", "float64")}
    return {**products, "bandwidth": speeds}


def note(record: dict[str, Any], step: Step, outcome: Outcome) -> None:
    """Add what a contestant gave."""
    case = record["cases"].setdefault(step.case.name, {"results": {}})
    case["case"] = asdict(step.case)
    known = case["results"].setdefault(step.contestant.name, {"values": [], "peaks": []})
    known["peaks"].append(outcome.peak)
    said = dict(outcome.record)
    if outcome.error or "value" not in said:
        known["error"] = outcome.error or "gave no value"
        return
    known["values"].append(said.pop("value"))
    record["versions"].setdefault(step.contestant.python, {}).update(said.pop("versions", {}))
    if "limit" in said:
        known.setdefault("limits", []).append(said.pop("limit"))
    if "check" in said:
        agree(case, step.contestant.name, said.pop("check"))
    if said:
        known.setdefault("more", []).append(said)


def agree(case: dict[str, Any], name: str, check: list[float]) -> None:
    """Results that ought to be the same as the first ones that came."""
    reference = case.setdefault("reference", check)
    furthest = float(np.max(np.abs(np.subtract(check, reference))))
    case["difference"] = max(furthest, case.get("difference", 0.0))
    if furthest > SAME:
        case["results"][name]["error"] = f"its results differ from the others' by {furthest:.1e}"


def tidy(record: dict[str, Any]) -> None:
    """Without what was only needed while measuring."""
    for case in record["cases"].values():
        case.pop("reference", None)


def remaining(left: list[Step], took: Mapping[str, float]) -> float:
    """Seconds, by what contestants took before and what is expected of the others."""
    return sum(took.get(one.name, one.expected) for _, one, _ in left)


def measure(
    cases: list[Case],
    record: dict[str, Any],
    run: Run,
    save: Callable[[], None],
    say: Callable[[str], None],
) -> None:
    """Do what is left."""
    took: dict[str, float] = {}
    left = list(steps(cases, record))
    total = len(left)
    while left:
        step = left.pop(0)
        known = record["cases"].get(step.case.name, {}).get("results", {})
        if "error" in known.get(step.contestant.name, {}):
            continue
        outcome = run(step.contestant)
        took[step.contestant.name] = outcome.seconds
        note(record, step, outcome)
        save()
        value = outcome.error or f"{outcome.record['value']:,.4g} {step.case.unit}"
        minutes = remaining(left, took) / 60
        done = f"{total - len(left)}/{total}, {minutes:.0f} min left"
        say(f"[{done}] {step.case.name}: {step.contestant.name}: {value}")
    tidy(record)
    save()
