"""The cells of the tables: all there, with the settings of the protocol."""

from math import inf

import numpy as np
import pytest
from tests import obvious_numpy

import fedrl
from fedrl.papers.jin2022.cell_runs import fits, run_piece, summarise
from fedrl.papers.jin2022.cells import FIGURE2, TABLE1, TABLE2


def test_all_published_cells_are_there():
    assert len(TABLE1) == 30
    assert len(TABLE2) == 18
    assert {cell.kappa for cell in TABLE1} == {0.0, 0.2, 0.4, 0.6, 0.8}
    assert [cell.E for cell in FIGURE2] == [1, 2, 4, 8, 16, inf]
    by_slug = {cell.slug: cell for cell in TABLE1 + TABLE2}
    assert len(by_slug) == 48
    assert by_slug["WindyCliffs-ProjPAvg-kappa0.8"].published == 103.53
    assert by_slug["WindyCliffs-ProjPAvg-E8"].published_se == 0.25


def test_settings_are_those_of_the_protocol():
    protocol = {
        ("table1", "RandomMDPs", "QAvg"): (1e-2, 0.95, 128, 4),
        ("table1", "RandomMDPs", "SoftPAvg"): (5e-2, 0.9, 512, 4),
        ("table1", "RandomMDPs", "ProjPAvg"): (1e-2, 0.9, 960, 32),
        ("table1", "WindyCliffs", "QAvg"): (1e-3, 0.1, 640, 4),
        ("table1", "WindyCliffs", "SoftPAvg"): (1e-1, 0.4, 192, 4),
        ("table1", "WindyCliffs", "ProjPAvg"): (1e-2, 0.5, 64, 32),
        ("table2", "WindyCliffs", "QAvg"): (1e-3, 0.1, 640, None),
        ("table2", "WindyCliffs", "SoftPAvg"): (1e-1, 0.4, 192, None),
        ("table2", "WindyCliffs", "ProjPAvg"): (1e-2, 0.9, 1024, None),
    }
    for cell in TABLE1 + TABLE2:
        lr, decay, iterations, E = protocol[cell.table, cell.family, cell.algorithm]
        schedule = cell.schedule
        assert (schedule.lr == lr).all()
        assert (schedule.decay, schedule.iterations) == (decay, iterations)
        assert E is None or cell.E == E
        assert cell.environments.gamma == {"RandomMDPs": 0.9, "WindyCliffs": 0.95}[cell.family]


def test_every_E_of_the_paper_divides_its_iterations():
    # Otherwise our shorter last round would be one that the released experiments leave out.
    for cell in TABLE1 + TABLE2:
        assert cell.schedule.iterations % cell.schedule.updates_per_round == 0


def test_published_scale_of_random_mdps():
    cell = next(cell for cell in TABLE1 if cell.family == "RandomMDPs")
    assert cell.published_scale(np.array([5.0, 8.542])) == pytest.approx([0.0, 35.42])


@pytest.mark.parametrize("slug", ["WindyCliffs-QAvg-E16", "RandomMDPs-SoftPAvg-kappa0.8"])
def test_a_cell_is_what_the_obvious_implementation_makes_of_the_same_problems(slug):
    cell = next(cell for cell in TABLE1 + TABLE2 if cell.slug == slug)
    family, schedule = cell.environments, cell.schedule
    task = family.task(agents=5, seeds=3, seed=5, first_seed=3, kappa=cell.kappa)
    # With hardly a step, SoftPAvg returns the U[0, 1] tables that it and QAvg start from.
    starts = fedrl.tabular.run(
        *("softpavg", family.task(seeds=6).P, np.zeros(task.R.shape[1:])),
        **{"gamma": 0.5, "iterations": 1, "lr": 1e-300, "seed": 5},
    ).shared[3:]
    settings = {"gamma": family.gamma, "d0": task.d0, "E": cell.E, "decay": schedule.decay}
    # What was published is the table before the last round.
    iterations = schedule.iterations - schedule.updates_per_round
    reference = obvious_numpy.run_seeds(
        *(cell.algorithm.lower(), task.P, task.R, starts),
        **{**settings, "iterations": iterations, "lr": schedule.lr[0]},
        variant={"QAvg": "value", "SoftPAvg": "natural"}[cell.algorithm],
    )
    where = task.P if task.centre is None else task.centre
    expected = [
        obvious_numpy.objective(run.policy, P, R, family.gamma, task.d0)
        for run, P, R in zip(reference, where, task.R, strict=True)
    ]
    piece = run_piece(cell, 3, 6, seed=5)
    scaled = cell.published_scale(np.array(expected))
    np.testing.assert_allclose(piece["last"], scaled, rtol=1e-9, atol=1e-8)
    assert fits(cell, piece, 3)
    assert not fits(cell, piece, 4)
    for name, array in piece.items():
        assert not fits(cell, piece | {name: array[1:]}, 3)
        assert not fits(cell, piece | {name: array.astype(np.float32)}, 3)


def test_pieces_add_up_to_the_same_numbers_however_they_are_cut():
    cell = next(cell for cell in TABLE2 if cell.slug == "WindyCliffs-SoftPAvg-E16")
    whole = summarise(cell, [run_piece(cell, 0, 30, seed=0)])
    cut = summarise(
        cell, [run_piece(cell, start, stop, seed=0) for start, stop in ((0, 7), (7, 8), (8, 30))]
    )
    assert whole.mean == cut.mean
    assert whole.se == cut.se
    np.testing.assert_array_equal(whole.curve.mean, cut.curve.mean)
    np.testing.assert_array_equal(whole.curve.se, cut.curve.se)
