"""The work behind a cell: federated runs of a range of replicates, and what is kept of them."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrl.devices import available_cores
from fedrl.files import Arrays
from fedrl.papers.jin2022.cells import AGENTS, SETTINGS, Cell
from fedrl.tabular import Result, run_drawn
from fedrl.tabular.exact.sparsity import sparsity_of
from fedrl.tabular.problems import Floats

# Curves are summed over replicates in fixed point: integer sums do not depend on the order or on
# how the replicates were cut into pieces. 2000 is the largest return that any cell can have; its
# square times 16,000 replicates is an eighth of what 64 bits hold.
UNIT = 2.0**-32
SQUARE_UNIT = 2.0**-24

Range = tuple[int, int]
"""First replicate, and one past the last."""


class Curve(NamedTuple):
    """Means over replicates at each recorded iteration."""

    iterations: NDArray[np.int64]
    mean: Floats
    se: Floats


class Measured(NamedTuple):
    """A cell, measured by us."""

    mean: float
    se: float
    seeds: int
    curve: Curve


def run_cells(
    work: Mapping[Cell, Sequence[Range]], seed: int
) -> Iterator[tuple[Cell, Range, Arrays]]:
    """The pieces of work with their results, cell by cell, in the order they become ready.

    Cells that differ in E or kappa alone share a compiled program; while the first cells run, the
    programs of the others are compiled on other cores.
    """
    waiting = {cell: ranges for cell, ranges in work.items() if ranges}
    pool = ThreadPoolExecutor(available_cores(), thread_name_prefix="fedrl-compile")
    programs = {_program(cell): cell for cell in waiting}
    compiled = {program: pool.submit(_compile, cell) for program, cell in programs.items()}
    try:
        while waiting:
            wait({compiled[_program(cell)] for cell in waiting}, return_when=FIRST_COMPLETED)
            ready = next(cell for cell in waiting if compiled[_program(cell)].done())
            compiled[_program(ready)].result()
            for piece in waiting.pop(ready):
                yield ready, piece, run_piece(ready, *piece, seed)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _program(cell: Cell) -> tuple[str, ...]:
    return cell.table, cell.family, cell.algorithm


def _compile(cell: Cell) -> None:
    """A single block without a single round: what is left is the compilation."""
    _run(cell, 0, 1, 0, rounds=0)


def run_piece(cell: Cell, start: int, stop: int, seed: int) -> Arrays:
    """Replicates start..stop-1 of a cell: their last values and the sums of their curves."""
    result = _run(cell, start, stop, seed)
    # Table 1 reports the return in P_0, Table 2 in the agents' environments. The released
    # experiments record before the local updates of a round, so they end one round before ours.
    values = result.objective if cell.table == "table2" else result.evaluation
    assert values is not None  # those of Table 1 have a kappa
    curve = cell.published_scale(values[:, :-1])
    return {
        "last": curve[:, -1],
        "sum": np.rint(curve / UNIT).astype(np.int64).sum(axis=0),
        "sum_of_squares": np.rint(curve**2 / SQUARE_UNIT).astype(np.int64).sum(axis=0),
    }


def fits(cell: Cell, arrays: Arrays, seeds: int) -> bool:
    """Whether `run_piece` could have made this of so many replicates of a cell."""
    curve = (len(cell.schedule.recorded_at) - 1,)
    expected = {
        "last": ((seeds,), np.float64),
        "sum": (curve, np.int64),
        "sum_of_squares": (curve, np.int64),
    }
    return {name: (x.shape, x.dtype) for name, x in arrays.items()} == expected


def _run(cell: Cell, start: int, stop: int, seed: int, rounds: int | None = None) -> Result:
    lr, decay, iterations = SETTINGS[cell.table, cell.family, cell.algorithm]
    return run_drawn(
        cell.learner,
        cell.environments,
        agents=AGENTS,
        kappa=cell.kappa,
        seeds=stop - start,
        first_seed=start,
        E=cell.E,
        iterations=iterations,
        lr=lr,
        decay=decay,
        rounds=rounds,
        seed=seed,
    )


def summarise(cell: Cell, pieces: list[Arrays]) -> Measured:
    """The number that the table gives, from all pieces of a cell."""
    last = np.concatenate([piece["last"] for piece in pieces])
    seeds = len(last)
    mean = np.sum([piece["sum"] for piece in pieces], axis=0) * UNIT / seeds
    square = np.sum([piece["sum_of_squares"] for piece in pieces], axis=0) * SQUARE_UNIT / seeds
    # SQUARE_UNIT rounding can leave a variance of zero slightly negative.
    variance = np.maximum(square - mean**2, 0.0) * seeds / (seeds - 1)
    curve = Curve(cell.schedule.recorded_at[:-1], mean, np.sqrt(variance / seeds))
    # Table 2: the largest over iterations of the mean over seeds. Table 1: the last iteration.
    reported = float(mean.max()) if cell.table == "table2" else float(last.mean())
    return Measured(reported, float(last.std(ddof=1) / np.sqrt(seeds)), seeds, curve)


def multiply_adds(cell: Cell) -> float:
    """Arithmetic of a replicate: backups, policy mixing and elimination; nothing else counts.

    Only what is possible, and within the band of a matrix.
    """
    support = cell.environments.support()
    sparsity = sparsity_of(support)
    states = cell.environments.states
    backup = np.count_nonzero(support)
    reach = states if sparsity is None else sparsity.bandwidth
    window = np.minimum(reach, np.arange(states))
    evaluation = backup + np.sum(window**2) + 2 * np.sum(window)
    solutions = {"QAvg": 0, "SoftPAvg": 1, "ProjPAvg": 2}[cell.algorithm]
    back_substitution = solutions * np.sum(window)
    update = backup if cell.algorithm == "QAvg" else evaluation + back_substitution + backup
    places = AGENTS if cell.kappa is None else AGENTS + 1
    rounds = cell.schedule.rounds + 1
    updates = AGENTS * cell.schedule.iterations * update
    return float(updates + places * rounds * evaluation)
