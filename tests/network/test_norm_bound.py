"""The default bound on answers lets every honest agent in, and little more."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedrl.experiment.presets import preset
from fedrl.learners import PPO
from fedrl.learners.personalisation import ADAM_B1, ADAM_B2, LARGEST_ADAM_STEP
from fedrl.network.agent_client import named
from fedrl.network.kinds import server_of
from fedrl.network.validation import distance
from fedrl.tabular.experiment import TabularExperiment
from fedrl.tabular.families import RandomMDPs, WindyCliffs
from fedrl.tabular.learners import ProjPAvg, QAvg, SoftPAvg
from in_process import Federation
from tiny import TINY

pytestmark = pytest.mark.usefixtures("kept", "hasty")


def largest_step(gradients):
    """Of optax's Adam with a step size of 1, on one weight."""

    def step(state, gradient):
        move, state = optax.adam(1.0, eps=0.0).update(gradient, state)
        return state, jnp.abs(move)

    with jax.enable_x64(True):
        start = optax.adam(1.0).init(jnp.float64(0))
        return float(jax.lax.scan(step, start, jnp.asarray(gradients))[1].max())


def test_no_gradients_move_a_weight_further_than_the_bound_and_growing_ones_come_near_it():
    rng = np.random.default_rng(3)
    for _ in range(20):
        wild = rng.normal(size=400) * 10.0 ** rng.uniform(-8, 8, 400)
        assert largest_step(wild) <= LARGEST_ADAM_STEP
    # After a long silence the second moment knows of no other gradients.
    growing = (ADAM_B2 / ADAM_B1) ** np.arange(200.0)
    found = largest_step(np.concatenate([np.full(20_000, 1e-30), growing]))
    assert 0.99 * LARGEST_ADAM_STEP < found <= LARGEST_ADAM_STEP


def lengths(experiment, folder):
    """(how far answers were, what was allowed) in each round of a training."""
    done = Federation(experiment, folder)
    found, wrong = [], done.server.exchange.wrong

    def watched(instruction, answer):
        if answer.shared:
            before = instruction.model or done.first
            allowed = done.side.furthest(done.side.rounds[instruction.round - 1], before)
            found.append((distance(answer.shared, before), allowed))
        return wrong(instruction, answer)

    done.server.exchange.wrong = watched
    done.run()
    assert not [line for line in done.log if "rejected" in line]
    assert found
    return np.array(found)


NETWORKS = {
    "dqn": TINY,
    "per-agent": replace(TINY, initialisation="per-agent"),
    "episodes": replace(TINY, unit="episodes", E=2, updates=6),
    "ppo": replace(TINY, learner=PPO(rollout=32, batch=8, hidden=(8,)), E=2, updates=6),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_honest_agents_with_networks_are_let_in(tmp_path, name):
    experiment = replace(NETWORKS[name], seeds=1)
    far, allowed = lengths(experiment, tmp_path).T
    assert (far < allowed).all()


TABLES = {
    "qavg": (QAvg(), 0.5, None),
    "qavg-q": (QAvg(update="q"), 0.5, None),
    "projpavg": (ProjPAvg(), 0.1, 0.1),
    "softpavg": (SoftPAvg(), 0.1, 0.4),
    "softpavg-plain": (SoftPAvg(gradient="plain"), 0.1, 0.4),
}


@pytest.mark.parametrize("family", [WindyCliffs(), RandomMDPs()], ids=lambda f: f.name)
@pytest.mark.parametrize("name", TABLES)
def test_honest_agents_with_tables_are_let_in(tmp_path, family, name):
    learner, lr, decay = TABLES[name]
    experiment = TabularExperiment(
        "far", family, learner, agents=3, E=4, updates=16, lr=lr, decay=decay
    )
    far, allowed = lengths(experiment, tmp_path).T
    assert (far < allowed).all()


def allowed(side, **planned):
    """In the first round."""
    return side.furthest(side.rounds[0]._replace(**planned), named(side.begin().sent))


def test_the_bound_of_a_preset_is_far_below_what_was_allowed_before():
    experiment = replace(preset("cartpoles-dqnavg"), E=100, seeds=1)
    # 128 hidden units: 4 * 128 + 128 + 128 * 2 + 2 weights.
    weights = 4 * 128 + 128 + 128 * 2 + 2
    expected = LARGEST_ADAM_STEP * experiment.learner.lr * 100 * np.sqrt(weights)
    assert allowed(server_of(experiment)) == pytest.approx(expected, rel=0.02)
    policies = server_of(TabularExperiment("far", WindyCliffs(), ProjPAvg()))
    assert allowed(policies) == pytest.approx(np.sqrt(64), rel=0.02)


def test_more_local_work_may_go_further():
    side = server_of(replace(TINY, seeds=1))
    one, two = (allowed(side, E=E) for E in (10, 20))
    assert two == pytest.approx(2 * one, rel=0.01)
