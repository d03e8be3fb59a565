"""Agents that take turns end up where they would have been side by side, to the last bit."""

from dataclasses import replace
from functools import cache
from math import inf

import jax
import numpy as np
import pytest

import fedrl
from every_strategy import NETWORKS, PARTS
from fedrl import FedrlError
from fedrl.engine import footprint as memory
from fedrl.engine.layout import LARGEST_WAVE, Layout, layout
from fedrl.engine.plan import Leg
from fedrl.engine.single_device import Replicates
from fedrl.experiment.settings import Survives
from fedrl.learners.personalisation import Personal
from fedrl.strategies.private import Private
from tiny import LEARNER, TINY, results

SEVEN = replace(TINY, agents=7, held_out=1, seeds=1, updates=30)
FOUR = replace(SEVEN, agents=4)
KINDS = {
    "average": SEVEN,
    "noise": replace(FOUR, aggregator=Private(noise=0.1), survives=Survives(False, False, False)),
    "embeddings": replace(FOUR, learner=replace(LEARNER, personal=Personal(embedding=2))),
    "alone": replace(FOUR, E=inf, initialisation="per-agent"),
    "episodes": replace(FOUR, unit="episodes", E=2, updates=6),
    "strategy": replace(FOUR, **PARTS["both"]),
    "actor and critic": replace(
        NETWORKS["ddpg"], agents=4, updates=30, **PARTS["prox, median, momentum"]
    ),
}


def begun(experiment, **how):
    replicates = Replicates(experiment, **how)
    replicates.start()
    return replicates


def two_legs(replicates):
    episodes = replicates._experiment.unit == "episodes"
    E = 2 if episodes else 10
    record = replicates.run(Leg(2, E, 2 * E, 2), lambda _: None)
    replicates.run(Leg(1, E, 3 * E, 3, evaluates=False), lambda _: None)
    return record, replicates.export(), replicates.models()


@cache
def at_once(kind):
    return two_legs(begun(KINDS[kind], wave=KINDS[kind].agents))


def assert_same(found, expected):
    for a, b in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_waves_change_no_bit(kind):
    replicates = begun(KINDS[kind], wave=2)
    assert replicates.layout.waves == KINDS[kind].agents // 2  # of two agents, or one of three
    assert_same(two_legs(replicates), at_once(kind))


def test_seeds_side_by_side_in_waves_change_no_bit():
    # As on an accelerator, where waves wait in the host's memory.
    two_seeds = replace(FOUR, seeds=2)
    together = begun(two_seeds, vectorised=True)
    apart = begun(two_seeds, vectorised=True, wave=2)
    assert (apart.layout.waves, apart.layout.resident) == (2, False)
    kinds = {leaf.sharding.memory_kind for leaf in jax.tree.leaves(apart._states)}
    assert kinds == {"pinned_host"}
    assert_same(two_legs(apart), two_legs(together))


def test_a_state_can_be_continued_in_other_waves():
    first = begun(SEVEN, wave=2)
    first.run(Leg(2, 10, 20, 2), lambda _: None)
    other = Replicates(SEVEN, wave=7)
    assert other.matches(first.export())
    other.restore(first.export())
    other.run(Leg(1, 10, 30, 3, evaluates=False), lambda _: None)
    assert_same(other.export(), at_once("average")[1])


def test_progress_adds_up():
    heard = []
    replicates = begun(replace(FOUR, seeds=2), wave=2)
    for leg in (Leg(0, 0, 0, 0), Leg(2, 10, 20, 2)):
        heard.clear()
        replicates.run(leg, heard.append)
        assert sum(heard) == pytest.approx(2)
    assert len(heard) == 2 * 2 * replicates.layout.waves


def test_whole_runs_are_the_same_in_waves(tmp_path):
    four = replace(TINY, agents=4, seeds=1)
    plain = fedrl.train(four, out=tmp_path / "plain", progress=False, wave=4)
    waves = fedrl.train(four, out=tmp_path / "waves", progress=False, wave=2)
    assert results(plain.path) == results(waves.path)


@pytest.mark.parametrize(
    ("agents", "seeds", "workers", "expected"),
    [
        (5, 16, 2, Layout(16, 1)),  # enough seeds for all cores
        (5, 1, 2, Layout(1, 2)),  # agents for the idle one
        (5, 1, 16, Layout(1, 2)),  # nobody works alone
        (1, 1, 2, Layout(1, 1)),
        (500, 4, 2, Layout(4, 20)),  # of 25
        (50_000, 1, 2, Layout(1, 2000)),  # of 25
        (97, 2, 2, Layout(2, 4)),  # a prime: 25 and three times 24
    ],
)
def test_work_on_a_cpu_is_divided_so_that_cores_are_busy_and_caches_suffice(
    agents, seeds, workers, expected
):
    large = replace(fedrl.preset("cartpoles-dqnavg"), agents=agents, seeds=seeds)
    found = layout(large, vectorised=False, workers=workers)
    assert found == expected
    assert -(-agents // found.waves) <= LARGEST_WAVE


def test_short_rounds_are_not_divided():
    short = replace(fedrl.preset("cartpoles-dqnavg"), E=1, seeds=1)
    assert layout(short, vectorised=False, workers=2).waves == 1


def test_an_accelerator_takes_all_agents_at_once_if_they_fit():
    many = replace(fedrl.preset("cartpoles-dqnavg"), agents=1000)
    everybody = layout(many, vectorised=True, workers=1)
    assert everybody == Layout(1, 1)
    waves = layout(many, vectorised=True, workers=1, most_agents=300)
    assert waves == Layout(1, 4, resident=False)


def test_how_many_fit_follows_from_the_memory(monkeypatch):
    many = replace(fedrl.preset("cartpoles-dqnavg"), agents=1000, seeds=2)
    replay = many.learner.replay * 11 * 4
    each = 2 * (replay + 4 * 898 * 4)  # parameters, target and Adam's two moments
    for gigabytes, fitting in ((100, None), (1, 0.7 * 1e9 / each / 3)):
        monkeypatch.setattr(memory, "device_memory", lambda g=gigabytes: int(g * 1e9))
        found = memory.most_agents(many)
        assert found == fitting or found == pytest.approx(fitting, rel=0.05)


@pytest.mark.parametrize(
    ("changes", "wave", "message"),
    [
        ({}, 1, "at least 2 agents must work side by side"),
        ({}, 0, "wave must be an integer of at least 1"),
        ({}, 2.5, "wave must be an integer"),
        ({"participation": 0.5}, 4, "participation is 0.5: leave wave out"),
    ],
)
def test_waves_that_cannot_be_are_refused_before_anything_is_written(
    tmp_path, changes, wave, message
):
    with pytest.raises(FedrlError, match=message):
        fedrl.train(replace(SEVEN, **changes), out=tmp_path / "runs", progress=False, wave=wave)
    assert not (tmp_path / "runs").exists()


def test_agents_whose_short_steps_call_the_host_are_not_divided_among_cores():
    robots = fedrl.preset("halfcheetahs-ddpgavg")
    short, long = (
        replace(robots, seeds=1, learner=replace(robots.learner, hidden=hidden, batch=64))
        for hidden in ((64, 64), (400, 300))
    )
    assert layout(short, vectorised=False, workers=2).waves == 1
    assert layout(long, vectorised=False, workers=2).waves == 2
    on_device = replace(short, family=replace(short.family, simulator="mjx"))
    assert layout(on_device, vectorised=False, workers=2).waves == 2
