"""Settings: written and read back, compared by digest, and refused when they are none."""

from dataclasses import fields, is_dataclass, replace
from functools import partial
from math import inf, isinf, nan

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrl import Experiment, FedrlError
from fedrl.engine import plan as plan_module
from fedrl.engine.local_engine import LocalEngine
from fedrl.engine.plan import plan, stretch
from fedrl.experiment.presets import PRESETS, personalised, preset
from fedrl.experiment.settings import Evaluation, Survives, from_toml
from fedrl.experiment.timing import Timing
from fedrl.experiment.toml import to_toml
from fedrl.families import Acrobots, CartPoles, HalfCheetahs, Hoppers
from fedrl.learners.ddpg import DDPG
from fedrl.learners.dqn import DQN
from fedrl.learners.personalisation import Personal
from fedrl.learners.replay import Memory
from fedrl.strategies.aggregators import Mean

# Strategies with settings of their own: tests/strategies/test_strategy_settings.py.
PARTS = {
    "aggregator": Mean,
    "timing": Timing,
    "survives": Survives,
    "evaluation": Evaluation,
}
OF_LEARNER = {"personal": Personal, "memory": Memory}
FAMILIES = {
    "cartpoles": (CartPoles, DQN),
    "acrobots": (Acrobots, DQN),
    "halfcheetahs": (HalfCheetahs, DDPG),
    "hoppers": (Hoppers, DDPG),
}


def build(changes, family="cartpoles"):
    """An experiment from settings named as in a file: `learner.lr` and so on."""
    kinds = dict(zip(("family", "learner"), FAMILIES[family], strict=True)) | PARTS
    tables = {"": {"E": 10, "updates": 1000}} | {n: {} for n in kinds}
    tables |= {f"learner.{name}": {} for name in OF_LEARNER}
    for path, value in changes.items():
        table, _, name = path.rpartition(".")
        tables[table][name] = value
    inner = {name: kind(**tables[f"learner.{name}"]) for name, kind in OF_LEARNER.items()}
    tables["learner"] = inner | tables["learner"]
    parts = {name: kind(**tables[name]) for name, kind in kinds.items()}
    return Experiment(**({"name": "any"} | parts | tables[""]))


def leaves(value, where=""):
    """Names and values of all settings."""
    for field in fields(value):
        inner, path = getattr(value, field.name), f"{where}{field.name}"
        if is_dataclass(inner):
            yield from leaves(inner, f"{path}.")
        else:
            yield path, inner


counts = st.integers(1, 10**6)
sizes = st.integers(1, 2**16)
probabilities = st.floats(0, 1)
pairs = st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)).map(lambda pair: tuple(sorted(pair)))
VALID = {
    "name": st.text("abcXYZ089-_.é", min_size=1, max_size=20),
    "learner.gamma": st.floats(0, 1, exclude_max=True),
    "learner.batch": sizes,
    "learner.replay": st.integers(1, 2**23),
    "learner.memory.dtype": st.sampled_from(["float32", "float16", "bfloat16"]),
    "learner.learning_starts": counts,
    "learner.update_every": st.integers(1, 1000),
    "learner.trains": st.sampled_from(["everything", "shared", "nothing"]),
    "learner.personal.embedding": st.integers(0, 1024),
    "learner.personal.embedding_range": st.floats(0, 1e30),
    "learner.personal.embedding_lr": st.none() | st.floats(1e-30, 1e30),
    "learner.personal.head": st.booleans(),
    "learner.personal.normalisation": st.booleans(),
    "agents": counts,
    # What goes with other settings only: test_participation.py, test_aggregate.py and
    # test_simulated_time.py.
    "participation": st.just(1.0),
    "timing.arrivals": st.just(0),
    "timing.staleness": st.just(0.5),
    "timing.seconds": st.just(()),
    "aggregator.weights": st.just(()),
    "held_out": st.integers(0, 10**6),
    "E": st.one_of(st.just(inf), st.integers(1, 10), st.integers(1, 10).map(float)),
    "unit": st.sampled_from(["updates", "episodes"]),
    "updates": st.integers(10, 1000),
    "timing.spread": st.floats(0, 10),
    "timing.jitter": st.floats(0, 10),
    "survives.replay": st.booleans(),
    "survives.optimizer": st.booleans(),
    "survives.target": st.booleans(),
    "initialisation": st.sampled_from(["shared", "per-agent"]),
    "evaluation.every": counts,
    "evaluation.episodes": counts,
    "evaluation.where": st.just("everywhere"),
    "seeds": counts,
    "seed": st.integers(0, 2**32 - 1),
    "family.time_limit": st.integers(1, 1000),
}
OF_DQN = {
    "learner.hidden": st.lists(sizes, min_size=1, max_size=3).map(tuple),
    "learner.lr": st.floats(1e-30, 1e30),
    "learner.target_every": counts,
    "learner.loss": st.sampled_from(["mse", "huber"]),
    "learner.double": st.booleans(),
    "learner.exploration": st.sampled_from(["exponential", "linear"]),
    "learner.epsilon_start": st.floats(0.5, 1),
    "learner.epsilon_end": st.floats(0, 0.5),
    "learner.epsilon_decay": probabilities,
    "learner.epsilon_updates": counts,
}
step_sizes = st.floats(1e-30, 1e30)
amounts = st.floats(0, 1e30)
OF_DDPG = {
    "learner.hidden": st.lists(sizes, min_size=2, max_size=3).map(tuple),
    "learner.action_layer": st.sampled_from([0, 1]),
    "learner.actor_lr": step_sizes,
    "learner.critic_lr": step_sizes,
    "learner.tau": st.floats(0, 1, exclude_min=True),
    "learner.warmup": st.sampled_from(["uniform", "policy"]),
    "learner.exploration": st.sampled_from(["gaussian", "ou"]),
    "learner.sigma": amounts,
    "learner.ou_theta": probabilities,
    "learner.twin": st.booleans(),
    "learner.actor_every": counts,
    "learner.smoothing": amounts,
    "learner.smoothing_clip": amounts,
}
OF_ROBOT = OF_DDPG | {
    "family.simulator": st.sampled_from(["mujoco", "mjx"]),
    "family.mjx_iterations": st.integers(1, 100),
    "family.mjx_line_search": st.integers(1, 100),
}


def within(low, high):
    return st.tuples(*[st.floats(low, high)] * 2).map(lambda pair: tuple(sorted(pair)))


OF_FAMILY = {
    "cartpoles": OF_DQN | {"family.length": pairs, "family.wiring": within(-1, 1)},
    "acrobots": OF_DQN | {"family.mass": pairs, "family.length": st.none() | pairs},
    "halfcheetahs": OF_ROBOT
    | {
        "family.thighs": st.sampled_from(["independent", "together"]),
        "family.back_thigh": within(0.01, 0.5),
        "family.front_thigh": within(0.01, 0.5),
    },
    "hoppers": OF_ROBOT | {"family.leg_radius": within(0.005, 0.2)},
}


def valid_settings(family):
    return st.fixed_dictionaries({}, optional=VALID | OF_FAMILY[family])


@pytest.mark.parametrize("family", FAMILIES)
def test_every_setting_is_tried_here(family):
    assert {path for path, _ in leaves(build({}, family))} == set(VALID | OF_FAMILY[family])


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_read_back_as_it_was_written(name):
    assert from_toml(to_toml(preset(name))) == preset(name)


@settings(max_examples=200)
@given(data=st.data(), family=st.sampled_from(sorted(FAMILIES)))
def test_any_experiment_is_read_back_as_it_was_written(data, family):
    experiment = build(data.draw(valid_settings(family)), family)
    again = from_toml(to_toml(experiment))
    assert again == experiment
    assert again.digest == experiment.digest


def test_a_preset_that_does_not_exist_is_refused_with_the_nearest():
    with pytest.raises(FedrlError, match="did you mean 'cartpoles-dqnavg'"):
        preset("cartpole-dqnavg")


MINIMAL = 'name = "any"\nfamily.kind = "cartpoles"\n'
DQN_KIND = 'learner.kind = "dqn"\n'


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("agnets = 3", "unknown setting agnets 'agnets': did you mean 'agents'"),
        (
            DQN_KIND + "learner.gama = 0.9",
            r"unknown setting learner\.gama 'gama': did you mean 'gamma'",
        ),
        ("survives.optimiser = true", "did you mean 'optimizer'"),
        ("family.lenght = [1, 2]", "did you mean 'length'"),
        ('learner.kind = "dqm"', r"unknown learner 'dqm': did you mean 'dqn'"),
        (DQN_KIND + 'learner.loss = "hubber"', "did you mean 'huber'"),
        (DQN_KIND + "learner.loss = 1", r"unknown learner\.loss 1"),
        ('unit = "episode"', "did you mean 'episodes'"),
        ("agents = 2.0", "agents must be a whole number, got 2.0"),
        ('agents = "2"', "agents must be a whole number, got '2'"),
        ("agents = true", "agents must be a whole number, got True"),
        ("agents = 0", "agents must be an integer of at least 1"),
        (DQN_KIND + "learner.lr = true", r"learner\.lr must be a number, got True"),
        (DQN_KIND + "learner.double = 1", r"learner\.double must be true or false, got 1"),
        (DQN_KIND + "learner.hidden = 8", r"learner\.hidden must be a list, got 8"),
        (DQN_KIND + "learner.hidden = [8.0]", r"learner\.hidden must be a whole number, got 8\.0"),
        ("family.length = [1]", r"family\.length must be a list of 2, got \[1\]"),
        ("learner = 3", r"learner\.kind is missing: choose from 'ddpg', 'dqn', 'ppo'"),
        ("learner.gamma = 0.9", r"learner\.kind is missing: choose from 'ddpg', 'dqn', 'ppo'"),
        ('learner.kind = "ddpg"', "cartpoles has discrete actions, which ddpg does not learn"),
        ("E = nan", "E must be a positive integer or inf, got nan"),
        ("E = 2.5", "E must be a positive integer or inf, got 2.5"),
        ("seed = -1", "seed must be an integer of at least 0"),
        ("seed = 4294967296", "seed must be an integer of at least 0 and at most 4294967295"),
        ("= 3", "the settings is not TOML"),
    ],
)
def test_a_file_with_a_mistake_is_refused_with_its_place(lines, message):
    with pytest.raises(FedrlError, match=message):
        from_toml(MINIMAL + lines + "\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "any"', "family is missing"),
        ('family.kind = "cartpoles"', "name is missing"),
        ('name = "any"\nfamily = 3', r"family\.kind is missing"),
        ('name = "any"\nfamily.time_limit = 3', r"family\.kind is missing"),
        ('name = "any"\nfamily.kind = "cartpole"', "did you mean 'cartpoles'"),
        ('name = "../any"\nfamily.kind = "cartpoles"', "name must consist of letters"),
        ('name = "any"\nfamily.kind = ["cartpoles"]', r"family\.kind"),
    ],
)
def test_a_file_without_name_or_family_is_refused(text, message):
    with pytest.raises(FedrlError, match=message):
        from_toml(text)


def test_what_a_file_does_not_say_has_its_default():
    assert from_toml(MINIMAL) == Experiment(name="any", family=CartPoles())
    assert inf == from_toml(MINIMAL + "E = inf").E
    assert from_toml(MINIMAL + DQN_KIND + "learner.lr = 1").learner.lr == 1.0


OTHER = {
    "name": "other",
    "learner.hidden": (64, 64),
    "learner.lr": 2e-3,
    "learner.gamma": 0.5,
    "learner.batch": 17,
    "learner.replay": 17,
    "learner.memory.dtype": "float16",
    "learner.learning_starts": 17,
    "learner.update_every": 2,
    "learner.target_every": 17,
    "learner.loss": "huber",
    "learner.double": True,
    "learner.exploration": "linear",
    "learner.epsilon_start": 0.9,
    "learner.epsilon_end": 0.01,
    "learner.epsilon_decay": 0.5,
    "learner.epsilon_updates": 17,
    "learner.trains": "shared",
    "learner.personal.embedding": 17,
    "learner.personal.embedding_range": 17.0,
    "learner.personal.embedding_lr": 0.17,
    "learner.personal.head": True,
    "learner.personal.normalisation": True,
    "agents": 17,
    "participation": 0.5,
    "aggregator.weights": (1.0, 2.0, 3.0, 4.0, 5.0),
    "held_out": 17,
    "E": inf,
    "unit": "episodes",
    "updates": 1700,
    "timing.arrivals": 2,
    "timing.staleness": 0.7,
    "timing.seconds": (1.0, 2.0, 3.0, 4.0, 5.0),
    "timing.spread": 0.17,
    "timing.jitter": 0.17,
    "survives.replay": False,
    "survives.optimizer": False,
    "survives.target": False,
    "initialisation": "per-agent",
    "evaluation.every": 17,
    "evaluation.episodes": 17,
    "evaluation.where": "own",
    "seeds": 17,
    "seed": 17,
    "family.time_limit": 17,
    "family.length": (0.3, 0.4),
    "family.wiring": (-1.0, 1.0),
    "family.mass": (0.3, 0.4),
}
OTHER_OF_ROBOTS = OTHER | {
    "learner.action_layer": 0,
    "learner.actor_lr": 2e-3,
    "learner.critic_lr": 2e-3,
    "learner.tau": 0.5,
    "learner.warmup": "policy",
    "learner.exploration": "ou",
    "learner.sigma": 0.2,
    "learner.ou_theta": 0.2,
    "learner.twin": True,
    "learner.actor_every": 2,
    "learner.smoothing": 0.2,
    "learner.smoothing_clip": 0.2,
    "family.simulator": "mjx",
    "family.mjx_iterations": 3,
    "family.mjx_line_search": 3,
    "family.thighs": "together",
    "family.back_thigh": (0.11, 0.12),
    "family.front_thigh": (0.11, 0.12),
    "family.leg_radius": (0.035, 0.045),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_digest_changes_with_every_setting(family):
    paths = set(VALID | OF_FAMILY[family])
    other = OTHER if family in ("cartpoles", "acrobots") else OTHER_OF_ROBOTS
    # Only with models of their own can these be evaluated alone, and only late offers be stale.
    needed = {
        "evaluation.where": {"E": inf, "seed": 5},
        "timing.staleness": {"timing.arrivals": 1},
    }
    digests = [build({path: other[path]} | needed.get(path, {}), family).digest for path in paths]
    digests += [build({}, name).digest for name in FAMILIES]
    assert len(set(digests)) == len(paths) + len(FAMILIES)


def test_the_digest_does_not_change_with_the_way_of_writing_a_number():
    assert build({"E": 100}).digest == build({"E": 100.0}).digest
    assert build({"learner.lr": 1}).digest == build({"learner.lr": 1.0}).digest


NUMBERS = (0, 1, 2, 3, -1, 7, 0.5, 1.0, 1e-9, -0.0, 2.5, 1e300, 2**23 + 1, 2**31, 10**12, 10**30)
WILD = st.one_of(
    st.sampled_from((*NUMBERS, inf, -inf, nan, True, False, None, "", "inf", "mse", "7")),
    st.sampled_from([(), (1, 2), [3], b"x", 1j, np.int64(3), np.float32(0.5)]),
    st.integers(-10, 10**10),
    st.floats(),
    st.text(max_size=3),
)
# Often nearly right.
PAIRS = st.tuples(*[st.sampled_from((*NUMBERS, inf, nan)) | st.floats()] * 2)
LISTS = {
    "learner.hidden": st.lists(WILD, max_size=3).map(tuple) | WILD,
    "family.length": PAIRS | WILD,
}


@st.composite
def fuzzed(draw):
    valid = draw(valid_settings("cartpoles"))
    paths = st.sampled_from(sorted(VALID | OF_FAMILY["cartpoles"]))
    wild = {path: draw(LISTS.get(path, WILD)) for path in draw(st.lists(paths, max_size=3))}
    return valid, wild


def consistent(experiment):
    """Whether the legs are the training, and evaluations are where they should be."""
    legs, before, evaluated = list(plan(experiment)), 0, 0
    assert legs[0] == (0, 0, 0, 0, True, True)
    if experiment.learner.trains == "nothing":
        assert all(leg.rounds == 0 and leg.evaluates for leg in legs)
        assert legs[-1].trained == experiment.updates
        return
    every = experiment.evaluation.every
    E = experiment.updates if isinf(experiment.E) else int(experiment.E)
    for leg in legs[1:]:
        assert leg.rounds >= 1
        assert leg.rounds * leg.E <= stretch(experiment)
        assert leg.trained == before + leg.rounds * leg.E
        before = leg.trained
        if experiment.communicates:
            at_the_end = before % E == 0 or before == experiment.updates
            assert leg.communicates == at_the_end
            assert leg.communications == (-(-before // E) if at_the_end else before // E)
        if leg.evaluates:
            goal = min((evaluated // every + 1) * every, experiment.updates)
            # At the first communication from the multiple on, or the last whole round.
            last_whole = experiment.updates // E * E
            assert before >= min(goal, last_whole)
            assert before - goal < E
            evaluated = before
    assert legs[-1].evaluates
    assert sum(leg.rounds * leg.E for leg in legs) == before == experiment.updates
    communications = 0 if isinf(experiment.E) else -(-experiment.updates // int(experiment.E))
    assert legs[-1].communications == communications == experiment.rounds


@settings(max_examples=3000)
@given(fuzzed())
def test_settings_are_refused_by_name_or_can_be_planned(drawn):
    valid, wild = drawn
    experiment, error = None, ""
    try:
        experiment = build(valid | wild)
    except FedrlError as refused:
        error = str(refused)
    if experiment is None:
        # Settings that exclude each other: the error may name another than the last one changed.
        blamed = {path.rpartition(".")[2] for path in wild} | {"updates", "E ="}
        assert wild
        assert any(name in error for name in blamed)
        return
    if experiment.updates <= 200 * min(experiment.evaluation.every, experiment.updates):
        consistent(experiment)


@settings(max_examples=500)
@given(
    updates=st.integers(1, 300),
    E=st.one_of(st.integers(1, 300), st.just(inf)),
    every=st.integers(1, 400),
)
def test_a_plan_is_the_whole_training(updates, E, every):
    if isinf(E) or updates >= E:
        experiment = build({"updates": updates, "E": E, "evaluation.every": every})
        consistent(experiment)
        for units in (1, 7, 100):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(plan_module, "STRETCH", units * 1e10 / stretch(experiment))
                patch.setattr(plan_module, "SHORTEST", 1)
                consistent(experiment)


small = st.integers(1, 4)
LARGEST = st.sampled_from([1, 3, 2**31 - 1])
SMALL = VALID | {
    "learner.batch": small,
    "learner.replay": st.sampled_from([1, 5, 2**23]),
    "learner.update_every": small,
    "learner.personal.embedding": st.integers(0, 2),
    "agents": small,
    "held_out": st.integers(0, 2),
    "evaluation.every": LARGEST,
    "evaluation.episodes": small,
    "seed": st.sampled_from([0, 2**31, 2**32 - 1]),
}


def traced(experiment):
    number = jax.ShapeDtypeStruct((), np.int32)
    engine = LocalEngine(experiment)
    theta = jax.eval_shape(engine.all_thetas, number)
    agents = np.arange(experiment.agents)
    training = jax.ShapeDtypeStruct((experiment.agents, *theta.shape[1:]), theta.dtype)
    federation = jax.eval_shape(engine.init, number, training, agents)
    for communicates in (True, False):
        train = partial(engine.train, communicates=communicates)
        after = jax.eval_shape(train, federation, number, training, agents, number, number)
        assert after == federation
    params = federation.agents.learned.params
    record = jax.eval_shape(engine.evaluate, params, federation.server, number, theta, number)
    return record


SMALL_OF_FAMILY = {
    "learner.hidden": st.lists(small, min_size=2, max_size=2).map(tuple),
    "learner.target_every": LARGEST,
    "learner.epsilon_updates": LARGEST,
    "learner.actor_every": LARGEST,
    "family.simulator": st.just("mujoco"),  # MJX takes seconds to trace
}


@settings(max_examples=25)
@given(data=st.data(), family=st.sampled_from(sorted(FAMILIES)))
def test_settings_that_are_accepted_can_be_traced(data, family):
    known = SMALL | OF_FAMILY[family]
    strategies = known | {n: s for n, s in SMALL_OF_FAMILY.items() if n in known}
    drawn = data.draw(st.fixed_dictionaries(strategies))
    experiment = build(drawn, family)
    models = 1 + (experiment.agents if isinf(experiment.E) else 0)
    shape = (models, experiment.agents + experiment.held_out)
    assert [values.shape for values in traced(experiment).returns] == [shape, shape]


OF_THE_WRONG_KIND = [
    ("name", 5),
    ("learner", None),
    ("family", None),
    ("survives", None),
    ("evaluation", None),
    ("learner.hidden", 8),
    ("learner.lr", 10**400),
    ("learner.lr", 1e39),
    ("E", 10**400),
    ("learner.double", "no"),
    ("survives.replay", "no"),
    ("family.length", 1.0),
    ("family.length", (1.0, 2.0, 3.0)),
    ("family.length", ("1", "2")),
    ("family.time_limit", 2**31),
    ("learner.target_every", 2**31),
]


@pytest.mark.parametrize(("path", "value"), OF_THE_WRONG_KIND)
def test_a_value_of_the_wrong_kind_is_refused_by_name(path, value):
    with pytest.raises(FedrlError, match=path.rpartition(".")[2]):
        build({path: value})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("learner.epsilon_updates", 2**30),
        ("evaluation.every", 2**40),
        ("family.length", (1, 2)),
        ("learner.lr", np.float64(0.5)),
        ("learner.hidden", (np.int64(3),)),
        ("learner.hidden", [4]),
        ("agents", np.int64(3)),
        ("updates", np.array(20_000)),
        ("learner.gamma", np.float32(0.5)),
        ("family.length", [0.5, 1.0]),
    ],
)
def test_a_value_that_is_accepted_can_be_written_and_traced(path, value):
    experiment = build({"learner.batch": 2, "agents": 2} | {path: value})
    traced(experiment)
    assert from_toml(to_toml(experiment)) == experiment


@pytest.mark.parametrize(
    ("name", "base", "expected"),
    [
        ("cartpoles-dqnavg", "cartpoles-dqnavg", "cartpoles-perdqnavg"),
        ("cartpoles-dqnavg-released", "cartpoles-dqnavg", "cartpoles-perdqnavg-released"),
        ("hoppers-ddpgavg", "hoppers-ddpgavg", "hoppers-perddpgavg"),
        ("cartpoles-ppoavg", "cartpoles-ppoavg", "cartpoles-perppoavg"),
        ("two-drones", "cartpoles-dqnavg", "two-drones"),
        ("two-drones-dqnavg", "cartpoles-dqnavg", "two-drones-perdqnavg"),
        ("cartpoles-perdqnavg", "cartpoles-dqnavg", "cartpoles-perdqnavg"),
    ],
)
def test_a_personalised_experiment_is_called_after_the_personalised_algorithm(name, base, expected):
    experiment = personalised(replace(preset(base), name=name))
    assert experiment.name == expected
    assert experiment.learner.personal.embedding == 3  # of 5 agents
