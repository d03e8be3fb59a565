"""The measurements that are kept in `benchmarks/results/`."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.case import Case, from_json
from benchmarks.summary import Results

FOLDER = Path(__file__).parent / "results"
BENCH = "bench_2_cores"


class Measured(NamedTuple):
    """A case and what its contestants gave."""

    case: Case
    results: Results


class Bench(NamedTuple):
    """What the harness has left."""

    record: dict[str, Any]
    cases: list[Measured]

    @property
    def ceilings(self) -> dict[str, Any]:
        found: dict[str, Any] = self.record["ceilings"]
        return found

    @property
    def provisional(self) -> bool:
        """Whether it was made in haste, to have something to show."""
        settings = self.record["settings"]
        return bool(settings["seconds"] < 2 or settings["repeats"] == 1)

    def section(self, name: str) -> list[Measured]:
        return [one for one in self.cases if one.case.section == name]


def load(name: str, folder: Path = FOLDER) -> dict[str, Any] | None:
    """A record, if there is one."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def bench(name: str = BENCH, folder: Path = FOLDER) -> Bench | None:
    record = load(name, folder)
    if record is None:
        return None
    cases = [Measured(from_json(one["case"]), one["results"]) for one in record["cases"].values()]
    return Bench(record, cases)


def machine(record: dict[str, Any]) -> str:
    """In a few words."""
    known = record["machine"]
    if known["platform"] == "cpu":
        return f"{known['cores']} cores of an {known['processor']}, JAX {known['jax']}"
    return f"one {known['device']} and {known['cores']} cores, JAX {known['jax']}"


def scaling(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of updates per second, with their network and their size in words."""

    def network(row: dict[str, Any]) -> str:
        hidden = "-".join(map(str, row["hidden"]))
        if "robot" in row:
            return f"{row['robot']}, {hidden}"
        return f"4-{hidden}-2, batch {row['batch']}"

    return [
        {**row, "network": network(row), "size": f"{row['agents']:,} x {row['seeds']:,}"}
        for row in record["rows"]
    ]
