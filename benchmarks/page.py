"""Writes `docs/performance.md` and its figures from what was measured: `make performance`.

Numbers come from `benchmarks/results/*.json`, words from `benchmarks/notes/*.md`. Records that are
not there are left out.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import recorded, summary, table
from benchmarks.case import Case
from benchmarks.recorded import Bench, Measured
from benchmarks.summary import Results, gigabytes
from benchmarks.table import number, times

ROOT = Path(__file__).parents[1]
NOTES = Path(__file__).parent / "notes"
PAGE = ROOT / "docs" / "performance.md"
IMAGES = ROOT / "docs" / "images"
MADE = "<!-- made by `make performance` of benchmarks/results and benchmarks/notes: edit those -->"
PROVISIONAL = "**These numbers are provisional**: a short run on a busy machine, not a measurement."
LONG_RUN = 1_600_000
"""Updates of the released experiments on robots: 5 agents, 320,000 steps."""

Lines = list[str]


def notes(name: str) -> str:
    return (NOTES / f"{name}.md").read_text().strip()


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *map(list, rows)]
    text = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([text[0], "|" + "---|" * len(lines[0]), *text[1:]])


def picture(name: str, what: str) -> str:
    return f"![{what}](images/performance-{name}.svg)"


# A case


def contestants(case: Case, results: Results, ceilings: dict[str, Any]) -> str:
    """A line for each, with what our best is to it."""
    by_name = {one.name: one for one in case.contestants}
    own = summary.measured(case, results, "ours")
    best = summary.best_of_ours(case, results)
    rows = []
    for name, found in summary.measured(case, results).items():
        one = by_name[name]
        compared = best and one.role in ("peer", "part")
        rows.append(
            (
                f"**{name}**" if one.role == "ours" else name,
                number(found.median),
                f"{number(found.smallest)} to {number(found.largest)}",
                times(summary.ratio(case, own[best], found)) if compared else "",
                table.of_limit(case, results, name, ceilings),
                gigabytes(summary.peak(results, one)),
            )
        )
    head = ("", case.unit, "smallest to largest", "our best is", "of the limit", "memory")
    return markdown(head, rows)


def limits(case: Case, results: Results, ceilings: dict[str, Any]) -> str:
    """All of them, with what they come from."""
    found = summary.limits(case, results, ceilings)
    if not case.work or not found:
        return ""
    work = case.work
    speed = ceilings[work.dtype]
    reasons = {
        "arithmetic": f"{number(work.operations / 1e6)} million operations at "
        f"{speed / 1e9:.0f} GFLOP/s in {work.dtype}"
    }
    if work.moved:
        memory = summary.bandwidth(ceilings, work.kept)
        reasons["memory"] = f"{number(work.moved / 1e3)} kB at {memory / 1e9:.0f} GB/s"
    parts = []
    for one in found:
        why = f" ({reasons[one.name]})" if one.name in reasons else ""
        parts.append(f"{one.name} {number(one.value)} {case.unit}{why}")
    return f"Limits: {'; '.join(parts)}."


def aims(case: Case, results: Results) -> str:
    parts = []
    for one in summary.verdicts(case, results):
        over = one.over if one.aim.over else f"the fastest peer, {one.over}"
        said = "reached" if one.reached else "**missed**"
        parts.append(f"{one.aim.ours}, {times(one.aim.times)} {over}: {said} ({times(one.ratio)})")
    return f"Aims: {'; '.join(parts)}." if parts else ""


def section(bench: Bench | None, name: str) -> Lines:
    """The cases of a section, one after the other."""
    lines: Lines = []
    if bench is None:
        return lines
    for case, results in bench.section(name):
        lines += [f"**{case.title}**", contestants(case, results, bench.ceilings)]
        lines += [limits(case, results, bench.ceilings), aims(case, results)]
    return lines


# All cases at a glance


def overview(bench: Bench) -> Lines:
    known = bench.record["machine"]
    versions = "; ".join(
        f"{name} {', '.join(map(' '.join, found.items()))}"
        for name, found in bench.record["versions"].items()
    )
    own = [
        (f"**{case.section}** {case.title}", *table.row(case, results, bench.ceilings)[1:])
        for case, results in bench.cases
    ]
    left_out = [f"Left out: {', '.join(bench.record['left_out'])}."]
    return [
        f"Measured on {known['cores']} cores of an {known['processor']}, {bench.record['begun']} "
        f"(`benchmarks/results/{recorded.BENCH}.json`). Versions: {versions}.",
        *([PROVISIONAL] if bench.provisional else []),
        markdown(table.HEAD, own),
        *(left_out if bench.record["left_out"] else []),
        picture("ratios", "How many times our runs are as fast as those of others"),
    ]


def together(cases: list[Measured]) -> str:
    """All cells of the tables: the time of the others over ours."""
    spent = {"ours": 0.0, "NumPy loops": 0.0}
    for case, results in cases:
        found = summary.measured(case, results)
        if not spent.keys() <= found.keys():
            return ""
        for name in spent:
            spent[name] += 1 / found[name].median
    ratio = spent["NumPy loops"] / spent["ours"]
    return f"All {len(cases)} cells together: **{ratio:.0f} times** the obvious NumPy loops."


def flower(bench: Bench | None) -> Lines:
    lines = []
    for case, results in bench.section("flower") if bench else []:
        for name in summary.measured(case, results, "ours"):
            more = results[name]["more"][-1]
            lines.append(
                f"{case.title}, {name}: {more['computation']:.1f} s of computation and "
                f"{more['beyond']:.1f} s beyond it (at most {more['beyond_at_most']:.1f}), "
                f"{number(more['bytes_per_agent'])} bytes for each agent and direction."
            )
    return lines


def long_run(bench: Bench | None) -> str:
    """How long the released experiments on robots take."""
    parts = []
    for case, results in bench.section("ddpg") if bench else []:
        found = summary.measured(case, results).get("ours, 1 seed")
        if found:
            parts.append(f"{LONG_RUN / found.median / 60:.0f} minutes at {case.title}")
    if not parts:
        return ""
    return f"A run of 5 agents x 320,000 steps with one seed would take {', '.join(parts)}."


# Accelerators


def millions(value: float) -> str:
    return f"{value / 1e6:.1f} M" if value >= 1e6 else f"{value:,.0f}"


def grid(rows: Iterable[dict[str, Any]], column: str, line: str) -> str:
    """Updates per second: a column and a line for each value of these keys."""
    found = {(row[line], row[column]): millions(row["updates_per_second"]) for row in rows}
    columns = list(dict.fromkeys(key for _, key in found))
    lines = list(dict.fromkeys(key for key, _ in found))
    cells = [(one, *(found.get((one, other), "") for other in columns)) for one in lines]
    return markdown(("updates/s", *columns), cells)


def accelerator(name: str, record: dict[str, Any]) -> Lines:
    where = f"{recorded.machine(record)} (`benchmarks/results/{name}_scaling_h200.json`); agents x"
    return [
        f"On {where} seeds in each line:",
        grid(recorded.scaling(record), "network", "size"),
        picture(f"{name}-accelerator", "Updates per second against agents"),
    ]


def full_tables() -> Lines:
    rows = []
    for name in ("full_tables_2_cores", "full_tables_h200"):
        record = recorded.load(name)
        if record:
            parts = record.get("tables", {})
            seconds = [parts.get("table1"), parts.get("table2"), record["seconds"]]
            told = [f"{value:,.0f} s" if value else "" for value in seconds]
            peak = record.get("peak_bytes")
            rows.append((recorded.machine(record), *told, gigabytes(peak) if peak else ""))
    return [markdown(("machine", "Table 1", "Table 2", "both", "memory"), rows)] if rows else []


def agents_row(row: dict[str, Any], record: dict[str, Any]) -> tuple[str, ...]:
    """A size; the memory of one more agent is that of the process, beyond the smallest size."""
    smallest = record["rows"][0]
    more = row["agents"] - smallest["agents"]
    on_host = record["machine"]["platform"] == "cpu"
    memory = (row["peak_bytes"] - smallest["peak_bytes"]) / more if more and on_host else None
    return (
        f"{row['agents']:,}",
        f"{row['waves']:,}",
        f"{number(row['updates_per_second'])} ({number(row['slowest'])} to "
        f"{number(row['fastest'])})",
        f"{1e6 / row['updates_per_second']:.3g} µs",
        f"{row['core_microseconds_per_update']:.3g} µs" if on_host else "",
        f"{memory / 1e3:.3g} kB" if memory and memory > 0 else "",
    )


def agents() -> Lines:
    """By the number of agents, where that has been measured."""
    lines: Lines = []
    for name in ("agents_2_cores", "agents_h200"):
        record = recorded.load(name)
        if not record:
            continue
        rows = [agents_row(row, record) for row in record["rows"]]
        head = (
            "agents",
            "waves",
            "updates/s",
            "an update of one",
            "of a core",
            "memory of one more",
        )
        where = f"On {recorded.machine(record)} (`benchmarks/results/{name}.json`):"
        lines += [where, markdown(head, rows)]
    if not lines:
        return []
    told = picture("agents", "Time of an update of one agent against their number")
    return ["## Many agents", notes("agents"), *lines, told]


def page() -> str:
    """All of it."""
    bench = recorded.bench()
    dqn, ddpg = recorded.load("dqn_scaling_h200"), recorded.load("ddpg_scaling_h200")
    parts = [
        MADE,
        notes("intro"),
        *(overview(bench) if bench else []),
        notes("method"),
        "## DQNAvg",
        *section(bench, "dqn"),
        notes("dqn"),
        *(["### DQNAvg on an accelerator", *accelerator("dqn", dqn)] if dqn else []),
        notes("dqn_accelerator"),
        "## DDPGAvg",
        *section(bench, "ddpg"),
        long_run(bench),
        notes("ddpg"),
        "### DDPGAvg on an accelerator",
        *(accelerator("ddpg", ddpg) if ddpg else []),
        notes("ddpg_accelerator"),
        *agents(),
        "## The published tables at full size",
        *full_tables(),
        notes("full_tables"),
        "## Tables against the obvious NumPy loops",
        *section(bench, "tabular"),
        together(bench.section("tabular")) if bench else "",
        notes("tabular"),
        "## A round over a network",
        *section(bench, "flower"),
        *flower(bench),
        notes("flower"),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def main() -> None:
    from benchmarks import plots  # Matplotlib takes a second

    PAGE.write_text(page())
    print(PAGE)
    for path in plots.draw(IMAGES):
        print(path)


if __name__ == "__main__":
    main()
