"""Agents that take different times: the clock, who is waited for, what late offers are worth."""

import heapq
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedrl
from fedrl import FedrlError
from fedrl.engine.layout import layout
from fedrl.engine.local_engine import LocalEngine
from fedrl.engine.mesh import mesh_shape
from fedrl.engine.state import some
from fedrl.experiment.settings import Evaluation
from fedrl.experiment.timing import Timing
from fedrl.progress import Silence
from fedrl.runs import driver
from fedrl.runs.run_directory import RunDirectory
from fedrl.strategies import ControlVariates, Momentum
from tiny import TINY, Died, DiesAfter, begin, results

pytestmark = pytest.mark.usefixtures("kept", "hasty")

E = 10
EXPERIMENT = replace(TINY, agents=4, seeds=1, E=E, updates=60, evaluation=Evaluation(E, 1))
SECONDS = (1.0, 1.5, 2.2, 7.1)


def trained(folder, experiment, **how):
    return fedrl.train(experiment, out=folder, progress=False, **how)


def clock(run):
    """Simulated seconds at each evaluation."""
    metrics = run.metrics()
    # Told by every agent.
    told = metrics[metrics["metric"] == "clock"].groupby("updates")["value"]
    assert (told.nunique() == 1).all()
    return told.first().to_numpy()


def model_of(run):
    with np.load(run.path / "models.npz") as arrays:
        return dict(arrays)


def arrivals(seconds, at_once, rounds):
    """When the server steps, and on whom: the same with a queue of events."""
    queue = [(E * s, agent) for agent, s in enumerate(seconds)]
    heapq.heapify(queue)
    steps = []
    for _ in range(rounds):
        came = [heapq.heappop(queue) for _ in range(at_once)]
        now = came[-1][0]
        who = sorted(agent for _, agent in came)
        steps.append((now, who))
        for agent in who:
            heapq.heappush(queue, (now + E * seconds[agent], agent))
    return steps


def test_a_round_that_waits_takes_as_long_as_its_slowest_agent(tmp_path):
    run = trained(tmp_path, replace(EXPERIMENT, timing=Timing(seconds=SECONDS)))
    np.testing.assert_allclose(clock(run), np.arange(7) * E * max(SECONDS), rtol=1e-6)


def test_the_last_round_is_as_short_as_its_work(tmp_path):
    experiment = replace(EXPERIMENT, updates=24, timing=Timing(seconds=SECONDS))
    run = trained(tmp_path, experiment)
    np.testing.assert_allclose(clock(run), np.array([0, 10, 20, 24]) * max(SECONDS), rtol=1e-6)


@pytest.mark.parametrize("wave", [2, 4])
def test_agents_that_take_turns_do_not_take_longer(tmp_path, wave):
    timing = Timing(spread=1.0, jitter=0.5)
    at_once = trained(tmp_path / "once", replace(EXPERIMENT, timing=timing), wave=4)
    in_turns = trained(tmp_path / "turns", replace(EXPERIMENT, timing=timing), wave=wave)
    np.testing.assert_array_equal(clock(at_once), clock(in_turns))
    assert len(set(np.diff(clock(at_once)))) == 6


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_the_server_steps_when_enough_agents_have_arrived(tmp_path, at_once):
    timing = Timing(arrivals=at_once, seconds=SECONDS)
    run = trained(tmp_path, replace(EXPERIMENT, timing=timing))
    steps = [now for now, _ in arrivals(SECONDS, at_once, rounds=6)]
    np.testing.assert_allclose(clock(run), [0, *steps], rtol=1e-6)
    assert steps[-1] < 6 * E * max(SECONDS)


def test_whom_nobody_has_to_wait_for_is_as_without_a_clock(tmp_path):
    plain = trained(tmp_path / "plain", EXPERIMENT)
    waits = trained(tmp_path / "waits", replace(EXPERIMENT, timing=Timing(seconds=SECONDS)))
    # All arrive before the server steps, so nothing is stale.
    everyone = Timing(arrivals=4, staleness=3.0, seconds=SECONDS)
    together = trained(tmp_path / "together", replace(EXPERIMENT, timing=everyone))
    expected = model_of(plain)
    for run in (waits, together):
        for name, leaf in model_of(run).items():
            np.testing.assert_allclose(leaf, expected[name], rtol=1e-4, atol=1e-5)


def by_hand(engine, rounds):
    """The server's models, each agent working by itself and the server averaging with NumPy."""
    timing = engine.experiment.timing
    replicate = jnp.int32(0)
    environments = engine.environments(replicate, engine.thetas(replicate))
    begun = begin(engine, replicate)
    agents = [some(begun, environments, jnp.array([agent])) for agent in range(4)]
    work, receive = jax.jit(engine.work), jax.jit(engine.receive)
    server = begun.server
    received, since = [server.sent.model] * 4, [0] * 4
    models = []
    for number, (_, who) in enumerate(arrivals(SECONDS, timing.arrivals, rounds)):
        moved = []
        for agent in who:
            federation, world = agents[agent]
            federation = work(federation, world, E)
            agents[agent] = federation, world
            offered = jax.tree.map(lambda x: np.asarray(x[0]), engine.offer(federation).model)
            weight = (1 + number - since[agent]) ** -timing.staleness
            change = jax.tree.map(
                lambda new, old, w=weight: w * (new - old), offered, received[agent]
            )
            moved.append(jax.tree.map(np.add, server.sent.model, change))
        model = jax.tree.map(lambda *leaves: np.mean(leaves, 0), *moved)
        server = server._replace(sent=server.sent._replace(model=model))
        models.append(model)
        for agent in who:
            federation, world = agents[agent]
            agents[agent] = receive(federation, server, world), world
            received[agent], since[agent] = model, number + 1
    return models


def test_late_offers_count_as_changes_of_the_newest_model_and_less():
    timing = Timing(arrivals=2, staleness=0.5, seconds=SECONDS)
    engine = LocalEngine(replace(EXPERIMENT, timing=timing))
    replicate = jnp.int32(0)
    environments = engine.environments(replicate, engine.thetas(replicate))
    federation = begin(engine, replicate)
    advance = jax.jit(engine.advance)
    rounds = 8
    # The slowest agent arrives once, when the model it began with is several rounds old.
    assert [3 in who for _, who in arrivals(SECONDS, 2, rounds)].count(True) == 1
    for expected in by_hand(engine, rounds):
        federation = advance(federation, environments, 1, E)
        found = federation.server.sent.model
        for a, b in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_how_slow_agents_are_follows_from_the_seed_and_the_agent():
    drawn = replace(EXPERIMENT, timing=Timing(spread=1.0, jitter=0.5))
    more = replace(drawn, agents=9)
    four, nine = (
        LocalEngine(e).environments(jnp.int32(0), LocalEngine(e).thetas(jnp.int32(0))).pace.seconds
        for e in (drawn, more)
    )
    np.testing.assert_array_equal(four, nine[:4])
    assert len(set(np.asarray(nine).tolist())) == 9
    other = LocalEngine(replace(drawn, seed=1))
    assert not np.allclose(
        four, other.environments(jnp.int32(0), other.thetas(jnp.int32(0))).pace.seconds
    )


@pytest.mark.parametrize(
    "parts", [{}, {"correction": ControlVariates(), "server_optimizer": Momentum()}]
)
def test_a_run_that_is_killed_goes_on_to_the_same_bits(tmp_path, parts):
    timing = Timing(arrivals=2, seconds=SECONDS, jitter=0.3)
    experiment = replace(EXPERIMENT, timing=timing, **parts)
    whole = trained(tmp_path / "whole", experiment)
    directory = RunDirectory.create(tmp_path / "killed", experiment)
    with pytest.raises(Died):
        driver.carry_out(directory, DiesAfter(4))
    driver.carry_out(directory, Silence())
    assert results(directory.path) == results(whole.path)


def test_a_run_that_is_killed_at_its_end_keeps_the_servers_model(tmp_path, monkeypatch):
    # Agents that are still at work have older ones.
    experiment = replace(EXPERIMENT, timing=Timing(arrivals=2, seconds=SECONDS))
    whole = trained(tmp_path / "whole", experiment)
    directory = RunDirectory.create(tmp_path / "killed", experiment)
    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "finish", died)
        with pytest.raises(Died):
            driver.carry_out(directory, Silence())
    driver.carry_out(directory, Silence())
    assert results(directory.path) == results(whole.path)


def died(*_):
    raise Died


@pytest.mark.parametrize("at_once", [2, 4])
def test_agents_that_are_not_waited_for_are_not_divided(at_once):
    # Who arrives next may be in any wave and on any device.
    waits = replace(EXPERIMENT, updates=60_000, E=1000, agents=8)
    apart = replace(waits, timing=Timing(arrivals=2 * at_once))
    assert layout(waits, vectorised=False, workers=2, wave=4).waves == 2
    assert mesh_shape(waits, 8, 1) == (1, 8)
    assert layout(apart, vectorised=False, workers=8).waves == 1
    assert mesh_shape(apart, 8, 1) == (1, 1)
    with pytest.raises(FedrlError, match=f"timing.arrivals is {2 * at_once}: leave wave out"):
        layout(apart, vectorised=False, workers=2, wave=4)


@pytest.mark.parametrize(
    ("timing", "changes", "message"),
    [
        ({"arrivals": 5}, {}, "waits for more than all 4 agents"),
        ({"arrivals": 2}, {"participation": 0.5}, "give one of them"),
        ({"arrivals": 2}, {"E": float("inf")}, "there are none: leave it out"),
        ({"seconds": (1.0, 2.0)}, {}, "2 numbers for 4 agents"),
        ({"seconds": (1.0, 2.0, -1.0, 1.0)}, {}, "timing.seconds must be a positive number"),
        ({"spread": -1.0}, {}, "timing.spread must be a number from 0 to 10"),
        ({"arrivals": 2}, {"initialisation": "per-agent"}, "begin with one model"),
        ({"arrivals": 2}, {"updates": 65}, "updates = 65 is no multiple of E = 10"),
        ({"staleness": 2.0}, {}, "give timing.arrivals, too"),
    ],
)
def test_clocks_that_make_no_sense_are_refused(timing, changes, message):
    with pytest.raises(FedrlError, match=message):
        replace(EXPERIMENT, timing=Timing(**timing), **changes)
