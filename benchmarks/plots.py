"""The figures of `docs/performance.md`, on no ground of their own: readable on white and black."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler

mpl.use("svg")

import matplotlib.pyplot as plt

from benchmarks import recorded, summary
from benchmarks.recorded import Bench
from benchmarks.table import times

INK = "#808690"
COLOURS = ("#3b82c4", "#d9822b", "#3f9b63", "#b0569c", "#a5803b")
STYLE: Any = {
    "svg.hashsalt": "fedrl",  # the same file for the same numbers
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.prop_cycle": cycler("color", COLOURS),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "font.size": 10,
}


def save(figure: Any, folder: Path, name: str) -> Path:
    path = folder / f"performance-{name}.svg"
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    return path


def ratios(bench: Bench) -> Any:
    """A bar for the peer that we aim at, a mark for the aim, a dot for the fastest peer."""
    rows = []
    for case, results in bench.cases:
        judged = summary.verdicts(case, results)
        named = next((one for one in judged if one.aim.over), None)
        if named:
            peers = summary.rivals(case, results, named.aim.ours)
            own = summary.measured(case, results, "ours")[named.aim.ours]
            best = summary.fastest(case, peers)
            closest = summary.ratio(case, own, peers[best])
            rows.append((f"{case.section}: {case.title}", named, closest))
    figure, axes = plt.subplots(figsize=(8, 0.42 * len(rows) + 1.2))
    for y, (_, named, closest) in enumerate(rows):
        colour = COLOURS[0] if named.reached else COLOURS[1]
        axes.barh(y, named.ratio - 0.5, left=0.5, height=0.6, color=colour)
        axes.plot([named.aim.times] * 2, [y - 0.4, y + 0.4], color=INK, linewidth=2.5)
        axes.plot(closest, y, "o", color=COLOURS[2], markeredgecolor="white", markersize=7)
        label = f"  {times(named.ratio)} {named.over}"
        axes.text(max(named.ratio, named.aim.times), y, label, va="center", fontsize=9)
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(0.5, 20 * max(max(n.ratio, n.aim.times) for _, n, _ in rows))
    axes.axvline(1.0, color=INK, linewidth=0.8)
    axes.set_xlabel("times as fast: bar the named peer, line our aim, dot the fastest peer")
    return figure


def growth(rows: list[dict[str, Any]], what: str) -> Any:
    """Updates per second against all agents of all seeds, a line for each network."""
    lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        if row.get("simulator", "mjx") == "mjx" and row["agents"] <= 5:
            lines[row["network"]].append((row["agents"] * row["seeds"], row["updates_per_second"]))
    figure, axes = plt.subplots(figsize=(7, 3.6))
    for name, points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), "o-", label=name)
    axes.set(xscale="log", yscale="log", xlabel="agents x seeds", ylabel=what)
    axes.grid(True)
    axes.legend()
    return figure


def by_agents(records: dict[str, dict[str, Any]]) -> Any:
    """Time of an update of one agent against their number."""
    figure, axes = plt.subplots(figsize=(7, 3.6))
    for name, record in records.items():
        lines: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for row in record["rows"]:
            time = 1e6 / row["updates_per_second"]
            lines[row["seeds"]].append((row["agents"], time))
        for seeds, points in lines.items():
            label = f"{name}, {seeds} seed{'s' * (seeds > 1)}"
            axes.plot(*zip(*sorted(points), strict=True), "o-", label=label)
    axes.set(xscale="log", yscale="log", xlabel="agents", ylabel="µs for an update of one")
    axes.grid(True)
    axes.legend()
    return figure


def draw(folder: Path) -> Iterator[Path]:
    """Those whose numbers there are."""
    with plt.rc_context(STYLE):
        if (bench := recorded.bench()) and bench.cases:
            yield save(ratios(bench), folder, "ratios")
        if record := recorded.load("dqn_scaling_h200"):
            figure = growth(recorded.scaling(record), "updates per second")
            yield save(figure, folder, "dqn-accelerator")
        if record := recorded.load("ddpg_scaling_h200"):
            figure = growth(recorded.scaling(record), "updates per second")
            yield save(figure, folder, "ddpg-accelerator")
        loaded = {name: recorded.load(f"agents_{name}") for name in ("2_cores", "h200")}
        known = {name.replace("_", " "): found for name, found in loaded.items() if found}
        if known:
            yield save(by_agents(known), folder, "agents")
