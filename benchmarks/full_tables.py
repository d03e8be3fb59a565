"""Tables 1 and 2 at full size on whatever device JAX has: seconds and agreement, cell by cell.

    python -m benchmarks.full_tables [--seeds 16000] [--piece N] [--json FILE]

Only JAX and NumPy are needed, so that it can be run on machines where nothing can be installed.
"""

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from fedrl.files import Arrays
from fedrl.papers.jin2022.cell_runs import run_cells, summarise
from fedrl.papers.jin2022.cells import TABLE1, TABLE2, Cell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=16_000)
    parser.add_argument("--piece", type=int, default=16_000, help="seeds in memory at a time")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    machine = describe()
    print(*(f"{name}: {value}" for name, value in machine.items()), sep="\n")
    work = {
        cell: [
            (start, min(start + arguments.piece, arguments.seeds))
            for start in range(0, arguments.seeds, arguments.piece)
        ]
        for cell in TABLE1 + TABLE2
    }
    started = begun = time.perf_counter()
    pieces: dict[Cell, list[Arrays]] = {cell: [] for cell in work}
    rows: list[dict[str, Any]] = []
    for cell, _, results in run_cells(work, seed=0):
        pieces[cell].append(results)
        if len(pieces[cell]) < len(work[cell]):
            continue
        measured = summarise(cell, pieces[cell])
        seconds, begun = time.perf_counter() - begun, time.perf_counter()
        error = (measured.se**2 + (cell.published_se or 0.005) ** 2) ** 0.5
        z = (measured.mean - cell.published) / error
        name = f"{cell.table} {cell.slug}"
        rows.append({"cell": name, "seconds": seconds, "mean": measured.mean, "z": z})
        print(f"{name:44s} {seconds:7.2f} s  {measured.mean:8.3f}  z = {z:+.2f}", flush=True)
    total = time.perf_counter() - started
    print(f"both tables, {arguments.seeds} seeds, compilation included: {total:.1f} s")
    if arguments.json:
        tables = ("table1", "table2")
        record = {
            "machine": machine,
            "seeds": arguments.seeds,
            "seconds": total,
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "tables": {
                name: sum(row["seconds"] for row in rows if row["cell"].startswith(name))
                for name in tables
            },
            "cells": rows,
        }
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
