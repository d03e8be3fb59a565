"""The paper's theory, executable: heterogeneity, bounds, an oracle, and what really happens."""

from fedrl.tabular import imaginary
from fedrl.theory.bounds import (
    lemma2,
    lemma2_sharp,
    theorem2,
    theorem2_schedule,
    theorem3_gradient,
    theorem3_gradient_mended,
    theorem3_objective,
    theorem3_schedule,
)
from fedrl.theory.measures import (
    Kappa2,
    LemmaCheck,
    check_lemmas,
    kappa1,
    kappa2,
    kappa2_upper,
    smoothness,
)
from fedrl.theory.oracle import Oracle, oracle
from fedrl.theory.policies import Problem, checked, normalised
from fedrl.theory.trajectories import PAvgTrace, pavg_trace, qavg_errors

__all__ = [
    "Kappa2",
    "LemmaCheck",
    "Oracle",
    "PAvgTrace",
    "Problem",
    "check_lemmas",
    "checked",
    "imaginary",
    "kappa1",
    "kappa2",
    "kappa2_upper",
    "lemma2",
    "lemma2_sharp",
    "normalised",
    "oracle",
    "pavg_trace",
    "qavg_errors",
    "smoothness",
    "theorem2",
    "theorem2_schedule",
    "theorem3_gradient",
    "theorem3_gradient_mended",
    "theorem3_objective",
    "theorem3_schedule",
]
