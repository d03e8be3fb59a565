"""Arithmetic and memory that an update of one agent, or a seed of a table, cannot do without."""

from itertools import pairwise

from benchmarks import products
from benchmarks.case import Work
from benchmarks.peers.ddpg.common import ROBOTS
from benchmarks.peers.dqn import common as dqn
from benchmarks.training import AGENTS
from fedrl.papers.jin2022.cell_runs import multiply_adds
from fedrl.papers.jin2022.cells import Cell

FLOAT = 4


def of_cell(cell: Cell) -> Work:
    """Blocks of problems nearly fit the cache, so memory is not counted."""
    return Work(operations=2 * multiply_adds(cell), dtype="float64")


def of_dqn(hidden: tuple[int, ...], batch: int) -> Work:
    """Two passes forward, one back to the weights and, but for the first layer, to the inputs."""
    layers = [*pairwise((dqn.OBSERVATION, *hidden, dqn.ACTIONS))]
    weights = sum(inputs * outputs for inputs, outputs in layers)
    parameters = weights + sum(outputs for _, outputs in layers)
    first, _ = layers[0]
    row = FLOAT * (2 * dqn.OBSERVATION + 3)
    return Work(
        operations=2 * batch * (4 * weights - first * hidden[0]),
        # Parameters and Adam's moments, read and written, and the batch.
        moved=FLOAT * 6 * parameters + batch * row,
        kept=FLOAT * 4 * parameters * AGENTS,
    )


def of_ddpg(robot: str, hidden: tuple[int, int], batch: int) -> Work:
    """Products as in `products`; parameters, moments and targets read and written, the batch."""
    observation, action = ROBOTS[robot]
    first, second = hidden
    actor = (observation + 1) * first + (first + 1) * second + (second + 1) * action
    critic = (observation + 1) * first + (first + action + 1) * second + second + 1
    row = FLOAT * (2 * observation + action + 2)
    return Work(
        operations=products.operations(robot, hidden, batch),
        moved=FLOAT * 8 * (actor + critic) + batch * row,
        kept=FLOAT * 4 * (actor + critic) * AGENTS,
    )
