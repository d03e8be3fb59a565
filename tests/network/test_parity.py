"""A federation and the engine that has all agents in one program learn the same."""

import json
from dataclasses import replace

import numpy as np
import pytest

import fedrl
from fedrl.experiment.presets import preset
from fedrl.experiment.settings import Evaluation, Survives
from fedrl.learners.replay import Memory
from fedrl.strategies.private import Private
from fedrl.strategies.robust import Median
from fedrl.tabular.experiment import TabularExperiment
from fedrl.tabular.families import WindyCliffs
from fedrl.trees import named_leaves
from in_process import Federation
from published import EVERYTHING, PENDULUM, models
from tiny import LEARNER, TINY

pytestmark = pytest.mark.usefixtures("kept")

KEYS = ["seed", "round", "updates", "agent", "environment", "split", "metric"]
SMALL = replace(
    TINY,
    name="small",
    agents=3,
    updates=25,  # the last round is shorter
    seeds=1,
    evaluation=Evaluation(every=20, episodes=2),
)


def carried_out(experiment, folder):
    """The same experiment by both engines: two runs, and the federation."""
    local = fedrl.train(experiment, out=folder / "local", progress=False)
    federation = Federation(experiment, folder).run()
    return local, fedrl.Run(federation.path), federation


def shared_of(run, federation):
    """The shared leaves of the averaged model in a run's folder."""
    shared = federation.first
    stored = models(run)
    return {name: stored[name][0, 0] for name in shared}


def furthest(one, other):
    """The largest difference of two models, relative to the size of the leaf."""
    assert one.keys() == other.keys()
    return max(np.abs(one[n] - other[n]).max() / np.abs(other[n]).max() for n in one)


def rows(run, *, average=True, since=0):
    """Measurements by everything that names them; theta is the agents' own business."""
    table = run.metrics()
    table = table if average else table[table.agent != "average"]
    table = table[(table["round"] >= since) | (table.agent != "average")]
    return table.set_index(KEYS)["value"].sort_index()


def assert_same_rows(run, local, tolerance, **which):
    one, other = rows(run, **which), rows(local, **which)
    assert len(one)
    assert list(one.index) == list(other.index)
    np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def assert_learnt(local, federation):
    """There is something to compare: the model is not the one it began with."""
    first = federation.first
    assert furthest(shared_of(local, federation), first) > 1e-3


@pytest.mark.usefixtures("thorough")
def test_ten_rounds_of_dqnavg_are_those_of_the_local_engine(tmp_path):
    experiment = replace(
        preset("cartpoles-dqnavg"),
        E=50,
        updates=500,
        seeds=1,
        evaluation=Evaluation(every=250, episodes=2),
    )
    assert experiment.agents == 5
    local, run, federation = carried_out(experiment, tmp_path)
    assert_learnt(local, federation)
    one, other = shared_of(run, federation), shared_of(local, federation)
    assert furthest(one, other) < 1e-6
    assert furthest(one, other) > 0  # two implementations
    assert_same_rows(run, local, 1e-4)
    # Round, agents, training and held-out environments, three evaluations.
    assert len(rows(run)) == 3 * 2 * (5 + 20) + 3 * 5 + 2 * 5
    assert run.metrics().theta.isna().all()
    assert local.metrics().theta.notna().all()
    # One message there and one back for each agent and round, and an evaluation.
    assert len(federation.transport.exchanges) == 5 * 11
    assert not federation.log
    # What comes of it is a run like any other.
    assert run.finished
    assert run.experiment == experiment
    assert models(run).keys() == models(local).keys()
    assert run.evaluate([[0.5]], episodes=1).undiscounted.shape == (1, 1)


VARIANTS = {
    "median": {"aggregator": Median()},
    "another memory": {"learner": replace(LEARNER, memory=Memory("bfloat16"))},
    "some take part, clipped": {
        "participation": 0.4,
        "agents": 5,
        "aggregator": Private(clip=0.05, noise=0),
    },
    "episodes, nothing survives, own beginnings": {
        "unit": "episodes",
        "survives": Survives(replay=False, optimizer=False, target=False),
        "initialisation": "per-agent",
        "E": 2,
        "updates": 5,
        "evaluation": Evaluation(every=2, episodes=2),
    },
}


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("changed", VARIANTS)
def test_whatever_the_settings_both_engines_learn_the_same(tmp_path, changed):
    experiment = replace(SMALL, **VARIANTS[changed])
    local, run, federation = carried_out(experiment, tmp_path)
    assert_learnt(local, federation)
    assert furthest(shared_of(run, federation), shared_of(local, federation)) < 1e-5
    # Agents that begin with models of their own have none in common before the first round.
    begun = 1 if experiment.initialisation == "per-agent" else 0
    assert_same_rows(run, local, 1e-4, since=begun)
    told = "participation" in VARIANTS[changed] or experiment.unit == "episodes"
    assert "updates" in set(rows(run).index.get_level_values("metric")) or not told
    if "participation" in VARIANTS[changed]:
        assert_the_same_agents_took_part(local, federation)
        # Without noise there is no privacy, and JSON has no infinity.
        status = json.loads((tmp_path / "status.json").read_text(), parse_constant=pytest.fail)
        assert status["epsilon"] is None


def assert_the_same_agents_took_part(local, federation):
    """The local engine tells it in how many updates each agent has done since it was asked."""
    transport, E = federation.transport, int(federation.side.experiment.E)
    updates = local.metrics().query("metric == 'updates' and updates > 0")
    done = {(i, at): n for i, at, n in updates[["environment", "updates", "value"]].to_numpy()}
    # Evaluations after rounds 2 and 3, of 10 and 10 and 5 updates.
    expected = dict.fromkeys(done, 0)
    for number, until in ((1, 20), (2, 20), (3, 25)):
        workers = {i: length for i, length in transport.asked(number).items() if length}
        assert len(workers) == 2
        assert set(workers.values()) == {min(E, 25 - 10 * (number - 1))}
        for agent, length in workers.items():
            expected[agent, until] += length
    assert done == expected
    # Only an evaluation asks the others.
    assert len(transport.asked(1)) == len(transport.asked(3)) == 5
    assert len(transport.asked(2)) == 2


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("continuous", [False, True], ids=["DQN", "DDPG"])
def test_personalised_agents_learn_the_same_and_keep_the_same_to_themselves(tmp_path, continuous):
    family, learner = PENDULUM.family, PENDULUM.learner
    if not continuous:
        family, learner = SMALL.family, replace(LEARNER, personal=EVERYTHING)
    experiment = replace(SMALL, name="personal", agents=2, family=family, learner=learner)
    local, run, federation = carried_out(experiment, tmp_path)
    assert_learnt(local, federation)
    assert furthest(shared_of(run, federation), shared_of(local, federation)) < 1e-5
    assert_same_rows(run, local, 1e-4, average=False)
    # What is private: on the agents' own disks, and nowhere else.
    stored = models(local)
    private = set(stored) - set(federation.first)
    assert {name.rpartition("/")[2] for name in private} == {
        *("embedding", "count", "mean", "variance", "weight", "bias")
    }
    for number in range(2):
        agent = Federation(experiment, tmp_path).transport.agents[number]
        agent.answer(federation.transport.exchanges[-2 + number].instruction)
        kept = named_leaves(agent._state.agents.learned.params)
        own = {name: np.asarray(kept[name])[0] for name in private}
        assert furthest(own, {name: stored[name][0, 1 + number] for name in private}) < 1e-5
    # The server's model has what is private as it was before any training.
    average = models(run)
    assert average.keys() == stored.keys()
    counts = [average[name] for name in private if name.endswith("count")]
    assert counts
    assert not np.any(counts)
    splits = run.metrics().query("agent == 'average'").split
    assert set(splits) == {"held-out"}


CLIFFS = TabularExperiment(
    name="cliffs", family=WindyCliffs(), E=4, updates=102, lr=0.5, decay=0.5, seed=3
)


@pytest.mark.usefixtures("hasty")
def test_exact_qavg_is_that_of_the_local_engine_with_its_decay(tmp_path):
    local = CLIFFS.run()
    federation = Federation(CLIFFS, tmp_path).run()
    with np.load(federation.path / "models.npz") as arrays:
        table = arrays["table"]
    np.testing.assert_allclose(table, local.shared[0], rtol=1e-12)
    assert np.abs(table - federation.first["table"]).max() > 10
    # Plateaus were met: in both, or the tables would differ.
    scales = [x.instruction.scale for x in federation.transport.exchanges if x.agent == 0]
    assert scales[:3] == [1, 1, 1]
    assert scales[-1] < 0.2
    lines = (federation.path / "metrics.csv").read_text().splitlines()[1:]
    told = [line.split(",") for line in lines]
    assert all(row[5:8] == ["", "train", "objective"] for row in told)
    # The curve: a mean over agents, after every round.
    curve = {}
    for row in told:
        curve.setdefault(int(row[2]), []).append(float(row[8]))
    starts = [*range(0, CLIFFS.updates, 4), CLIFFS.updates]
    assert sorted(curve) == starts
    assert {len(values) for values in curve.values()} == {5}
    means = [np.mean(curve[trained]) for trained in starts]
    np.testing.assert_allclose(means, local.objective[0], rtol=1e-8)
