"""An agent whose environment is anything that Gymnasium can step."""

import sys
from dataclasses import replace
from types import ModuleType

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

from fedrl.engine.agent import untrained
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Evaluation, Survives
from fedrl.experiment.toml import to_toml
from fedrl.learners.personalisation import Personal
from fedrl.learners.replay import Memory, unpack
from fedrl.network.agent_client import like, named, shapes
from fedrl.network.answering import Agent
from fedrl.network.deployment import AgentSettings
from fedrl.network.gymnasium_client import GymnasiumClient
from fedrl.network.messages import METRICS, Instruction
from fedrl.network.worker import agent_in
from fedrl.strategies.corrections import Broadcast, ControlVariates
from in_process import Federation, agents_of
from tiny import LEARNER, TINY

pytestmark = pytest.mark.usefixtures("kept", "hasty")

EXPERIMENT = replace(
    TINY,
    name="gymnasium",
    learner=replace(LEARNER, personal=Personal(embedding=2, embedding_range=0.5)),
    seeds=1,
    evaluation=Evaluation(every=20, episodes=3),
)
STEPS = 5


class World(gymnasium.Env):
    """Random observations and a reward of 1, for so many steps; remembers what was done in it."""

    observation_space = spaces.Box(-2.0, 2.0, (4,))
    action_space = spaces.Discrete(2)
    ends = False

    def __init__(self):
        self.done, self.seeds = [], []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.steps = 0
        return self._look(), {}

    def _look(self):
        self.seen = self.np_random.uniform(-2, 2, 4).astype(np.float32)
        return self.seen

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        before, over = self.seen, self.steps == STEPS
        self.done.append((before, action, self._look(), over and self.ends))
        return self.seen, 1.0, over and self.ends, over and not self.ends, {}


class Ends(World):
    """Its episodes are over, not cut off."""

    ends = True


class Endless(World):
    """Nobody ever says that an episode is over."""

    def step(self, action):
        seen, reward, _, _, info = super().step(action)
        return seen, reward, False, False, info


class Wide(World):
    observation_space = spaces.Box(-2.0, 2.0, (5,))


class Levers(World):
    action_space = spaces.Discrete(3)


@pytest.fixture(autouse=True)
def worlds(monkeypatch):
    module = ModuleType("worlds_of_mine")
    for kind in (World, Ends, Endless, Wide, Levers):
        setattr(module, kind.__name__, kind)
    monkeypatch.setitem(sys.modules, "worlds_of_mine", module)


def client_in(kind="World", experiment=EXPERIMENT, agent=1):
    return GymnasiumClient(experiment, agent, f"worlds_of_mine:{kind}")


def remembered(state, client):
    """Transitions in an agent's memory, in the order they were made."""
    rows = np.asarray(state.rows)[: int(state.stored)]
    return unpack(rows, client.experiment.family.observation_size)


def test_an_agent_explores_until_it_can_learn_and_then_learns_with_every_step():
    client = client_in()
    state = client.work(client.begin(None), 10, 0, 1.0)
    # The first update is made from 8 transitions.
    assert int(state.updates) == 10
    assert int(state.steps) == int(state.stored) == len(client.env.done) == 8 - 1 + 10
    after = client.work(state, 10, 10, 1.0)
    assert (int(after.updates), int(after.steps)) == (20, 27)
    slower = client_in(experiment=replace(EXPERIMENT, learner=replace(LEARNER, update_every=3)))
    state = slower.work(slower.begin(None), 4, 0, 1.0)
    # Updates at transitions 9, 12, 15 and 18.
    assert (int(state.updates), int(state.steps)) == (4, 18)


@pytest.mark.parametrize("kind", ["World", "Ends"])
def test_what_an_agent_remembers_is_what_has_happened(kind):
    client = client_in(kind)
    state = client.work(client.begin(None), 20, 0, 1.0)
    memory = remembered(state, client)
    before, action, after, over = (np.array(x) for x in zip(*client.env.done, strict=True))
    np.testing.assert_array_equal(memory.observation, before)
    np.testing.assert_array_equal(memory.action[:, 0], action)
    np.testing.assert_array_equal(memory.next_observation, after)
    np.testing.assert_array_equal(memory.reward, 1)
    np.testing.assert_array_equal(memory.terminated, over)
    assert over.sum() == (len(over) // STEPS if kind == "Ends" else 0)
    assert set(action.tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("kind", "worth", "memory"),
    [
        # A time limit is no end: 1 + 0.9 + 0.9**2 + ...
        ("World", 10.0, Memory()),
        ("World", 10.0, Memory("bfloat16")),
        # From a step that is known to be the last of five: what follows it is worth nothing.
        ("Ends", None, Memory()),
        ("Ends", None, Memory("float16")),
    ],
)
def test_values_are_those_of_the_theory(kind, worth, memory):
    learner = replace(LEARNER, lr=3e-3, replay=512, batch=32, hidden=(16,), memory=memory)
    client = client_in(kind, replace(EXPERIMENT, learner=learner))
    state = client.begin(None)
    for trained in range(0, 1500, 500):
        state = client.work(state, 500, trained, 1.0)
    observations = np.random.default_rng(0).uniform(-1.5, 1.5, (50, 4)).astype(np.float32)
    values = jax.vmap(state.learned.params)(observations)
    if worth is None:
        # Of observations that say nothing, a fifth of which is followed by the end:
        # V = 1 + 0.9 * 4/5 * V.
        worth = 1 / (1 - 0.9 * (1 - 1 / STEPS))
    np.testing.assert_allclose(np.mean(values), worth, rtol=0.15)


def test_the_unit_may_be_an_episode():
    client = client_in(experiment=replace(EXPERIMENT, unit="episodes", E=2, updates=4))
    state = client.work(client.begin(None), 2, 0, 1.0)
    assert int(state.steps) == 2 * STEPS
    assert int(state.updates) == 2 * STEPS - 8 + 1


def test_who_does_not_say_when_an_episode_is_too_long_gets_the_familys_limit():
    client = client_in("Endless", replace(EXPERIMENT, unit="episodes", E=2, updates=4))
    state = client.work(client.begin(None), 2, 0, 1.0)
    assert int(state.steps) == 2 * EXPERIMENT.family.time_limit == 40
    # But one that says so itself is believed.
    long = GymnasiumClient(EXPERIMENT, 0, "CartPole-v1")
    assert long._longest == np.inf


def test_an_evaluation_is_the_mean_return_of_greedy_episodes_and_tells_what_was_met():
    client = client_in()
    state = client.begin(None)
    state, first = client.evaluate(state, 0)
    discounted = sum(0.9**k for k in range(STEPS))
    assert first == pytest.approx(
        {"own_return": STEPS, "own_discounted_return": discounted, "updates": 0}
    )
    played = len(client.env.done)
    assert played == 3 * STEPS
    state = client.work(state, 13, 0, 1.0)  # 20 steps: four episodes
    state, second = client.evaluate(state, 13)
    assert second["updates"] == 13
    assert second["explored_return"] == STEPS
    assert client.evaluate(state, 13)[1].keys() == first.keys()
    # From fresh beginnings, which depend on how long it was trained alone.
    first, second, again = (client.env.done[at][0] for at in (0, played + 20, 2 * played + 20))
    assert not np.array_equal(first, second)
    assert np.array_equal(second, again)


def test_models_replace_what_is_shared_and_nothing_else():
    client = client_in()
    state = client.work(client.begin(None), 5, 0, 1.0)
    model = {name: leaf + np.float32(0.5) for name, leaf in named(client.offer(state)).items()}
    assert set(model) == set(shapes(client.sent)) == set(shapes(client.offered))
    assert not any("view" in name for name in model)
    after = client.receive(state, like(client.sent, model), True)
    shared = named(client.offer(after))
    assert all(np.array_equal(shared[name], model[name]) for name in model)
    for kept in (
        lambda x: x.learned.params.view.embedding,
        lambda x: x.learned.optimizer,
        lambda x: x.learned.target,
        lambda x: (x.rows, x.steps, x.stored, x.updates, x.met),
    ):
        assert jax.tree.all(jax.tree.map(np.array_equal, kept(state), kept(after)))


def test_what_does_not_survive_begins_anew():
    nothing = Survives(replay=False, optimizer=False, target=False)
    client = client_in(experiment=replace(EXPERIMENT, survives=nothing))
    state = client.work(client.begin(None), 5, 0, 1.0)
    after = client.receive(state, Broadcast(client.offer(state).model), True)
    assert (int(after.stored), int(after.steps), int(after.updates)) == (0, 12, 5)
    fresh = untrained(client.experiment, after.learned.params)
    assert jax.tree.all(jax.tree.map(np.array_equal, after.learned, fresh))
    # It explores again before it learns.
    assert int(client.work(after, 1, 5, 1.0).steps) == 12 + 8


def test_its_steps_are_corrected_and_it_remembers_only_what_the_server_has_used():
    corrected = replace(EXPERIMENT, correction=ControlVariates())

    def trained(experiment, counted=True):
        """The parameters after two rounds of an agent that is alone."""
        client = client_in(experiment=experiment)
        state = client.work(client.begin(None), 5, 0, 1.0)
        state = client.receive(state, Broadcast(*client.offer(state)), counted)
        return jax.tree.leaves(client.work(state, 5, 5, 1.0).learned.params)

    def same(a, b):
        return all(np.allclose(x, y, rtol=0, atol=1e-6) for x, y in zip(a, b, strict=True))

    # Nobody else pulls: what is subtracted and what is added are the same.
    assert same(trained(corrected), trained(EXPERIMENT))
    assert not same(trained(corrected, counted=False), trained(EXPERIMENT))


def instruction(number, model, **changed):
    plain = {
        "training": "t",
        "experiment": EXPERIMENT.digest,
        "round": number,
        "E": 9,
        "trained": 9 * (number - 1),
        "evaluate": number != 2,
        "model": model,
    }
    return Instruction(**plain | changed)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"learner": replace(EXPERIMENT.learner, memory=Memory("bfloat16"))},
        {"correction": ControlVariates()},
    ],
    ids=["plain", "bfloat16", "control variates"],
)
def test_killed_and_started_again_it_goes_on_to_the_last_bit(tmp_path, changes):
    """The environment's episode is over then: so it is in every round, for all."""
    experiment = replace(EXPERIMENT, **changes)

    def fresh(name):
        return Agent(tmp_path / name, client_in(experiment=experiment), experiment.digest)

    one, model = fresh("one"), {}
    for number in range(1, 4):
        asked = instruction(number, model, experiment=experiment.digest, counted=number - 1)
        said = one.answer(asked)
        for _ in range(2):
            again = fresh("other").answer(asked)
            assert all(said.shared[n].tobytes() == again.shared[n].tobytes() for n in said.shared)
            said.metrics.pop("seconds", None)
            again.metrics.pop("seconds")
            assert said.metrics == again.metrics
        model = {name: leaf * np.float32(0.9) for name, leaf in said.shared.items()}
    # No two rounds began with the same episode.
    seeds = [seed for seed in one._client.env.seeds if seed is not None]
    assert len(seeds) == 3 + 2 * 3
    assert len({seeds[3], seeds[4], seeds[8]}) == 3


def test_every_evaluation_has_starts_of_its_own_and_none_is_one_of_the_training():
    client = client_in()
    state = client.begin(None)
    starts = []
    for trained in (0, 10, 20):
        client.env.seeds.clear()
        client.evaluate(state, trained)
        starts += client.env.seeds
        assert len(client.env.seeds) == EXPERIMENT.evaluation.episodes
        client.env.seeds.clear()
        state = client.work(state, 10, trained, 1.0)
        starts += [seed for seed in client.env.seeds if seed is not None]
    assert len(set(starts)) == len(starts) == 3 * (EXPERIMENT.evaluation.episodes + 1)
    # The same for every run with the same seed; others have others.
    for other, same in ((client_in(), True), (client_in(agent=0), False)):
        other.evaluate(state, 0)
        assert (other.env.seeds == starts[:3]) == same
    other = client_in(experiment=replace(EXPERIMENT, seed=1))
    other.evaluate(state, 0)
    assert not set(other.env.seeds) & set(starts)


def test_it_takes_part_in_a_federation_with_simulated_agents(tmp_path):
    agents = agents_of(EXPERIMENT, tmp_path)
    agents[1] = Agent(tmp_path / "agent 1", client_in("Ends"), EXPERIMENT.digest)
    done = Federation(replace(EXPERIMENT), tmp_path, agents, quorum=2).run()
    assert not done.log
    own = [x for x in done.transport.exchanges if x.agent == 1]
    assert len(own) == 7
    assert all(set(x.answer.metrics) <= set(METRICS) for x in own)
    rows = (done.path / "metrics.csv").read_text().splitlines()
    assert "0,6,60,1,1,,train,return,5" in rows
    # Not a byte of what it has seen.
    said = b"".join(x.content for x in own)
    assert not any(seen.tobytes() in said for seen, *_ in agents[1]._client.env.done)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("CartPoel-v1", ["cannot make the environment 'CartPoel-v1'", "doesn't exist"]),
        ("CartPole-v99", ["CartPole-v99", "id of a registered one"]),
        ("no_such_module:make", ["No module named 'no_such_module'", "run from its folder"]),
        (
            "worlds_of_mine:make",
            ["has no attribute 'make'", "must name a function that returns it"],
        ),
        ("worlds_of_mine:__name__", ["not callable"]),
        ("worlds_of_mine:Wide", ["observe Box(4,)", "Box(-2.0, 2.0, (5,)"]),
        ("worlds_of_mine:Levers", ["choose from Discrete(2)", "Discrete(3)"]),
        ("Pendulum-v1", ["observe Box(4,)"]),
    ],
)
def test_an_environment_that_cannot_be_used_is_told(named, said):
    with pytest.raises(FedrlError) as told:
        GymnasiumClient(EXPERIMENT, 0, named)
    for words in said:
        assert words in str(told.value)


def folder_of(path, experiment=EXPERIMENT, **settings):
    path.mkdir()
    (path / "experiment.toml").write_text(to_toml(experiment))
    described = AgentSettings(**{"id": 0, "server": "127.0.0.1:9443"} | settings)
    (path / "agent.toml").write_text(to_toml(described))
    return path


def test_its_owner_names_the_environment_in_agent_toml(tmp_path, monkeypatch):
    from fedrl.network import worker

    monkeypatch.setattr(worker, "use_compilation_cache", lambda folder: None)
    for environment, kind in (("worlds_of_mine:Ends", Ends), ("CartPole-v1", gymnasium.Env)):
        number = len(list(tmp_path.iterdir()))
        agent = agent_in(folder_of(tmp_path / str(number), environment=environment))
        assert isinstance(agent._client, GymnasiumClient)
        assert isinstance(agent._client.env, kind)
