"""Gymnasium environments in our engine, against the environments themselves."""

import re
from contextlib import suppress
from dataclasses import replace
from math import inf

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import fedrl
import gymnasium_worlds
from fedrl import Experiment, FedrlError, train
from fedrl.cli.main import main
from fedrl.engine.agent import NEVER
from fedrl.engine.evaluation import greedy_returns
from fedrl.engine.local_engine import LocalEngine
from fedrl.experiment.settings import Evaluation, from_toml
from fedrl.experiment.toml import to_toml
from fedrl.families import GymnasiumFamily, Uniform
from fedrl.families.gymnasium_host import hall
from fedrl.learners import replay
from fedrl.learners.ddpg import DDPG
from fedrl.learners.dqn import DQN
from fedrl.learners.ppo import PPO
from fedrl.progress import Silence
from fedrl.runs.driver import carry_out
from fedrl.runs.launch import begin as begin_runs
from tiny import begin, go_on

pytestmark = pytest.mark.usefixtures("hasty")
LEARNER = DQN(hidden=(8,), batch=4, replay=400, learning_starts=8, lr=1e-2, gamma=0.9)
CART = fedrl.families.gymnasium(
    "fedrl.envs:fedrl/CartPole-v0", vary={"theta": Uniform(0.3, 1.7)}, time_limit=40
)


def world(name, time_limit=20, **vary):
    ranges = vary or {"theta": (1.0, 3.0)}
    return fedrl.families.gymnasium(f"gymnasium_worlds:{name}", vary=ranges, time_limit=time_limit)


def experiment(family, **changes):
    settings = {
        "learner": LEARNER,
        "agents": 2,
        "held_out": 2,
        "E": 20,
        "updates": 60,
        "evaluation": Evaluation(every=60, episodes=2),
        "seeds": 1,
    }
    return Experiment(name="gym", family=family, **(settings | changes))


def experience(family, updates=100, learner=LEARNER):
    """What two agents have remembered, and their thetas."""
    engine = LocalEngine(experiment(family, learner=learner))
    trained = jax.jit(lambda: go_on(engine, begin(engine, 0), 0, 1, updates))()
    rows = np.asarray(trained.rows)[:, : int(trained.clock.stored)]
    thetas = np.asarray(engine.thetas(0))
    remembered = [replay.unpack(agent, family.observation_size) for agent in rows]
    return [jax.tree.map(np.asarray, one) for one in remembered], thetas


def test_every_transition_is_one_of_the_environment():
    remembered, thetas = experience(CART)
    for steps, theta in zip(remembered, thetas, strict=True):
        env = gymnasium.make("fedrl.envs:fedrl/CartPole-v0", theta=float(theta[0])).unwrapped
        env.reset(seed=0)
        ends = 0
        for i in range(len(steps.reward)):
            env._state, env._terminated = jnp.asarray(steps.observation[i]), False
            seen, reward, terminated, _, _ = env.step(np.int64(steps.action[i, 0]))
            np.testing.assert_allclose(steps.next_observation[i], seen, rtol=1e-6)
            assert (steps.reward[i], steps.terminated[i] > 0) == (reward, terminated)
            ends += terminated
            follows = (
                i + 1 < len(steps.reward)
                and (steps.next_observation[i] == steps.observation[i + 1]).all()
            )
            # A new episode begins near the middle, and only after an end or the time limit.
            assert follows != (terminated or i + 1 == len(steps.reward)) or not terminated
        assert ends > 2


@pytest.mark.parametrize(
    ("name", "length", "ended"), [("line", 20, 0), ("ending", 7, 1), ("cut", 5, 0)]
)
def test_episodes_end_where_they_should_and_cuts_are_no_ends(name, length, ended):
    remembered, thetas = experience(world(name))
    for steps, theta in zip(remembered, thetas, strict=True):
        count = steps.observation[:, 0]
        np.testing.assert_array_equal(count, np.arange(len(count)) % length)
        np.testing.assert_array_equal(steps.next_observation[:, 0], count + 1)
        np.testing.assert_array_equal(steps.terminated, ended * (count == length - 1))
        np.testing.assert_allclose(steps.reward, theta[0], rtol=1e-6)
        # Every episode has a seed of its own.
        assert len(np.unique(steps.observation[:, 1])) == -(-len(count) // length)


def test_actions_are_the_environments_own():
    remembered, _ = experience(world("line"))
    assert set(np.concatenate([one.action for one in remembered]).ravel()) == {0, 1}
    learner = DDPG(hidden=(8, 8), batch=4, replay=200, learning_starts=100)
    family = world("steered")
    assert (family.continuous, family.actions) == (True, 2)
    experience(family, 20, learner)
    done = [np.stack(env.done) for env in hall(family)._taken.values() if env.done]
    for actions in done:
        assert (actions >= [-2, 0]).all()
        assert (actions <= [2, 10]).all()
        assert np.ptp(actions, 0).min() > 1  # before the first update: anything


@pytest.mark.parametrize(("name", "length"), [("line", 20), ("ending", 7), ("cut", 5)])
def test_returns_are_what_they_must_be(name, length):
    family = world(name)
    models = jax.vmap(lambda key: LEARNER.init(key, 2, 2).params)(
        jax.random.split(jax.random.key(0), 3)
    )
    thetas = jnp.array([[1.0], [2.0], [2.5], [3.0]])
    play = jax.jit(
        lambda: greedy_returns(
            family, LEARNER.policy, models, thetas, jax.random.key(1), episodes=3, gamma=0.5
        )
    )
    found = play()
    expected = np.tile(np.array([1.0, 2.0, 2.5, 3.0]) * length, (3, 1))
    np.testing.assert_allclose(found.undiscounted, expected, rtol=1e-5)
    discounted = np.tile(np.array([1.0, 2.0, 2.5, 3.0]) * (2 - 2.0 ** (1 - length)), (3, 1))
    np.testing.assert_allclose(found.discounted, discounted, rtol=1e-5)
    # Environments of evaluations are used again, not made again.
    before = hall(family)._next
    free = sum(map(len, hall(family)._free.values()))
    play()
    assert hall(family)._next == before + 36
    assert sum(map(len, hall(family)._free.values())) == free


def test_a_run_is_an_ordinary_run(tmp_path):
    run = train(experiment(world("ending")), out=tmp_path, progress=False)
    frame = run.metrics()
    returns = frame[frame["metric"] == "return"]
    np.testing.assert_allclose(returns["value"], 7 * returns["theta"], rtol=1e-5)
    assert from_toml(to_toml(run.experiment)) == run.experiment
    np.testing.assert_allclose(run.evaluate([2.0]).undiscounted, [[14]], rtol=1e-6)
    again = train(experiment(world("ending")), out=tmp_path / "again", progress=False)
    assert (again.path / "metrics.csv").read_bytes() == (run.path / "metrics.csv").read_bytes()


def test_a_run_that_is_resumed_goes_on_with_new_episodes(tmp_path, monkeypatch):
    (directory,) = begin_runs([experiment(world("ending"), updates=200)], tmp_path)

    class Stop(Silence):
        def headline(self, text):
            if len(list(directory.checkpoints.glob("*"))) > 0:
                raise KeyboardInterrupt

    monkeypatch.setattr("fedrl.runs.driver._Pause.over", lambda self: True)
    monkeypatch.setattr("fedrl.engine.plan.STRETCH", 1.0)
    monkeypatch.setattr("fedrl.engine.plan.SHORTEST", 1)
    with pytest.raises(KeyboardInterrupt):
        carry_out(directory, Stop())
    hall.cache_clear()  # as in a new process
    carry_out(directory, Silence())
    assert directory.finished
    text = directory.metrics_text()
    assert "nan" not in text


def test_ppo_learns_in_it(tmp_path):
    changes = {"learner": PPO(lr=1e-3), "E": 4, "updates": 24, "held_out": 0, "agents": 2}
    run = train(
        experiment(replace(CART, time_limit=200), **changes | {"evaluation": Evaluation(every=24)}),
        out=tmp_path,
        progress=False,
    )
    frame = run.metrics()
    means = frame[frame["metric"] == "return"].groupby("updates")["value"].mean()
    assert means.iloc[0] < 60
    assert means.iloc[-1] > 100


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Unseeded", "does not repeat itself from the same seed.*np_random"),
        ("Image", "we learn from vectors"),
        ("Words", "we learn from vectors.*FlattenObservation"),
        ("Unbounded", "actions must be bounded"),
        ("Many", "we learn Discrete actions or vectors"),
        ("Growing", "looks different at the ends of its range"),
        ("OldReset", r"must return \(observation, info\)"),
        ("OldStep", "must return .observation, reward, terminated, truncated"),
        ("NoReward", "gave the reward nan"),
        ("Larger", r"observation of shape \(3,\), its space says \(2,\)"),
        ("the_same", "the same environment twice"),
        ("NoSeed", r"reset of .*NoSeed.* raised TypeError.*def reset\(self, \*, seed=None"),
        ("ManyRewards", r"gave the reward array\(\[1\.\]\), which is not one number"),
        ("Forgotten", r"step of .* raised ZeroDivisionError.*gymnasium_worlds\.py, line"),
        ("returns_nothing", "returned None, which is not a Gymnasium environment"),
        ("breaks", "KeyError: 'no such key'; gymnasium_worlds.py, line"),
        ("nothing", "cannot make.*module:function must name a function"),
    ],
)
def test_what_cannot_be_learnt_in_is_refused_and_says_why(tmp_path, name, message):
    with pytest.raises(FedrlError, match=message):
        train(experiment(world(name)), out=tmp_path, progress=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"environment": "NoSuch-v9"}, "cannot make the environment 'NoSuch-v9'"),
        ({"vary": {"nonsense": (0, 1)}}, "must name keywords that it has"),
        ({"vary": {}}, "all environments would be the same"),
        ({"vary": {"theta": 3}}, "range of theta must be two numbers"),
        ({"vary": {"theta": (2, 1)}}, "the smaller one first"),
        ({"vary": ["theta"]}, "ranges by keyword"),
        ({"time_limit": None, "environment": "gymnasium_worlds:line"}, "give a time_limit"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    given = {"environment": "gymnasium_worlds:line", "vary": {"theta": (1, 2)}, "time_limit": 9}
    with pytest.raises(FedrlError, match=message):
        # What it looks like is found out when it is first needed.
        assert fedrl.families.gymnasium(**given | arguments).observation_size


def test_an_environment_that_breaks_in_a_training_is_named(tmp_path):
    with pytest.raises(FedrlError) as caught:
        train(experiment(world("Bursts")), out=tmp_path, progress=False)
    said = str(caught.value)
    assert "step of gymnasium_worlds:Bursts with {'theta': " in said
    assert "raised ValueError: the tank has burst; gymnasium_worlds.py, line " in said


@pytest.mark.parametrize(("name", "shape"), [("Grows", r"\(3,\)"), ("Late", r"\(2, 1\)")])
def test_a_shape_that_changes_in_a_training_is_named(tmp_path, name, shape):
    said = rf"^gymnasium_worlds:{name} with .* gave an observation of shape {shape}, .* sees \(2,\)"
    with pytest.raises(FedrlError, match=said):
        train(experiment(world(name)), out=tmp_path, progress=False)


@pytest.mark.parametrize(
    ("environment", "vary", "advice"),
    [
        ("NoSuch-v9", "theta", "give the id of a registered one"),
        ("no_such_module:make", "theta", "Python must find the module: run from its folder"),
        ("no_such_module:Id-v0", "theta", "Python must find the module: run from its folder"),
        ("gymnasium_worlds:no_such", "theta", "module:function must name a function"),
        ("gymnasium_worlds:LOG", "theta", "module:function must name a function"),
        ("gymnasium_worlds:line", "gravity", "family.vary must name keywords that it has"),
        ("MountainCar-v0", "gravity", "family.vary must name keywords that it has"),
        ("gymnasium_worlds:below_three", "theta", "it must take every value .* both ends"),
    ],
)
def test_the_advice_about_an_environment_that_cannot_be_made_fits_the_cause(
    environment, vary, advice
):
    family = fedrl.families.gymnasium(environment, vary={vary: (1, 3)}, time_limit=9)
    with pytest.raises(FedrlError, match=advice) as caught:
        family.check()
    others = ("registered one", "must find the module", "must name", "both ends")
    assert sum(other in str(caught.value) for other in others) == 1


@pytest.mark.parametrize("name", ["line", "steered"])
def test_policies_act_in_the_environments_own_space(tmp_path, name):
    family = world(name)
    learner = DDPG(hidden=(8,), action_layer=0, batch=4, replay=64, learning_starts=8)
    changes = {} if name == "line" else {"learner": learner}
    run = train(experiment(family, updates=20, **changes), out=tmp_path, progress=False)
    env = gymnasium_worlds.__dict__[name]()
    many = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32) * 20
    policy = run.policy()
    assert all(env.action_space.contains(policy(one)) for one in many)
    np.testing.assert_allclose(policy(many), [policy(one) for one in many], atol=1e-5)
    # What the engine plays is what the policy says.
    run.evaluate([1.5], episodes=1)
    (taken,) = [env for envs in hall(family)._free.values() for env in envs if env.theta == 1.5]
    seen = taken.reset(seed=3)[0]
    assert taken.action_space.contains(policy(seen))
    with pytest.raises(FedrlError, match="an observation of gymnasium has 2 numbers, got"):
        policy(np.zeros(3))


def test_a_time_limit_of_the_environment_is_taken_over():
    family = GymnasiumFamily(environment="MountainCar-v0", vary=(("goal_velocity", 0.0, 0.01),))
    assert family.time_limit == 200
    assert [varied.name for varied in family.varied] == ["goal_velocity"]


def test_an_episode_is_shown_in_the_environments_own_pictures(tmp_path, capsys):
    run = train(experiment(world("Drawn"), updates=20), out=tmp_path, progress=False)
    capsys.readouterr()
    assert main(["show", str(run.path), "--theta", "1.5"]) == 0
    path = run.path / "figures" / "episode-1.5-seed0.gif"
    # Each of five steps is worth theta.
    assert capsys.readouterr().out == f"5 steps, return 7.5: {path}\n"
    with Image.open(path) as gif:
        assert (gif.size, gif.n_frames) == ((30, 20), 6)
        shown = []
        for frame in range(6):
            gif.seek(frame)
            shown.append(gif.convert("RGB").getpixel((3, 3))[0])
    assert shown == [0, 50, 100, 150, 200, 250]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("cut", "unexpected keyword argument 'render_mode'"),
        ("DrawsNothing", "render\\(\\) returned NoneType"),
    ],
)
def test_an_environment_without_pictures_is_refused_and_says_why(tmp_path, capsys, name, why):
    run = train(experiment(world(name), updates=20), out=tmp_path, progress=False)
    assert main(["show", str(run.path), "--theta", "1.5"]) == 2
    said = capsys.readouterr().err
    assert re.search(f"gymnasium_worlds:{name} cannot be shown.*rgb_array.*{why}", said)
    assert not (run.path / "figures").exists()


class Listens(Silence):
    def __init__(self):
        self.warnings = []

    def warn(self, text):
        self.warnings.append(text)


def test_observations_far_outside_of_their_space_and_huge_rewards_are_warned_of_once(tmp_path):
    settings = {"updates": 40, "evaluation": Evaluation(every=20, episodes=1), "learner": LEARNER}
    for kind, said in (
        ("Far", r"number 0 of .* is -1e\+09, far outside of its space \(from -1e\+06 to 1e\+06\)"),
        ("Huge", r"as large as \d\.\de\+3\d, and squares of such numbers do not fit into 32 bits"),
    ):
        (directory,) = begin_runs([experiment(world(kind), **settings)], tmp_path)
        heard = Listens()
        # The networks' first outputs overflow, or not: what matters here is what is said before.
        with suppress(FedrlError):
            carry_out(directory, heard)
        (words,) = [words for words in heard.warnings if "not a finite number" not in words]
        assert re.search(said, words), words


def test_an_agent_that_has_diverged_does_not_act_and_is_blamed_itself():
    learner = DDPG(hidden=(8,), batch=4, replay=64, learning_starts=8, action_layer=0)
    engine = LocalEngine(experiment(world("steered"), learner=learner, E=inf))
    begun = begin(engine, 0)
    spoilt = jax.tree.map(lambda leaf: leaf.at[1].set(jnp.nan), begun.agents.learned.params)
    agents = begun.agents._replace(learned=begun.agents.learned._replace(params=spoilt))
    after = jax.jit(lambda: go_on(engine, begun._replace(agents=agents), 0, 1, 5))()
    # An environment that got the action would have said so.
    engine.experiment.family.raise_trouble()
    assert np.asarray(after.agents.seen.bad_update).tolist() == [NEVER, 1]
    assert np.asarray(after.agents.seen.bad_reward).tolist() == [NEVER, NEVER]
