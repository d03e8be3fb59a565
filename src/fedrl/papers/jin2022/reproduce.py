"""`fedrl reproduce`: run what is missing, compare with what was published, draw it."""

from functools import partial
from pathlib import Path

import jax
from rich.console import Console

from fedrl import __version__
from fedrl.counting import count
from fedrl.errors import FedrlError, unknown_name
from fedrl.papers.jin2022 import table_figures as figures
from fedrl.papers.jin2022.cell_runs import fits, multiply_adds, run_cells, summarise
from fedrl.papers.jin2022.cells import SEEDS, TARGETS
from fedrl.papers.jin2022.comparison import Comparison, print_comparisons, write_csv
from fedrl.progress import RunProgress, new_console
from fedrl.report.tables import say_where
from fedrl.runs.pieces import Pieces

QUICK_SEEDS = 300
# Seeds between two saves: a few seconds of work.
PIECE_ON_CPU = 512
PIECE_ON_ACCELERATOR = 16_384


def reproduce(
    target: str,
    *,
    seeds: int = SEEDS,
    out: Path | None = None,
    seed: int = 0,
    piece: int | None = None,
    console: Console | None = None,
) -> bool:
    """Reproduce a table or figure; True if every cell is within 3 combined standard errors."""
    if target not in TARGETS:
        raise unknown_name("target", target, TARGETS)
    if not 2 <= seeds <= 100_000:
        raise FedrlError(f"--seeds must be between 2 and 100000, got {seeds}")
    if not 0 <= seed < 2**32:
        raise FedrlError(f"--seed must be between 0 and {2**32 - 1}, got {seed}")
    if piece is not None and piece < 1:
        raise FedrlError(f"--piece must be at least 1, got {piece}")
    console = console or new_console()
    platform = jax.local_devices()[0].platform
    directory = Pieces.open(
        out or Path("results") / f"{target}-{seeds}-seeds",
        {
            "reproduces": f"{target} of Jin et al., AISTATS 2022",
            "seeds": seeds,
            "seed": seed,
            # Bit-for-bit repetition is promised for one version and one kind of device.
            "fedrl": __version__,
            "jax": jax.__version__,
            "platform": platform,
            "records": "before the local updates of each round, as published",
            "cells": {cell.slug: cell.described() for cell in TARGETS[target]},
        },
    )
    size = piece or (PIECE_ON_CPU if platform == "cpu" else PIECE_ON_ACCELERATOR)
    with directory.locked():
        _run_missing(target, directory, seeds, seed, size, console)
        results = [
            Comparison(cell, summarise(cell, directory.load(cell.slug, seeds, partial(fits, cell))))
            for cell in TARGETS[target]
        ]
        return _report(target, results, directory.path, console)


def _run_missing(
    target: str, directory: Pieces, seeds: int, seed: int, size: int, console: Console
) -> None:
    work = {cell: list(directory.missing(cell.slug, seeds, size)) for cell in TARGETS[target]}
    total = sum(multiply_adds(cell) * seeds for cell in work)
    left = {cell: sum(stop - start for start, stop in ranges) for cell, ranges in work.items()}
    done = sum(multiply_adds(cell) * (seeds - left[cell]) for cell in work)
    with RunProgress(f"{target}, {count(seeds, 'seeds')}", console) as progress:
        progress.begin(total, done)
        for cell, (start, stop), results in run_cells(work, seed):
            directory.save(cell.slug, start, stop, results)
            progress.headline(cell.slug)
            progress.advance(multiply_adds(cell) * (stop - start))


def _report(target: str, results: list[Comparison], folder: Path, console: Console) -> bool:
    agrees = all(one.agrees for one in results)
    write_csv(folder / f"{results[0].cell.table}.csv", results)
    drawn = figures.draw(target, results, folder)
    print_comparisons(f"{target} of Jin et al. (2022)", results, console)
    if results[0].ours.seeds < SEEDS and not agrees:
        console.print(
            "Few seeds: where one in a hundred loses a lot, they may contain none of those and "
            f"look too exact. Only {SEEDS} seeds decide.",
            highlight=False,
        )
    say_where(drawn, folder, console)
    return agrees
