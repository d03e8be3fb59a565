"""Lemmas 1 and 2 on sampled policies: mean of the values against the value in the mean."""

from typing import NamedTuple

import numpy as np

from fedrl.theory.policies import Floats, random_policies, values
from fedrl.theory.problem import Problem

# Rounding of the solves, relative to the largest value.
ROUNDING = 1e-10


class LemmaCheck(NamedTuple):
    """What sampled policies say."""

    policies: int
    violations_of_lemma1: float  # share of policies with mean_i V_i(s) < V_I(s) in some state
    worst_violation: float  # the largest V_I(s) - mean_i V_i(s); <= 0 if there is none
    policy: Floats  # the policy of the worst violation
    state: int  # and its state
    largest_difference: float  # max |mean_i V_i(s) - V_I(s)|, which Lemma 2 bounds


def check_lemmas(problem: Problem, *, policies: int = 500, seed: int = 0) -> LemmaCheck:
    """Compare mean_i V_i^pi with V_I^pi in every state, for random policies."""
    P, R, gamma, _ = problem
    sampled = random_policies(np.random.default_rng(seed), policies, *R.shape)
    real = values(sampled, P, R, gamma).mean(axis=1)
    imaginary = values(sampled, P.mean(axis=0)[None], R, gamma)[:, 0]
    excess = imaginary - real
    noise = ROUNDING * (1 + np.abs(imaginary).max())
    worst = np.unravel_index(excess.argmax(), excess.shape)
    return LemmaCheck(
        policies,
        float((excess.max(axis=1) > noise).mean()),
        float(excess.max()),
        sampled[worst[0]],
        int(worst[1]),
        float(np.abs(excess).max()),
    )
