"""What runs cost: what is communicated, and how long they took, as far as that is known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import jax

from fedrl.engine.client import shape_of_models
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.network.experiments import AnyExperiment
from fedrl.network.record import COST_COLUMNS, COSTS
from fedrl.progress import in_words
from fedrl.report.html.bars import Bar, bar_chart
from fedrl.report.html.numbers import bytes_as_words
from fedrl.report.html.section import Section, Table
from fedrl.report.table_runs import AnyRun
from fedrl.runs.run import Run

UNKNOWN = "not recorded"


@dataclass(frozen=True)
class Costs:
    """Of one training: of each seed, if there are several."""

    rounds: int
    parameters: int
    """That an agent shares."""
    sent: float
    """Bytes from the server to agents."""
    received: float
    measured: bool
    """On the network, or computed from the experiment."""
    seconds: float | None
    """On the machine, all seeds together."""
    computation: float | None
    """Of the slowest agent of each round, all rounds together."""

    @property
    def total(self) -> float:
        return self.sent + self.received


def shared_size(experiment: AnyExperiment) -> tuple[int, int]:
    """Parameters that an agent communicates, and their bytes."""
    if not isinstance(experiment, Experiment):
        entries = experiment.family.states * experiment.family.actions
        return entries, 8 * entries
    models = shape_of_models(experiment)
    shared, _ = experiment.learner.split(models)
    sizes = [(prod(leaf.shape[1:]), leaf.dtype.itemsize) for leaf in jax.tree.leaves(shared)]
    return sum(n for n, _ in sizes), sum(n * width for n, width in sizes)


def costs_of(run: AnyRun) -> Costs:
    """Measured where a federation has done so."""
    import pandas as pd

    experiment = run.experiment
    parameters, size = shared_size(experiment)
    file = run.path / COSTS
    if file.exists():
        # A round that was done again after a kill has two rows: both have travelled.
        try:
            table = pd.read_csv(file, dtype=float)[COST_COLUMNS.split(",")]
            rounds = int(table["round"].nunique())
        except (ValueError, LookupError):
            raise FedrlError(f"{file} is damaged: move it away, and costs are computed") from None
        return Costs(
            rounds=min(rounds, experiment.rounds),
            parameters=parameters,
            sent=float(table["bytes_sent"].sum()),
            received=float(table["bytes_received"].sum()),
            measured=True,
            seconds=float(table["seconds"].sum()),
            computation=float(table["longest_computation"].sum()),
        )
    assert isinstance(run, Run)  # only those carry out rounds without a network
    experiment = run.experiment
    rounds = int(run.metrics()["round"].max())
    return Costs(
        rounds=rounds,
        parameters=parameters,
        sent=float(rounds * experiment.agents * size),
        received=float(rounds * experiment.participants * size),
        measured=False,
        seconds=run.seconds,
        computation=None,
    )


def costs_section(runs: Sequence[AnyRun], styles: Mapping[str, str]) -> Section:
    """A table of all runs, and bars of what travels, in each run's colour, by its folder's name."""
    costs = [costs_of(run) for run in runs]
    names = [run.path.name for run in runs]
    rows = [_row(name, cost) for name, cost in zip(names, costs, strict=True)]
    columns = (
        "run",
        "communications",
        "shared parameters",
        "to agents",
        "to the server",
        "bytes",
        "time",
        "computing",
    )
    bars = [
        Bar(name, styles[name], cost.total, bytes_as_words(cost.total))
        for name, cost in zip(names, costs, strict=True)
    ]
    charts = [bar_chart("Bytes in all, both ways", bars)] if any(c.total for c in costs) else []
    words = [
        "What one training (one seed) communicates, and how long all seeds took on their machine."
    ]
    if not all(cost.measured for cost in costs):
        words.append(
            "Where agents learnt in one process nothing travelled: bytes are computed, as rounds × "
            "agents × shared parameters × bytes of a number, and are what the parameters alone "
            "would take on a network."
        )
    return Section(
        "costs", "Communication and time", words, charts=charts, tables=[Table("", columns, rows)]
    )


def _row(name: str, cost: Costs) -> list[str]:
    def time(seconds: float | None) -> str:
        return UNKNOWN if seconds is None else in_words(seconds)

    return [
        name,
        f"{cost.rounds:,}",
        f"{cost.parameters:,}",
        bytes_as_words(cost.sent),
        bytes_as_words(cost.received),
        "measured" if cost.measured else "computed",
        time(cost.seconds),
        time(cost.computation),
    ]
