"""The published tables, which owe nothing to us, against our runs."""

import numpy as np
import pytest
from rich.console import Console

from fedrl.papers.jin2022.cell_runs import run_cells, summarise
from fedrl.papers.jin2022.cells import TABLE1, TABLE2
from fedrl.papers.jin2022.comparison import SMALLEST_PUBLISHED_SE
from fedrl.papers.jin2022.reproduce import reproduce

SEEDS = 128
PUBLISHED_SEEDS = 16_000
# 48 cells, many on the same environments: one of them beyond 4 would happen once in 300 tries.
FAR = 4.0


@pytest.mark.parametrize("cells", [TABLE1, TABLE2], ids=["table1", "table2"])
def test_at_few_seeds_every_cell_is_within_the_noise_of_the_published_number(cells):
    for cell, _, results in run_cells({cell: [(0, SEEDS)] for cell in cells}, seed=0):
        ours = summarise(cell, [results])
        # The noise of a mean of few seeds follows from the published spread. Ours would not do:
        # where one seed in a hundred loses a lot, few seeds see none of them and no spread.
        spread = (cell.published_se or SMALLEST_PUBLISHED_SE) * np.sqrt(PUBLISHED_SEEDS)
        z = (ours.mean - cell.published) / (spread / np.sqrt(SEEDS))
        assert abs(z) < FAR, f"{cell.slug}: {ours.mean:.2f}, published {cell.published}"


@pytest.mark.slow
@pytest.mark.parametrize("target", ["table1", "table2"])
def test_at_16000_seeds_every_cell_is_within_three_combined_standard_errors(target, tmp_path):
    assert reproduce(target, out=tmp_path / "run", console=Console())
