"""The paper's bounds and schedules. Rewards lie in [0, 1] where `span` is left at 1.

For other rewards `span` = max R - min R scales the bounds on values: subtracting min R and dividing
by the span changes no comparison between policies.
"""

import numpy as np
from numpy.typing import NDArray

from fedrl.theory.policies import Floats

Times = NDArray[np.int64]


def _floats(t: Times) -> Floats:
    return np.asarray(t, dtype=np.float64)


def lemma2(kappa1: float, gamma: float, span: float = 1.0) -> float:
    """|mean_i V_i^pi - V_I^pi| <= gamma kappa_1 / (1 - gamma)^2, the paper's form."""
    return gamma * kappa1 * span / (1 - gamma) ** 2


def lemma2_sharp(kappa1: float, gamma: float, agents: int, span: float = 1.0) -> float:
    """gamma kappa_1 / (2 n (1 - gamma)^2) suffices.

    V_bar - V_I = gamma (I - gamma P_bar)^-1 mean_i (P_i - P_bar) V_i, and a difference of two
    distributions weighs V_i by at most half its 1-norm times the span of V_i.
    """
    return lemma2(kappa1, gamma, span) / (2 * agents)


def theorem2_schedule(t: Times, E: int, gamma: float, *, clip: bool = True) -> Floats:
    """eta_t = 2 / ((1 - gamma) (t + E)); the proof needs it to be at most 1, hence the clip."""
    eta = 2.0 / ((1 - gamma) * (_floats(t) + E))
    return np.minimum(eta, 1.0) if clip else eta


def theorem2(t: Times, E: int, gamma: float, span: float = 1.0) -> Floats:
    """||Q_bar_t - Q_I*||_inf <= 16 gamma E / ((1 - gamma)^3 (t + E)).

    At t = 0 the error can be 1 / (1 - gamma): the bound can hold only if 16 gamma >= (1 - gamma)^2,
    that is for gamma above 0.056.
    """
    return 16 * gamma * E * span / ((1 - gamma) ** 3 * (_floats(t) + E))


def theorem3_schedule(t: Times, E: int, L: float) -> Floats:
    """eta_t = sqrt(E / (12 L^2 (t + E/3)))."""
    return np.sqrt(E / (12 * L**2 * (_floats(t) + E / 3)))


def theorem3_gradient(
    T: Times, E: int, gamma: float, actions: int, L: float, kappa2: float, rise: Floats
) -> Floats:
    """The appendix's bound on min_{t<T} ||G(pi_bar_t)||^2; `rise` = g(pi_bar_T) - g(pi_bar_0)."""
    steps = _floats(T)
    drift = 2 * E * (E - 1) * actions * L / (1 - gamma) ** 4 + 2 * kappa2**2 * L
    bound: Floats = (
        2 * kappa2 * np.sqrt(actions) / (1 - gamma) ** 2
        + np.sqrt(24 * L**2 / E) * rise / np.sqrt(steps)
        + np.sqrt(E / (6 * L**2)) * drift * np.log(1 + 3 * steps / E) / np.sqrt(steps)
    )
    return bound


def theorem3_gradient_mended(
    T: Times, E: int, gamma: float, actions: int, L: float, kappa2: float, rise: Floats
) -> Floats:
    """The same from the one-step recursion of the proof, with its sums taken as they are.

    The appendix loses a factor of 2 when it divides by sum eta_t / 2, and bounds sum 1 / (t + a) by
    a logarithm from the wrong side. The recursion itself is proven for E = 1 only: beyond, it takes
    the gradient mapping for L-Lipschitz, which it is not (see `statements.gradient_mapping`), and
    kappa_2 for a bound on gradients at different policies.
    """
    eta = theorem3_schedule(np.arange(int(np.max(T))), E, L)
    total, squares = np.cumsum(eta)[np.asarray(T) - 1], np.cumsum(eta**2)[np.asarray(T) - 1]
    drift = 2 * E * (E - 1) * actions * L / (1 - gamma) ** 4 + 2 * kappa2**2 * L
    bound: Floats = (
        2 * kappa2 * np.sqrt(actions) / (1 - gamma) ** 2
        + 2 * rise / total
        + 2 * drift * squares / total
    )
    return bound


def theorem3_objective(
    gradient_bound: Floats, d0: Floats, gamma: float, actions: int, kappa2: float
) -> Floats:
    """What follows for the objective: max g - g(pi) <= c rho sqrt(S) (kappa_2 + ||G||).

    So the gap goes with sqrt(kappa_2) + T^(-1/4), not with kappa_2 + T^(-1/2) as Theorem 3 says.
    rho, the largest ratio of discounted visits, is at most 1 / ((1 - gamma) min d0): infinite where
    a state has no initial probability. The appendix has c = 2 (2 L eta + 1) <= 4; moving by
    eta ||G|| and eta ||grad|| in its last step takes c = 2 (1 + (1 - gamma) / (2 gamma sqrt(A))),
    which is larger for small gamma. We return the larger of the two.
    """
    smallest = float(np.min(d0))
    if smallest <= 0:
        return np.full_like(gradient_bound, np.inf)
    rho = 1 / ((1 - gamma) * smallest)
    c = 2 * (1 + max(1.0, (1 - gamma) / (2 * gamma * np.sqrt(actions))))
    bound: Floats = c * rho * np.sqrt(len(d0)) * (kappa2 + np.sqrt(gradient_bound))
    return bound
