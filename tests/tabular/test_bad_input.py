"""Bad input gets one sentence that names the argument and what is allowed."""

from dataclasses import dataclass

import numpy as np
import pytest

import fedrl
from conftest import random_problem

GOOD = random_problem(np.random.default_rng(0), seeds=2)
GOOD_CALL = {
    "algorithm": "qavg",
    "P": GOOD.P,
    "R": GOOD.R,
    "gamma": 0.9,
    "E": 2,
    "iterations": 4,
    "lr": 0.1,
}


def changed(array, value):
    array = array.copy()
    array.flat[0] = value
    return array


BAD = {
    "rows that do not sum to 1": ({"P": GOOD.P * 0.9}, r"P must sum to 1 over the next state"),
    "a negative probability": ({"P": changed(GOOD.P, -0.1)}, r"P must hold probabilities >= 0"),
    "a NaN transition": ({"P": changed(GOOD.P, np.nan)}, r"P must be finite"),
    "an infinite reward": ({"R": changed(GOOD.R, np.inf)}, r"R must be finite"),
    "P with three axes": ({"P": GOOD.P[0, 0]}, r"P must have shape \(n, S, A, S\)"),
    "P not square": ({"P": GOOD.P[..., :3]}, r"P must have shape \(n, S, A, S\)"),
    "P of no seeds": ({"P": GOOD.P[:0]}, r"P must have shape"),
    "P that is no array": ({"P": "matrices"}, r"P must be an array of real numbers"),
    "R of another shape": ({"R": GOOD.R[..., :2]}, r"R must have shape \(S, A\) = \(4, 3\)"),
    "two numbers of seeds": (
        {"R": np.repeat(GOOD.R, 2, 0)},
        r"same number of seeds, got P: 2, R: 4",
    ),
    "d0 of another length": ({"d0": np.ones(3) / 3}, r"d0 must have shape \(S\) = \(4\)"),
    "d0 that does not sum to 1": ({"d0": np.ones(4)}, r"d0 must sum to 1 over states"),
    "gamma 1": ({"gamma": 1.0}, r"gamma must be a number in \[0, 1\), got 1.0"),
    "gamma -0.1": ({"gamma": -0.1}, r"gamma must be a number in \[0, 1\)"),
    "gamma NaN": ({"gamma": float("nan")}, r"gamma must be a number in \[0, 1\)"),
    "gamma as text": ({"gamma": "0.9"}, r"gamma must be a number in \[0, 1\)"),
    "E 0": ({"E": 0}, r"E must be a positive integer or inf, got 0"),
    "E 1.5": ({"E": 1.5}, r"E must be a positive integer or inf, got 1.5"),
    "complex numbers": ({"P": GOOD.P + 0j}, r"P must be an array of real numbers"),
    "an algorithm that is no name": ({"algorithm": ["qavg"]}, r"unknown algorithm"),
    "lr that fails": ({"lr": lambda t: 1 if t == 0 else 2}, r"lr as a function is called once"),
    "E -inf": ({"E": -np.inf}, r"E must be a positive integer or inf"),
    "E as text": ({"E": "often"}, r"E must be a positive integer or inf"),
    "no iterations": ({"iterations": 0}, r"iterations must be an integer of at least 1, got 0"),
    "iterations 2.5": ({"iterations": 2.5}, r"iterations must be an integer of at least 1"),
    "lr 0": ({"lr": 0.0}, r"lr must be positive"),
    "lr of another length": ({"lr": np.ones(3)}, r"lr must be a number, an array of one step size"),
    "decay 0": ({"decay": 0.0}, r"decay must be a number in \(0, 1\] or None"),
    "decay 1.5": ({"decay": 1.5}, r"decay must be a number in \(0, 1\] or None"),
    "init of another shape": (
        {"init": np.zeros((4, 2))},
        r"init must have shape \(S, A\) = \(4, 3\)",
    ),
    "init that is no policy": (
        {"algorithm": "projpavg", "init": np.ones((4, 3))},
        r"init must sum to 1 over actions",
    ),
    "other environments of another size": (
        {"evaluate_on": np.ones((1, 2, 2, 2)) / 2},
        r"evaluate_on must have the states and actions of P",
    ),
    "an unknown algorithm": (
        {"algorithm": "qavgg"},
        r"unknown algorithm 'qavgg': did you mean 'qavg'",
    ),
    "an unknown update": ({"update": "v"}, r"unknown update 'v'"),
    "an unknown update where there is only one": (
        {"algorithm": "projpavg", "update": "v"},
        r"unknown update 'v'",
    ),
    "an unknown gradient": (
        {"algorithm": "softpavg", "gradient": "naturl"},
        r"unknown gradient 'naturl': did you mean 'natural'",
    ),
    "an unknown argument": ({"epsilon": 0.1}, r"unknown argument 'epsilon'"),
    "epsilon 2": (
        {"algorithm": "sampled-qavg", "epsilon": 2},
        r"epsilon must be a probability in \[0, 1\]",
    ),
    "a negative seed": ({"seed": -1}, r"seed must be an integer of at least 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_one_sentence(name):
    change, message = BAD[name]
    with pytest.raises(fedrl.FedrlError, match=message) as caught:
        fedrl.tabular.run(**{**GOOD_CALL, **change})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fedrl.tabular.SampledQAvg(restart=-1), "restart must be a probability"),
        (lambda: fedrl.tabular.SampledQAvg(epsilon="often"), "epsilon must be a probability"),
        (lambda: fedrl.tabular.QAvg(update="v"), "unknown update 'v'"),
        (lambda: fedrl.tabular.SoftPAvg(gradient=1), "unknown gradient 1"),
    ],
)
def test_a_learner_checks_its_settings_where_it_is_made(make, message):
    with pytest.raises(fedrl.FedrlError, match=message):
        make()


def test_settings_that_are_no_probabilities_are_not_taken_for_some():
    @dataclass(frozen=True)
    class Patient(fedrl.tabular.QAvg):
        """QAvg with a setting of another kind."""

        waits: int = 3

    found = fedrl.tabular.run(**{**GOOD_CALL, "algorithm": Patient()})
    np.testing.assert_array_equal(found.shared, fedrl.tabular.run(**GOOD_CALL).shared)


@pytest.mark.parametrize("algorithm", ["qavg", "softpavg"])
def test_steps_that_overflow_are_no_result(algorithm):
    with pytest.raises(fedrl.FedrlError, match=r"replicate 0 is not a finite number.*lower lr"):
        fedrl.tabular.run(**{**GOOD_CALL, "algorithm": algorithm, "lr": 1e300, "iterations": 9})


def test_objective_checks_its_policy():
    with pytest.raises(fedrl.FedrlError, match="policy must sum to 1 over actions"):
        fedrl.tabular.objective(GOOD.policy * 2, GOOD.P, GOOD.R, 0.9)
    with pytest.raises(fedrl.FedrlError, match="policy must have shape"):
        fedrl.tabular.objective(GOOD.policy[..., :2], GOOD.P, GOOD.R, 0.9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fedrl.tabular.RandomMDPs(states=1), "states must be an integer of at least 2"),
        (lambda: fedrl.tabular.RandomMDPs(sparsity=1.5), "sparsity must be a probability"),
        (lambda: fedrl.tabular.WindyCliffs(width=1), "width must be an integer of at least 2"),
        (lambda: fedrl.tabular.WindyCliffs(strongest=4.0), "strongest"),
        (lambda: fedrl.tabular.WindyCliffs().task(kappa=1.5), "kappa must be a number in"),
        (lambda: fedrl.tabular.WindyCliffs().task(agents=0), "agents must be an integer"),
    ],
)
def test_families_refuse_settings_that_make_no_sense(make, message):
    with pytest.raises(fedrl.FedrlError, match=message):
        make()
