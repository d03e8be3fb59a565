"""A tabular cell of the paper, by our engine or by the obvious NumPy loops.

    python -m benchmarks.tabular ours "table2 WindyCliffs-QAvg-E4" --seeds 1024

Both solve the same problems: NumPy the first few, ours many that include them. One JSON line is
printed with seeds per second and, to be compared, the recorded returns of the first seeds. NumPy is
one process on one core; ours uses all cores.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from tests import obvious_numpy

from benchmarks.machine import versions
from fedrl import tabular
from fedrl.papers.jin2022.cells import AGENTS, TABLE1, TABLE2, Cell

CELLS = (
    "table2 WindyCliffs-QAvg-E4",
    "table2 WindyCliffs-SoftPAvg-E4",
    "table2 WindyCliffs-ProjPAvg-E4",
    "table1 RandomMDPs-QAvg-kappa0.4",
    "table1 RandomMDPs-SoftPAvg-kappa0.4",
    "table1 RandomMDPs-ProjPAvg-kappa0.4",
)
VARIANT = {"QAvg": "value", "SoftPAvg": "natural", "ProjPAvg": ""}
COMPARED = 2
"""Seeds whose results are compared."""


def cell_of(name: str) -> Cell:
    return {f"{cell.table} {cell.slug}": cell for cell in TABLE1 + TABLE2}[name]


def problem(cell: Cell, seeds: int) -> tuple[Any, Any, dict[str, Any]]:
    """The task, where tables begin, and the settings; the first seeds do not depend on how many."""
    family, schedule = cell.environments, cell.schedule
    task = family.task(agents=AGENTS, seeds=seeds, kappa=cell.kappa)
    init = np.random.default_rng(0).random((seeds, family.states, family.actions))
    if cell.algorithm == "ProjPAvg":
        init /= init.sum(axis=-1, keepdims=True)
    settings: dict[str, Any] = {
        "gamma": family.gamma,
        "d0": task.d0,
        "E": cell.E,
        "iterations": schedule.iterations,
        "lr": float(schedule.lr[0]),
        "decay": schedule.decay,
    }
    return task, init, settings


def ours(cell: Cell, seeds: int) -> Callable[[], Any]:
    task, init, settings = problem(cell, seeds)
    settings["support"] = cell.environments.support()

    def run() -> Any:
        return tabular.run(cell.learner, task.P, task.R, init=init, **settings).objective

    return run


def numpy(cell: Cell, seeds: int) -> Callable[[], Any]:
    task, init, settings = problem(cell, seeds)

    def run() -> Any:
        runs = obvious_numpy.run_seeds(
            cell.algorithm.lower(),
            *(task.P, task.R, init),
            variant=VARIANT[cell.algorithm],
            **settings,
        )
        return np.stack([one.objective for one in runs])

    return run


WAYS = {"ours": ours, "numpy": numpy}


def measure(run: Callable[[], Any], seconds: float) -> tuple[float, Any]:
    """Seconds of a call, over as many as fit, and what it gives."""
    calls, begun = 0, time.perf_counter()
    while not calls or time.perf_counter() - begun < seconds:
        found = run()
        calls += 1
    return (time.perf_counter() - begun) / calls, found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("cell", choices=CELLS)
    parser.add_argument("--seeds", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=1.0, help="at least, after the warm-up")
    given = parser.parse_args()
    run = WAYS[given.way](cell_of(given.cell), given.seeds)
    if given.way == "ours":
        run()  # compiles
    seconds, found = measure(run, given.seconds)
    record = {
        "value": given.seeds / seconds,
        "check": np.asarray(found)[:COMPARED].ravel().tolist(),
        "versions": versions(),
    }
    print(json.dumps(record))


if __name__ == "__main__":
    main()
