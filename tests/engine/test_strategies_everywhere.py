"""A strategy is written once: waves and devices come to what one core comes to."""

from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest

from every_strategy import NETWORKS, PARTS
from fedrl.engine.plan import Leg
from fedrl.engine.single_device import Replicates

pytestmark = pytest.mark.usefixtures("hasty")


def experiment(strategy, learner):
    return replace(NETWORKS[learner], agents=4, **PARTS.get(strategy, {}))


@cache
def trained(strategy, learner, wave=4):
    """Parameters, memories and the server's state after two rounds."""
    replicates = Replicates(experiment(strategy, learner), wave=wave)
    assert replicates.layout.waves == 4 // wave
    replicates.start()
    E = int(NETWORKS[learner].E)
    replicates.run(Leg(2, E, 2 * E, 2), lambda _: None)
    return replicates.export(), jax.tree.leaves(replicates.models())


@pytest.mark.parametrize("learner", NETWORKS)
@pytest.mark.parametrize("strategy", PARTS)
def test_agents_that_take_turns_come_to_the_same(strategy, learner):
    # Up to rounding: programs compiled in haste round differently for waves of other sizes. As
    # users get them they do not (test_waves.py).
    together, in_turns = trained(strategy, learner), trained(strategy, learner, wave=2)
    for a, b in zip(*map(jax.tree.leaves, (together, in_turns)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("learner", NETWORKS)
@pytest.mark.parametrize("strategy", PARTS)
def test_a_strategy_changes_what_is_learned(strategy, learner):
    plain, models = trained("none", learner)[1], trained(strategy, learner)[1]
    assert max(np.abs(a - b).max(initial=0.0) for a, b in zip(models, plain, strict=True)) > 1e-5
