"""The compiled engine against a plain Python loop, and what must not matter at all."""

from dataclasses import replace
from functools import cache, partial
from math import inf

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from engines import changed, engine_of
from fedrl.engine.agent import NEVER, OneAgent, agent_keys
from fedrl.engine.client import FIRST_RESET
from fedrl.engine.plan import Leg
from fedrl.engine.single_device import Replicates
from fedrl.experiment.settings import Survives
from fedrl.families import CartPoles
from fedrl.keys import Purpose, replicate_key
from fedrl.learners.dqn import DQN
from fedrl.learners.replay import Memory, Transition
from fedrl.strategies.aggregators import mean
from obvious_memory import ObviousMemory
from tiny import TINY, begin, go_on

LEARNER = DQN(
    hidden=(8,),
    lr=1e-2,
    gamma=0.9,
    batch=4,
    replay=24,
    learning_starts=8,
    target_every=7,
    epsilon_decay=0.95,
)
ENGINE = engine_of(CartPoles(time_limit=12), LEARNER, agents=2, seed=3)
ALONE = changed(ENGINE, E=inf)
# The memory is full after about ten episodes.
EPISODES = changed(ALONE, unit="episodes", learner=replace(LEARNER, replay=100))
NOTHING_KEPT = changed(
    ENGINE,
    learner=replace(LEARNER, update_every=3, replay=40, double=True, loss="huber"),
    survives=Survives(replay=False, optimizer=False, target=False),
    initialisation="per-agent",
)


def with_memory(engine, dtype):
    learner = replace(engine.experiment.learner, memory=Memory(dtype))
    return changed(engine, learner=learner)


pytestmark = pytest.mark.usefixtures("kept", "hasty")


@cache
def compiled_init(engine):
    return jax.jit(partial(begin, engine))


@cache
def compiled_advance(engine):
    return jax.jit(partial(go_on, engine))


def fresh(engine, replicate=0):
    # How agents communicate later says nothing about their beginning: compiled once for all.
    same_beginning = changed(engine, survives=Survives(), E=100)
    return jax.device_get(compiled_init(same_beginning)(np.int32(replicate)))


def advance(engine, federation, rounds, E, replicate=0):
    numbers = (np.int32(x) for x in (replicate, rounds, E))
    return jax.device_get(compiled_advance(engine)(federation, *numbers))


def trained(engine, rounds, E, replicate=0):
    return advance(engine, fresh(engine, replicate), rounds, E, replicate)


def same(one, other):
    one, other = jax.tree.leaves(one), jax.tree.leaves(other)
    return len(one) == len(other) and all(
        np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True)
    )


def of_agent(tree, agent):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[agent], tree)


class ObviousAgent:
    """DQN as one writes it first: a loop, a list of transitions, one thing after the other."""

    def __init__(self, engine, replicate, agent, functions):
        self.family, self.learner = engine.experiment.family, engine.experiment.learner
        self.act, self.update, self.move, self.draw_step, self.draw_batch = functions
        self.keys = agent_keys(engine.experiment.seed, replicate, agent)
        root = replicate_key(engine.experiment.seed, replicate, Purpose.ENVIRONMENTS)
        theta = self.family.sample(root, engine.experiment.agents)[agent]
        self.constants = self.family.constants(theta)
        root = replicate_key(engine.experiment.seed, replicate, Purpose.NETWORK)
        number = agent if engine.experiment.initialisation == "per-agent" else 0
        self.learned = self.learner.init(jax.random.fold_in(root, number), 4, 2)
        self.state = self.family.reset(jax.random.fold_in(self.keys.acting, FIRST_RESET))
        self.steps = self.updates = self.episodes = self.age = 0
        self.begin_memory()

    def begin_memory(self):
        learner = self.learner
        self.memory = ObviousMemory(learner.memory, learner.replay)
        self.explore(learner.learning_starts)

    def explore(self, steps):
        for _ in range(steps):
            draws = self.draw_step(self.keys, np.int32(self.steps))
            updates = np.int32(self.updates)
            action, _ = self.act(self.learned.params, self.state, (), draws.action, updates)
            after, reward, terminated = self.move(self.state, action, self.constants)
            cut = self.age + 1 == self.family.time_limit
            self.memory.remember(self.state, action, reward, after, terminated)
            self.state, self.steps, self.age = after, self.steps + 1, self.age + 1
            if terminated or cut:
                self.state, self.age, self.episodes = draws.reset, 0, self.episodes + 1

    def unit(self):
        uniform = np.asarray(self.draw_batch(self.keys, np.int32(self.updates)).pick)
        picked = self.memory.recall(uniform)
        columns = [np.array(column, np.float32) for column in zip(*picked, strict=True)]
        batch = Transition(*columns)
        self.updates += 1
        number = np.int32(self.updates)
        self.learned, _ = self.update(self.learned, batch, (), number)
        self.explore(self.learner.update_every)


@cache
def compiled_functions(family, learner):
    one = OneAgent(family, learner)
    return (
        jax.jit(learner.act),
        jax.jit(learner.update),
        jax.jit(family.step),
        jax.jit(one.step_draws),
        jax.jit(one.batch_draws),
    )


def obvious_agents(engine, rounds, E, replicate=0):
    """What an engine does, agent after agent."""
    learner, survives = engine.experiment.learner, engine.experiment.survives
    functions = compiled_functions(engine.experiment.family, learner)
    agents = [
        ObviousAgent(engine, replicate, i, functions) for i in range(engine.experiment.agents)
    ]
    for _ in range(rounds):
        for agent in agents:
            if engine.experiment.unit == "updates":
                for _ in range(E):
                    agent.unit()
            else:
                enough = agent.episodes + E
                while agent.episodes < enough:
                    agent.unit()
        if not engine.experiment.communicates:
            continue
        params = [agent.learned.params for agent in agents]
        average = jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *params)
        for agent in agents:
            new = learner.adopt(average)
            agent.learned = new._replace(
                target=agent.learned.target if survives.target else new.target,
                optimizer=agent.learned.optimizer if survives.optimizer else new.optimizer,
            )
            if not survives.replay:
                agent.begin_memory()
    return agents


@pytest.mark.parametrize(
    ("engine", "rounds", "E"),
    [
        (changed(ENGINE, agents=1), 6, 10),
        (ENGINE, 4, 15),
        (ALONE, 1, 60),
        (NOTHING_KEPT, 5, 8),
        (EPISODES, 2, 3),
        (with_memory(ALONE, "float16"), 1, 60),
        (with_memory(NOTHING_KEPT, "bfloat16"), 5, 8),
    ],
    ids=[
        *("one agent", "two agents", "E = inf", "nothing kept", "episodes"),
        *("float16", "bfloat16"),
    ],
)
def test_the_engine_does_what_a_plain_loop_does(engine, rounds, E):
    ours = trained(engine, rounds, E)
    for number, agent in enumerate(obvious_agents(engine, rounds, E)):
        clock = jax.tree.map(lambda leaf, i=number: np.ravel(leaf)[i % np.size(leaf)], ours.clock)
        assert (clock.steps, clock.updates) == (agent.steps, agent.updates)
        assert ours.agents.seen.updates[number] == agent.updates
        assert ours.agents.seen.episodes[number] == agent.episodes
        assert ours.agents.world.steps[number] == agent.age
        np.testing.assert_allclose(ours.agents.world.state[number], agent.state, atol=1e-5)
        learned = of_agent(ours.agents.learned, number)
        for a, b in zip(jax.tree.leaves(learned), jax.tree.leaves(agent.learned), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 16])
def test_the_average_of_equal_agents_is_each_of_them_to_the_last_bit(rng, n):
    one = {"w": rng.normal(size=(50, 3)).astype(np.float32), "b": np.float32([2e-38, 3e38, 0.1])}
    average = mean(jax.tree.map(lambda leaf: np.stack([leaf] * n), one))
    assert same(average, one)


def test_communication_between_equal_agents_changes_nothing():
    before = fresh(ENGINE)
    after = trained(ENGINE, 3, 0)
    assert after.server.rounds == 3
    server = after.server._replace(rounds=before.server.rounds)
    assert same(after._replace(server=server), before)


def test_the_average_is_numpys_mean(rng):
    leaves = rng.normal(size=(7, 40)).astype(np.float32)
    np.testing.assert_allclose(mean(leaves), leaves.mean(0), atol=1e-6)
    # Until their first average, agents do what they would do alone.
    together, alone = trained(ENGINE, 1, 20), trained(ALONE, 1, 20)
    for a, b in zip(
        jax.tree.leaves(together.agents.learned.params),
        jax.tree.leaves(alone.agents.learned.params),
        strict=True,
    ):
        np.testing.assert_array_equal(a[0], a[1])
        assert not np.array_equal(b[0], b[1])
        np.testing.assert_allclose(a[0], b.mean(0), atol=1e-6)


def spoilt(federation):
    """The same, but nothing of agent 1 is a number any more."""

    def spoil(leaf):
        leaf = np.array(leaf)
        if leaf.dtype == np.float32:
            leaf[1] = np.nan
        return leaf

    return federation._replace(
        agents=jax.tree.map(spoil, federation.agents), rows=spoil(federation.rows)
    )


def test_without_communication_nothing_of_one_agent_reaches_another():
    federation = fresh(ALONE)
    clean, dirty = advance(ALONE, federation, 3, 20), advance(ALONE, spoilt(federation), 3, 20)
    assert np.isnan(jax.tree.leaves(of_agent(dirty.agents.learned.params, 1))[0]).all()
    assert same(of_agent(clean.agents, 0), of_agent(dirty.agents, 0))
    assert same(clean.rows[0], dirty.rows[0])


@pytest.mark.parametrize("E", [3, 25])
def test_with_communication_an_agent_is_reached_by_the_average_and_not_before(E):
    federation = fresh(ENGINE)
    clean, dirty = advance(ENGINE, federation, 1, E), advance(ENGINE, spoilt(federation), 1, E)
    # All that was done before the average: experience, losses, moments, own target.
    assert same(clean.rows[0], dirty.rows[0])
    seen = of_agent(dirty.agents.seen, 0)
    assert same(of_agent(clean.agents.world, 0), of_agent(dirty.agents.world, 0))
    assert same(of_agent(clean.agents.seen, 0), seen._replace(bad_update=np.int32(NEVER)))
    # Who was first is known also after everybody has the same.
    assert seen.bad_update == E + 1
    assert of_agent(dirty.agents.seen, 1).bad_update == 1
    for part in ("optimizer", "target"):
        assert same(*(of_agent(getattr(x.agents.learned, part), 0) for x in (clean, dirty)))
    for leaf in jax.tree.leaves(of_agent(dirty.agents.learned.params, 0)):
        assert np.isnan(leaf).all()
    assert np.isfinite(of_agent(dirty.agents.seen.loss, 0))
    # And after the average nothing is safe.
    assert np.isnan(advance(ENGINE, dirty, 1, 1).agents.seen.loss[0])


@pytest.mark.parametrize("lost", ["replay", "optimizer", "target"])
def test_what_does_not_survive_starts_anew_and_the_rest_goes_on(lost):
    engine = changed(ENGINE, survives=Survives(**{lost: False}))
    E = 6  # The target is copied after 7.
    before, after, alone = fresh(engine), trained(engine, 1, E), trained(ALONE, 1, E)
    kept, learned = alone.agents.learned, after.agents.learned
    starts = LEARNER.learning_starts
    if lost == "replay":
        assert after.clock.stored == starts
        assert after.clock.steps == starts + E + starts
        assert not np.isin(after.rows[:, :starts], alone.rows).all(axis=-1).any()
    else:
        assert after.clock.stored == after.clock.steps == starts + E
        assert same(after.rows, alone.rows)
    if lost == "optimizer":
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(learned.optimizer))
    else:
        assert same(learned.optimizer, kept.optimizer)
        assert learned.optimizer.count.tolist() == [E, E]
    own = before.agents.learned.target
    assert same(learned.target, learned.params if lost == "target" else own)
    assert not same(learned.params, before.agents.learned.params)


def test_agents_start_from_one_network_or_from_their_own():
    shared, own = fresh(ENGINE).agents.learned, fresh(NOTHING_KEPT).agents.learned
    for leaf in jax.tree.leaves(shared.params):
        np.testing.assert_array_equal(leaf[0], leaf[1])
    for leaf in jax.tree.leaves(own.params):
        assert not np.isin(leaf[0], leaf[1]).any()
    for learned in (shared, own):
        assert same(learned.params, learned.target)
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(learned.optimizer))


def test_agents_live_in_different_environments_and_draw_different_numbers():
    theta = ENGINE.thetas(jnp.int32(0))
    environments = ENGINE.environments(jnp.int32(0), theta)
    assert len(np.unique(theta)) == 2
    one = OneAgent(ENGINE.experiment.family, LEARNER)
    draws = jax.vmap(lambda keys: one.step_draws(keys, jnp.int32(5)))(environments.keys)
    assert len(np.unique(draws.action)) == 4
    assert len(np.unique(draws.reset)) == 8
    batches = jax.vmap(lambda keys: one.batch_draws(keys, jnp.int32(5)))(environments.keys)
    assert len(np.unique(batches.pick)) == 8


def test_a_leg_can_be_split_at_any_round():
    whole = trained(ENGINE, 5, 9)
    parts = advance(ENGINE, trained(ENGINE, 2, 9), 3, 9)
    assert same(whole, parts)


def test_without_communication_a_leg_can_be_split_anywhere():
    whole = trained(ALONE, 1, 70)
    parts = advance(ALONE, advance(ALONE, trained(ALONE, 1, 17), 1, 33), 1, 20)
    assert same(whole, parts)


def test_the_same_replicate_is_the_same_and_another_is_another():
    one, again, other = (trained(ENGINE, 2, 9, replicate) for replicate in (0, 0, 1))
    assert same(one, again)
    for a, b in zip(
        jax.tree.leaves(one.agents.learned.params),
        jax.tree.leaves(other.agents.learned.params),
        strict=True,
    ):
        assert not np.isin(a, b).any()


def test_another_seed_has_other_environments_networks_and_experience():
    other = changed(ENGINE, seed=4)
    assert not np.isin(ENGINE.thetas(jnp.int32(0)), other.thetas(jnp.int32(0)))[0]
    a, b = fresh(ENGINE), fresh(other)
    assert not np.isin(a.rows[:, :8, :4], b.rows[:, :8, :4]).any()
    assert not same(a.agents.learned.params, b.agents.learned.params)


def test_so_many_steps_are_taken_for_each_update():
    # In every round three for each update, and 8 more for the new memory.
    clock = trained(NOTHING_KEPT, 2, 11).clock
    assert clock.updates == 2 * 11
    assert clock.steps == 8 + 2 * (3 * 11 + 8)
    assert clock.stored == 8


def test_every_agent_finishes_exactly_E_episodes_a_round():
    federation = fresh(EPISODES)
    finished = np.asarray(federation.agents.seen.episodes)
    for E in (1, 2, 4):
        federation = advance(EPISODES, federation, 1, E)
        finished = finished + E
        np.testing.assert_array_equal(federation.agents.seen.episodes, finished)
        # It stops right after the last step of an episode.
        np.testing.assert_array_equal(federation.agents.world.steps, [0, 0])
        np.testing.assert_array_equal(federation.agents.world.collected, [0, 0])


def with_slow_other(federation):
    """The same, but agent 1 has only just begun its episode, and lives longer."""
    world = federation.agents.world
    state = np.array(world.state)
    state[1] = 0.0
    steps = np.array(world.steps)
    steps[1] = -100
    world = world._replace(state=state, steps=steps)
    return federation._replace(agents=federation.agents._replace(world=world))


def test_an_agent_that_waits_for_another_does_not_change():
    # Agent 1 has at least 32 more units to do in the second case: other blocks, a longer wait.
    federation = fresh(EPISODES)
    soon, late = (advance(EPISODES, f, 1, 1) for f in (federation, with_slow_other(federation)))
    assert late.clock.updates[1] > soon.clock.updates[1]
    assert late.clock.updates[1] > late.clock.updates[0]
    assert same(of_agent(soon.agents, 0), of_agent(late.agents, 0))
    assert same(of_agent(soon.clock, 0), of_agent(late.clock, 0))
    stored = soon.clock.stored[0]
    assert same(soon.rows[0, :stored], late.rows[0, :stored])


@pytest.mark.parametrize(
    ("engine", "episodes"),
    [(EPISODES, 6), (EPISODES, 40), (with_memory(EPISODES, "float16"), 40)],
    ids=["memory", "full memory", "memory of another kind"],
)
def test_an_agent_in_episodes_does_not_depend_on_where_it_waited(engine, episodes):
    whole, parts = trained(engine, 1, episodes), trained(engine, episodes, 1)
    assert (whole.clock.stored > 100).all() == (episodes == 40)
    assert same(whole.clock, parts.clock)
    assert same(whole.agents, parts.agents)


THREE_SEEDS = replace(TINY, learner=LEARNER, updates=20, seeds=3)


@cache
def after_two_rounds(seeds, vectorised=False):
    replicates = Replicates(replace(THREE_SEEDS, seeds=seeds), vectorised)
    replicates.start()
    record = replicates.run(Leg(2, 10, 20, 2), lambda _: None)
    return record, replicates.thetas, replicates.export(), replicates.models()


def test_a_replicate_does_not_depend_on_how_many_there_are():
    few, many = after_two_rounds(1), after_two_rounds(3)
    assert same(few, of_agent(many, slice(0, 1)))
    assert not same(few, of_agent(many, slice(1, 2)))


def test_seeds_side_by_side_are_seeds_one_by_one():
    apart, together = after_two_rounds(3), after_two_rounds(3, vectorised=True)
    for a, b in zip(jax.tree.leaves(apart), jax.tree.leaves(together), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
