"""The work behind a cell: federated runs of a range of replicates, and what is kept of them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedrl.experiment.run_directory import Arrays
from fedrl.federation.replicates import Floats, Problems, run_replicates
from fedrl.keys import Purpose, replicate_keys
from fedrl.papers.jin2022.cells import AGENTS, Cell

# Curves are summed over replicates in fixed point: integer sums do not depend on the order or on
# how the replicates were cut into pieces. 2000 is the largest return that any cell can have; its
# square times 16,000 replicates is an eighth of what 64 bits hold.
UNIT = 2.0**-32
SQUARE_UNIT = 2.0**-24


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


def run_piece(cell: Cell, start: int, stop: int, seed: int) -> Arrays:
    """Replicates start..stop-1 of a cell: their last values and the sums of their curves."""
    family = cell.environments
    with jax.enable_x64(True):
        keys = replicate_keys(seed, jnp.arange(start, stop, dtype=jnp.uint32), Purpose.ENVIRONMENTS)
        kappa = None if cell.kappa is None else jnp.float64(cell.kappa)
        drawn = family.draws(keys, AGENTS, kappa, 0)
        d0 = jnp.broadcast_to(family.d0(), (stop - start, family.states))
    outcome = run_replicates(
        cell.learner,
        Problems(drawn.P, drawn.R, d0, held_out=drawn.centre),
        cell.schedule,
        gamma=family.gamma,
        seed=seed,
        first_replicate=start,
    )
    # Table 1 reports the return in P_0, Table 2 in the agents' environments. The published records
    # were taken before the local updates of a round, so they end one round before ours.
    record = outcome.objective if cell.table == "table2" else outcome.evaluation
    curve = cell.published_scale(record[:, :-1])
    return {
        "last": curve[:, -1],
        "sum": np.rint(curve / UNIT).astype(np.int64).sum(axis=0),
        "sum_of_squares": np.rint(curve**2 / SQUARE_UNIT).astype(np.int64).sum(axis=0),
    }


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


def cost(cell: Cell) -> float:
    """Multiplications of a replicate, and what starting loops costs; for the time left."""
    states, actions = cell.environments.states, cell.environments.actions
    backup = states * states * actions
    solve = backup + states**3 / 3 + 2 * states**2
    update = backup if cell.algorithm == "QAvg" else backup + solve
    rounds = len(cell.schedule.recorded_at)
    overhead = 1000
    return AGENTS * (cell.schedule.iterations * (update + overhead) + rounds * (solve + overhead))
