"""The tabular cells of the paper: ours against the obvious NumPy loops, side by side.

    python -m benchmarks.tabular [--numpy-seeds 2] [--seeds 1024] [--repeats 3] [--json FILE]

The same cells and the same problems: NumPy runs the first few seeds, ours runs many that include
them, and the two must agree on those to 1e-9 before any time is printed. Times are per seed, the
medians of interleaved repetitions. NumPy is one process on one core; ours uses all cores.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests import obvious_numpy

from benchmarks.machine import describe
from fedrl import tabular
from fedrl.papers.jin2022.cells import AGENTS, TABLE1, TABLE2, Cell
from fedrl.papers.jin2022.work import multiply_adds

CELLS = [
    "table2 WindyCliffs-QAvg-E4",
    "table2 WindyCliffs-SoftPAvg-E4",
    "table2 WindyCliffs-ProjPAvg-E4",
    "table1 RandomMDPs-QAvg-kappa0.4",
    "table1 RandomMDPs-SoftPAvg-kappa0.4",
    "table1 RandomMDPs-ProjPAvg-kappa0.4",
]
VARIANT = {"QAvg": "value", "SoftPAvg": "natural", "ProjPAvg": ""}


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def float64_peak(size: int = 1536, repeats: int = 5) -> float:
    """Multiply-adds per second of a large matrix product on all cores, the best of a few."""
    x = np.random.default_rng(0).random((size, size))
    best = min(seconds(lambda: x @ x)[0] for _ in range(repeats))
    return size**3 / best


def compare(cell: Cell, numpy_seeds: int, seeds: int, repeats: int) -> dict[str, Any]:
    """Median seconds per seed of both, after checking that they compute the same."""
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

    def ours() -> tabular.Result:
        return tabular.run(cell.learner, task.P, task.R, init=init, **settings)

    def obvious() -> list[obvious_numpy.Run]:
        few = slice(0, numpy_seeds)
        return obvious_numpy.run_seeds(
            cell.algorithm.lower(),
            *(task.P[few], task.R[few], init[few]),
            variant=VARIANT[cell.algorithm],
            **settings,
        )

    ours()  # compiles
    times: dict[str, list[float]] = {"numpy": [], "ours": []}
    for _ in range(repeats):
        took, expected = seconds(obvious)
        times["numpy"].append(took / numpy_seeds)
        took, found = seconds(ours)
        times["ours"].append(took / seeds)
    for i, run in enumerate(expected):
        np.testing.assert_allclose(found.objective[i], run.objective, rtol=1e-9, atol=1e-9)
    numpy_time, our_time = (statistics.median(times[name]) for name in ("numpy", "ours"))
    return {
        "cell": f"{cell.table} {cell.slug}",
        "numpy_seconds_per_seed": numpy_time,
        "ours_seconds_per_seed": our_time,
        "ratio": numpy_time / our_time,
        "ratio_spread": [
            min(times["numpy"]) / max(times["ours"]),
            max(times["numpy"]) / min(times["ours"]),
        ],
        "multiply_adds_per_second": multiply_adds(cell) / our_time,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--numpy-seeds", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    machine = describe()
    print(*(f"{name}: {value}" for name, value in machine.items()), sep="\n")
    peak = float64_peak()
    print(f"float64 matrix product: {peak / 1e9:.1f} G multiply-adds/s on all cores\n")
    print(f"{'cell':38s} {'NumPy/seed':>12s} {'ours/seed':>12s} {'ratio':>8s} {'of peak':>8s}")
    by_name = {f"{cell.table} {cell.slug}": cell for cell in TABLE1 + TABLE2}
    rows = []
    for name in CELLS:
        row = compare(by_name[name], arguments.numpy_seeds, arguments.seeds, arguments.repeats)
        row["part_of_peak"] = row["multiply_adds_per_second"] / peak
        rows.append(row)
        print(
            f"{name:38s} {row['numpy_seconds_per_seed'] * 1e3:9.1f} ms "
            f"{row['ours_seconds_per_seed'] * 1e3:9.3f} ms {row['ratio']:7.0f}x "
            f"{row['part_of_peak']:7.1%}",
            flush=True,
        )
    total = sum(row["numpy_seconds_per_seed"] for row in rows) / sum(
        row["ours_seconds_per_seed"] for row in rows
    )
    print(f"\nall six cells together: {total:.0f} times the obvious NumPy loops")
    if arguments.json:
        record = {"machine": machine, "peak": peak, "rows": rows, "ratio": total}
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
