"""What the measured numbers mean: medians, spreads, ratios, limits, aims."""

import statistics
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.case import Aim, Case, Contestant

Results = dict[str, dict[str, Any]]
"""By contestant: `values`, `peaks`, perhaps `limits` and `error`."""


@dataclass(frozen=True)
class Spread:
    """Of repeated measurements."""

    median: float
    smallest: float
    largest: float


@dataclass(frozen=True)
class Verdict:
    """An aim, and what became of it."""

    aim: Aim
    over: str
    """The peer it was compared with; empty if there was none."""
    ratio: float

    @property
    def reached(self) -> bool:
        return self.ratio >= self.aim.times


@dataclass(frozen=True)
class Limit:
    """The most that the machine would allow."""

    name: str
    value: float


def spread(values: list[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def measured(case: Case, results: Results, *roles: str) -> dict[str, Spread]:
    """Contestants of these roles that gave a number, in their order."""
    return {
        one.name: spread(results[one.name]["values"])
        for one in case.contestants
        if (not roles or one.role in roles) and results.get(one.name, {}).get("values")
    }


def ratio(case: Case, ours: Spread, other: Spread) -> float:
    """How many times better ours is."""
    a, b = (ours.median, other.median) if case.higher else (other.median, ours.median)
    return a / b


def rivals(case: Case, results: Results, ours: str) -> dict[str, Spread]:
    """Peers that train no more agents at once."""
    agents = {one.name: one.agents for one in case.contestants}
    peers = measured(case, results, "peer")
    return {name: found for name, found in peers.items() if agents[name] <= agents[ours]}


def fastest(case: Case, found: dict[str, Spread]) -> str:
    best = max if case.higher else min
    return best(found, key=lambda name: found[name].median) if found else ""


def verdicts(case: Case, results: Results) -> list[Verdict]:
    """Of the aims that can be judged: both have been measured."""
    own, found = measured(case, results, "ours"), []
    for aim in case.aims:
        if aim.ours not in own:
            continue
        peers = rivals(case, results, aim.ours)
        over = aim.over or fastest(case, peers)
        if over in peers:
            found.append(Verdict(aim, over, ratio(case, own[aim.ours], peers[over])))
    return found


def bandwidth(ceilings: dict[str, Any], kept: float) -> float:
    """Where so many bytes of a core live."""
    sizes = sorted(ceilings["bandwidth"])
    found = next((speed for size, speed in sizes if size >= kept), sizes[-1][1])
    return float(found)


def limits(case: Case, results: Results, ceilings: dict[str, Any]) -> list[Limit]:
    """All that are known; the tightest counts."""
    found = []
    if case.work and ceilings:
        found.append(Limit("arithmetic", ceilings[case.work.dtype] / case.work.operations))
        if case.work.moved:
            speed = bandwidth(ceilings, case.work.kept) / case.work.moved
            found.append(Limit("memory", speed))
    for name, value in measured(case, results, "bound").items():
        found.append(Limit(name, value.median))
    for one in case.contestants:
        own = results.get(one.name, {}).get("limits")
        if own:
            found.append(Limit(f"limit of {one.name}", statistics.median(own)))
    return sorted(found, key=lambda limit: limit.value, reverse=not case.higher)


def of_limit(case: Case, ours: Spread, limit: Limit) -> float:
    """The part of what is possible that we reach."""
    return ours.median / limit.value if case.higher else limit.value / ours.median


def best_of_ours(case: Case, results: Results) -> str:
    return fastest(case, measured(case, results, "ours"))


def peak(results: Results, one: Contestant) -> int:
    """Bytes, the largest of all repeats."""
    peaks: list[int] = results.get(one.name, {}).get("peaks", [])
    return max(peaks, default=0)


def troubles(case: Case, results: Results) -> list[str]:
    """What must not be: programs that failed, too much memory, results that differ."""
    found = []
    for one in case.contestants:
        if error := results.get(one.name, {}).get("error"):
            found.append(f"{case.name}: {one.name} failed: {error}")
        used = peak(results, one)
        if one.role == "ours" and used > case.bound:
            found.append(
                f"{case.name}: {one.name} had {gigabytes(used)} resident, "
                f"more than {gigabytes(case.bound)}"
            )
    return found


def gigabytes(count: float) -> str:
    return f"{count / (1 << 30):.2f} GB"


def digest(case: Case, results: Results, ceilings: dict[str, Any]) -> dict[str, Any]:
    """All that is known of a case, for whoever reads the record without us."""
    known = limits(case, results, ceilings)
    own = measured(case, results, "ours")
    return {
        "spreads": {name: asdict(found) for name, found in measured(case, results).items()},
        "limits": {limit.name: limit.value for limit in known},
        "of_limit": {name: of_limit(case, found, known[0]) for name, found in own.items() if known},
        "aims": [
            {**asdict(one.aim), "over": one.over, "ratio": one.ratio, "reached": one.reached}
            for one in verdicts(case, results)
        ],
    }
