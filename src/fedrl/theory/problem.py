"""One federated problem, checked with the same errors as in fedrl.tabular."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedrl import arguments
from fedrl.errors import FedrlError
from fedrl.tabular import checks
from fedrl.theory.policies import Floats


class Problem(NamedTuple):
    """n environments with one reward table."""

    P: Floats  # (n, S, A, S)
    R: Floats  # (S, A)
    gamma: float
    d0: Floats  # (S,)


def checked(P: ArrayLike, R: ArrayLike, gamma: float, d0: ArrayLike | None = None) -> Problem:
    """The problem, or a FedrlError that names the argument."""
    arrays, seed_axis = checks.problems(P, R, d0)
    if seed_axis:
        raise FedrlError("P, R and d0 must not have a seeds axis here: give one problem at a time")
    arrays_of_one = [np.asarray(x)[0] for x in (arrays.P, arrays.R, arrays.d0)]
    return Problem(arrays_of_one[0], arrays_of_one[1], arguments.discount(gamma), arrays_of_one[2])


def checked_transitions(P: ArrayLike) -> Floats:
    """P (n, S, A, S) alone."""
    array = checks.transitions("P", P)
    if np.ndim(P) != 4:
        raise FedrlError(f"P must have shape (n, S, A, S), got {np.shape(P)}")
    only: Floats = array[0]
    return only


def normalised(problem: Problem) -> Problem:
    """The same problem with rewards in [0, 1]; the order of policies is unchanged."""
    low, span = problem.R.min(), np.ptp(problem.R)
    return problem._replace(R=(problem.R - low) / (span if span > 0 else 1.0))
