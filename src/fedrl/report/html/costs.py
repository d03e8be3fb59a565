"""What runs cost: what is communicated, and how long they took, as far as that is known."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import pandas as pd

from fedrl.errors import FedrlError
from fedrl.network.kinds import first_agent
from fedrl.network.record import COST_COLUMNS, COSTS
from fedrl.progress import in_words
from fedrl.report.html.numbers import bytes_as_words
from fedrl.report.html.section import Section, Table
from fedrl.report.html.svg import RIGHT, WIDTH, Chart, rect, text
from fedrl.report.table_runs import AnyRun

COLUMNS = (
    *("run", "communications", "shared parameters"),
    *("to agents", "to the server", "bytes", "time", "computing"),
)
ROW = 44.0
"""Height of a bar and what stands above it."""


class Costs(NamedTuple):
    """Of one training: of each seed, if there are several."""

    rounds: int
    sent: float
    """Bytes from the server to agents."""
    received: float
    how: str
    """`measured` on the network, or `computed` from the experiment."""
    seconds: float | None
    """On the machine, all seeds together."""
    computation: float | None
    """Of the slowest agent of each round, all rounds together."""


def costs_of(run: AnyRun, size: int) -> Costs:
    """Measured where a federation has done so; `size` is the bytes that an agent shares."""
    experiment, file = run.experiment, run.path / COSTS
    if not file.exists():
        rounds = int(run.metrics()["round"].max())
        sent, received = (rounds * n * size for n in (experiment.agents, experiment.participants))
        return Costs(rounds, sent, received, "computed", run.seconds, None)
    # A round that was done again after a kill has two rows: both have travelled.
    try:
        table = pd.read_csv(file, dtype=float)[COST_COLUMNS.split(",")]
        rounds = int(table["round"].nunique())
    except (ValueError, LookupError):
        raise FedrlError(f"{file} is damaged: move it away, and costs are computed") from None
    sums = table[["bytes_sent", "bytes_received", "seconds", "longest_computation"]].sum()
    sent, received, seconds, computation = sums
    return Costs(min(rounds, experiment.rounds), sent, received, "measured", seconds, computation)


def costs_section(runs: Sequence[AnyRun], styles: Mapping[str, str]) -> Section:
    """A table of all runs, and bars of what travels, in each run's colour, by its folder's name."""
    rows, bars, computed = [], [], False
    for run in runs:
        # What an agent is sent and sends, with what a correction adds.
        leaves = jax.tree.leaves(first_agent(run.experiment).sent)
        cost = costs_of(run, sum(x.size * x.dtype.itemsize for x in leaves))
        counts = f"{cost.rounds:,}", f"{sum(x.size for x in leaves):,}"
        travelled = bytes_as_words(cost.sent), bytes_as_words(cost.received)
        times = (cost.seconds, cost.computation)
        took = ("not recorded" if time is None else in_words(time) for time in times)
        rows.append([run.path.name, *counts, *travelled, cost.how, *took])
        bars.append((run.path.name, styles[run.path.name], cost.sent + cost.received))
        computed |= cost.how == "computed"
    charts = [_bars("Bytes in all, both ways", bars)] if any(x for *_, x in bars) else []
    words = [
        "What one training (one seed) communicates, and how long all seeds took on their machine."
    ]
    if computed:
        words.append(
            "Where agents learnt in one process nothing travelled: bytes are computed, as rounds × "
            "agents × shared parameters × bytes of a number, and are what the numbers alone would "
            "take on a network."
        )
    tables = [Table("", COLUMNS, rows)]
    return Section("costs", "Communication and time", words, charts=charts, tables=tables)


def _bars(title: str, bars: Sequence[tuple[str, str, float]]) -> Chart:
    """(label, style, bytes) one below the other; labels may be long, and stand above their bars."""
    whole, longest = WIDTH - RIGHT, max(value for *_, value in bars)
    marks, said = [], []
    for i, (label, style, value) in enumerate(bars):
        y, told = 14.0 + i * ROW, bytes_as_words(value)
        marks += [
            text(0.0, y, label),
            text(whole, y, told, "end", "value"),
            rect(0.0, y + 7, whole, 10.0, class_="track"),
            rect(0.0, y + 7, whole * value / longest, 10.0, class_=f"bar {style}"),
        ]
        said.append(f"{label} {told}")
    return Chart(title, f"{title}: {'; '.join(said)}", marks, height=len(bars) * ROW)
