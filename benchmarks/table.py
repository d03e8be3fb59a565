"""What is printed at the end: every contestant, then a line for each case."""

from typing import Any

from benchmarks import summary
from benchmarks.case import Case
from benchmarks.summary import Results, Verdict, gigabytes

Ceilings = dict[str, Any]
HEAD = ("case", "ours", "fastest peer", "ratio", "aim", "of the limit", "memory")


def number(value: float) -> str:
    """Three figures or so."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def times(value: float) -> str:
    return f"{value:,.0f}x" if value >= 20 else f"{value:.2g}x" if value < 1 else f"{value:.1f}x"


def of_limit(case: Case, results: Results, name: str, ceilings: Ceilings) -> str:
    """What a contestant of ours has of the tightest limit."""
    limits = summary.limits(case, results, ceilings)
    own = summary.measured(case, results, "ours")
    if not limits or name not in own:
        return ""
    return f"{summary.of_limit(case, own[name], limits[0]):.0%} ({limits[0].name})"


def contestants(case: Case, results: Results, ceilings: Ceilings) -> list[str]:
    """A line for each."""
    by_name = {one.name: one for one in case.contestants}
    lines = [f"{case.section}: {case.title} ({case.unit})"]
    for name, found in summary.measured(case, results).items():
        memory = gigabytes(summary.peak(results, by_name[name]))
        lines.append(
            f"  {name:30s} {number(found.median):>10s}  "
            f"({number(found.smallest)} to {number(found.largest)})  {memory}  "
            f"{of_limit(case, results, name, ceilings)}".rstrip()
        )
    return lines


def judged(one: Verdict) -> str:
    what = one.aim.over or "the fastest"
    said = "reached" if one.reached else f"MISSED: {times(one.ratio)}"
    return f"{one.aim.ours}: {times(one.aim.times)} {what}: {said}"


def row(case: Case, results: Results, ceilings: Ceilings) -> tuple[str, ...]:
    """A case in words; the best of ours against the fastest of the others."""
    own = summary.measured(case, results, "ours")
    name = summary.best_of_ours(case, results)
    if not name:
        return (case.name, "not measured", "", "", "", "", "")
    peers = summary.rivals(case, results, name)
    best = summary.fastest(case, peers)
    verdicts = summary.verdicts(case, results)
    missed = [one for one in verdicts if not one.reached]
    used = max(summary.peak(results, one) for one in case.contestants if one.role == "ours")
    return (
        case.name,
        f"{number(own[name].median)} {case.unit}",
        f"{best} {number(peers[best].median)}" if best else "",
        times(summary.ratio(case, own[name], peers[best])) if best else "",
        "; ".join(map(judged, missed)) or ("reached" if verdicts else ""),
        of_limit(case, results, name, ceilings),
        f"{gigabytes(used)} of {gigabytes(case.bound)}",
    )


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in rows
    ]


def whole(cases: list[Case], found: dict[str, Results], ceilings: Ceilings) -> list[str]:
    """Everything that has been measured."""
    known = [case for case in cases if case.name in found]
    lines = [line for case in known for line in contestants(case, found[case.name], ceilings)]
    return [*lines, "", *aligned([HEAD, *(row(one, found[one.name], ceilings) for one in known)])]
