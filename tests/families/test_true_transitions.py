"""What agents learn from has happened in their environments, and everything that happened there is
what they learn from: against worlds that write down what is done in them."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gymnasium_worlds
from fedrl import Experiment
from fedrl.engine.local_engine import LocalEngine
from fedrl.engine.single_device import Replicates
from fedrl.experiment.settings import Evaluation, Survives
from fedrl.families import gymnasium
from fedrl.families.gymnasium_host import hall
from fedrl.learners import DQN
from fedrl.learners.replay import unpack
from fedrl.network.federated_networks import SimulatedClient
from fedrl.network.gymnasium_client import GymnasiumClient
from fedrl.progress import Silence
from fedrl.runs import checkpoint
from fedrl.runs.driver import carry_out
from fedrl.runs.launch import begin as begin_runs
from fedrl.strategies.corrections import Broadcast
from in_process import Federation
from tiny import begin

pytestmark = pytest.mark.usefixtures("hasty")
LEARNER = DQN(hidden=(8,), batch=4, replay=2000, learning_starts=8)
# Its time limit cuts the longest episodes off.
FAMILY = gymnasium("gymnasium_worlds:Recorded", vary={"theta": (1.0, 3.0)}, time_limit=9)
EXPERIMENT = Experiment(
    name="recorded",
    family=FAMILY,
    learner=LEARNER,
    agents=3,
    held_out=0,
    E=3,
    unit="episodes",
    updates=12,
    evaluation=Evaluation(every=12, episodes=1),
    seeds=1,
)


@pytest.fixture(autouse=True)
def log():
    gymnasium_worlds.LOG.clear()
    hall.cache_clear()
    yield gymnasium_worlds.LOG
    hall.cache_clear()


def in_another_process():
    """Environments are gone, as after a kill."""
    hall.cache_clear()


def rows_of(federation, agent):
    """An agent's transitions as the worlds write them down, without theta."""
    stored = np.broadcast_to(federation.clock.stored, len(federation.rows))[agent]
    kept = unpack(np.asarray(federation.rows)[agent, :stored], FAMILY.observation_size)
    return [
        (*seen.tolist(), int(action[0]), float(reward), *after.tolist(), bool(ended))
        for seen, action, reward, after, ended in zip(*kept[:5], strict=True)
    ]


def happened(log, theta):
    return [row for at, *row in log if np.float32(at) == np.float32(theta)]


def check(federation, thetas, log, *, nothing_else=True):
    """Every row has happened, in this order; and all that has happened is in the rows."""
    for agent, (theta,) in enumerate(thetas):
        rows = rows_of(federation, agent)
        truth = [tuple(row) for row in happened(log, theta)]
        if nothing_else:
            assert rows == truth
        else:
            assert set(rows) <= set(truth)
        assert len(rows) >= LEARNER.learning_starts
        world = federation.agents.world
        # An episode that is under way: its steps and rewards are those of the world.
        steps, collected = int(world.steps[agent]), float(world.collected[agent])
        assert world.state[agent, -2] == steps
        under_way = rows[len(rows) - steps :]
        assert [row[0] for row in under_way] == list(range(steps))
        assert collected == pytest.approx(sum(row[3] for row in under_way))


def of_seed(federation, seed):
    return jax.tree.map(lambda leaf: leaf[seed], federation)


def trained(engine, federation, rounds, E=3, vectorised=False):
    thetas = engine.thetas(0)
    environments = engine.environments(0, thetas)
    advance = jax.jit(partial(engine.advance))
    return advance(federation, environments, rounds, E), np.asarray(thetas)


CHANGES = [
    {},
    {"learner": replace(LEARNER, update_every=3)},
    {"participation": 0.67},
    {"survives": Survives(replay=False)},
    {"unit": "updates", "E": 10, "updates": 40},
    {"unit": "updates", "E": 10, "updates": 40, "participation": 0.34},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_agents_learn_from_what_has_happened_and_from_all_of_it(log, changes):
    experiment = replace(EXPERIMENT, **changes)
    engine = LocalEngine(experiment)
    federation = jax.jit(partial(begin, engine))(0)
    federation, thetas = trained(engine, federation, 4, int(experiment.E))
    # A memory that was emptied in between has only the newest of it.
    emptied = not experiment.survives.replay
    check(federation, thetas, log, nothing_else=not emptied)
    if experiment.unit == "episodes" and not emptied:
        assert len(log) == int(np.sum(federation.clock.steps))


@pytest.mark.parametrize("changes", [CHANGES[0], CHANGES[3], CHANGES[5]], ids=str)
def test_no_transition_crosses_a_resume(log, changes):
    experiment = replace(EXPERIMENT, **changes)
    engine = LocalEngine(experiment)
    federation = jax.jit(partial(begin, engine))(0)
    emptied = not experiment.survives.replay
    for _ in range(3):
        federation, thetas = trained(engine, federation, 1, int(experiment.E))
        check(federation, thetas, log, nothing_else=not emptied)
        in_another_process()


def test_a_state_that_is_taken_up_again_in_the_same_process_begins_new_episodes(log):
    engine = LocalEngine(EXPERIMENT)
    federation = jax.jit(partial(begin, engine))(0)
    first, thetas = trained(engine, federation, 1)
    made = len(hall(FAMILY)._taken)
    second, _ = trained(engine, first, 1)
    again, _ = trained(engine, first, 1)
    check(again, thetas, log, nothing_else=False)
    # The same environments are used, not others beside them.
    assert len(hall(FAMILY)._taken) == made
    # And what goes on from where its environments are is not disturbed.
    on, _ = trained(engine, again, 1)
    before = np.asarray(again.agents.world.state)
    after = rows_of(on, 0)[int(again.clock.stored[0])]
    assert after[:2] == tuple(before[0, -2:].tolist())
    del second


def test_several_seeds_side_by_side_do_not_disturb_each_other(log):
    engine = LocalEngine(EXPERIMENT)
    seeds = jnp.arange(3)
    federation = jax.jit(jax.vmap(partial(begin, engine)))(seeds)
    thetas = jax.vmap(engine.thetas)(seeds)

    @jax.jit
    def train(federation):
        return jax.vmap(
            lambda seed, theta, one: engine.advance(one, engine.environments(seed, theta), 2, 3)
        )(seeds, thetas, federation)

    federation = train(federation)
    for seed in range(3):
        check(of_seed(federation, seed), np.asarray(thetas[seed]), log)
    assert len(log) == int(np.sum(federation.clock.steps))


def test_a_run_that_is_killed_and_resumed_learns_from_what_has_happened(log, tmp_path, monkeypatch):
    experiment = replace(EXPERIMENT, seeds=2, updates=18)
    (directory,) = begin_runs([experiment], tmp_path)

    class Stop(Silence):
        def advance(self, amount):
            if list(directory.checkpoints.glob("*")):
                raise KeyboardInterrupt

    monkeypatch.setattr("fedrl.runs.driver._Pause.over", lambda self: True)
    monkeypatch.setattr("fedrl.engine.plan.STRETCH", 1e-9)
    monkeypatch.setattr("fedrl.engine.plan.SHORTEST", 1)
    stopped = 0
    for _ in range(2):
        try:
            carry_out(directory, Stop())
        except KeyboardInterrupt:
            stopped += 1
        in_another_process()
    carry_out(directory, Silence())
    assert stopped == 2
    (file,) = checkpoint.checkpoints(directory.checkpoints)
    *_, leaves = checkpoint.load(file, experiment.digest)
    replicates = Replicates(experiment)
    state = jax.tree.unflatten(jax.tree.structure(replicates._shapes()), leaves)
    for seed in range(2):
        check(of_seed(state, seed), replicates.thetas[seed][:3], log, nothing_else=False)


@pytest.mark.parametrize("changes", CHANGES[:2], ids=str)
def test_an_agent_of_a_federation_learns_from_what_has_happened(log, tmp_path, changes):
    experiment = replace(EXPERIMENT, **changes)
    federation = Federation(experiment, tmp_path).run()
    for number, agent in federation.transport.agents.items():
        rows = rows_of(agent._state, 0)
        assert len(rows) >= LEARNER.learning_starts
        (theta,) = agent._client.theta[0]
        assert set(rows) <= set(map(tuple, happened(log, theta)))
        assert number < 3
    in_another_process()


def test_an_agent_of_a_federation_that_is_started_again_begins_a_new_episode(log):
    for kind in (EXPERIMENT, replace(EXPERIMENT, survives=Survives(replay=False))):
        client = SimulatedClient(kind, 0, None)
        state = client.begin(None)
        for _ in range(3):
            state = client.work(state, 3, 0, 1.0)
            check(state, client.theta, log, nothing_else=False)
            in_another_process()
            state = client.restore([np.asarray(leaf) for leaf in jax.tree.leaves(state)])
            state = client.receive(state, Broadcast(client.offer(state).model), True)


def test_an_agent_in_an_environment_of_its_own_learns_from_what_has_happened(log):
    for unit in ("updates", "episodes"):
        log.clear()
        client = GymnasiumClient(replace(EXPERIMENT, unit=unit), 0, "gymnasium_worlds:Recorded")
        state = client.begin(None)
        for _ in range(4):
            state = client.work(state, 3, 0, 1.0)
            state = client.restore([np.asarray(leaf) for leaf in jax.tree.leaves(state)])
        kept = unpack(np.asarray(state.rows)[: int(state.stored)], 2)
        rows = [
            (*seen.tolist(), int(action[0]), float(reward), *after.tolist(), bool(ended))
            for seen, action, reward, after, ended in zip(*kept[:5], strict=True)
        ]
        assert rows == [tuple(row) for row in happened(log, 1.0)]
