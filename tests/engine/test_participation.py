"""Rounds in which only some of the agents take part."""

from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise
from math import inf

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.extend.core import jaxprs_in_params

import fedrl
from fedrl import FedrlError
from fedrl.cli.main import main
from fedrl.engine.local_engine import LocalEngine
from fedrl.engine.state import chosen, server_keys
from fedrl.experiment.presets import preset
from fedrl.experiment.settings import Survives
from fedrl.learners.personalisation import Personal
from fedrl.learners.replay import Memory
from fedrl.runs import driver
from fedrl.runs.launch import begin as made
from fedrl.strategies.aggregators import Mean
from fedrl.training import resume
from tiny import LEARNER, TINY, Died, DiesAfter, begin, go_on, results

pytestmark = pytest.mark.usefixtures("kept", "unoptimised")

WEIGHTS = (1.0, 2.0, 4.0, 8.0, 16.0)
SOME = replace(
    TINY,
    name="some",
    agents=5,
    participation=0.4,
    learner=replace(LEARNER, target_every=4, personal=Personal(embedding=2, normalisation=True)),
    aggregator=Mean(WEIGHTS),
)
ENGINE = LocalEngine(SOME)
E = 6


@pytest.fixture(scope="module")
def advance(kept, unoptimised):
    """Rounds, each with a communication or not."""

    @partial(jax.jit, static_argnums=0)
    def program(communicates, federation, rounds, E):
        return go_on(ENGINE, federation, jnp.int32(0), rounds, E, communicates=communicates)

    def advance(federation, rounds, E, communicates=True):
        return jax.device_get(program(communicates, federation, np.int32(rounds), np.int32(E)))

    return advance


@pytest.fixture(scope="module")
def rounds(advance):
    """(before, after local work, after the communication) of ten rounds."""
    federation = jax.device_get(jax.jit(lambda: begin(ENGINE, jnp.int32(0)))())
    seen = []
    for _ in range(10):
        worked = advance(federation, 1, E, communicates=False)
        after = advance(federation, 1, E)
        seen.append((federation, worked, after))
        federation = after
    return seen


def of_agent(federation, agent, what=lambda federation: federation[:3]):
    return [leaf[agent].tobytes() for leaf in jax.tree.leaves(what(federation))]


def workers(before, after):
    """Who has learnt in between."""
    return set(np.flatnonzero(after.clock.updates != before.clock.updates).tolist())


def but_for_what_is_shared(federation):
    learned = federation.agents.learned
    _, private = ENGINE.experiment.learner.split(learned.params)
    agents = federation.agents._replace(learned=learned._replace(params=private))
    return agents, federation.rows, federation.clock


def shared(federation):
    return ENGINE.experiment.learner.split(federation.agents.learned.params)[0]


def test_two_of_five_work_in_a_round_and_of_the_others_nothing_changes(rounds):
    assert ENGINE.experiment.participants == 2
    for before, worked, after in rounds:
        who = workers(before, after)
        assert len(who) == 2
        for agent in range(5):
            done = after.clock.updates[agent] - before.clock.updates[agent]
            assert done == (E if agent in who else 0)
            if agent not in who:
                # Memory, world, counters, optimiser, target, embedding, statistics, bit for bit.
                assert of_agent(worked, agent) == of_agent(before, agent)
                old = of_agent(before, agent, but_for_what_is_shared)
                assert of_agent(after, agent, but_for_what_is_shared) == old
            else:
                changed = zip(
                    of_agent(before, agent, but_for_what_is_shared),
                    of_agent(after, agent, but_for_what_is_shared),
                    strict=True,
                )
                assert sum(a != b for a, b in changed) > 10


def test_everybody_gets_the_model_of_those_who_took_part(rounds):
    for before, worked, after in rounds:
        who = sorted(workers(before, after))
        weights = np.array(WEIGHTS)[who]
        for own, model, received in zip(
            *map(jax.tree.leaves, (shared(worked), after.server.sent.model, shared(after))),
            strict=True,
        ):
            expected = np.tensordot(weights / weights.sum(), own[who].astype(np.float64), 1)
            np.testing.assert_allclose(model, expected, rtol=1e-5, atol=1e-6)
            assert all(received[agent].tobytes() == model.tobytes() for agent in range(5))
        assert after.server.rounds == before.server.rounds + 1
        assert worked.server.rounds == before.server.rounds


def test_a_round_in_two_stretches_is_one_of_the_same_agents(rounds, advance):
    for before, _, after in rounds[:3]:
        half = advance(before, 1, E // 2, communicates=False)
        whole = advance(half, 1, E - E // 2)
        assert all(
            a.tobytes() == b.tobytes()
            for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(after), strict=True)
        )


def test_many_rounds_at_once_are_those_rounds_one_by_one(rounds, advance):
    at_once = advance(rounds[0][0], 10, E)
    assert all(
        a.tobytes() == b.tobytes()
        for a, b in zip(jax.tree.leaves(at_once), jax.tree.leaves(rounds[-1][2]), strict=True)
    )


def choices(agents, participants, rounds, seed=0, replicate=0):
    """Who takes part, (rounds, participants), as engines draw it."""
    root = server_keys(seed, jnp.int32(replicate)).choosing
    numbers = jnp.arange(rounds)
    return np.asarray(
        jax.vmap(lambda r: chosen(jax.random.fold_in(root, r), agents, participants))(numbers)
    )


def test_the_engine_draws_as_is_said_here(rounds):
    drawn = choices(5, 2, 10)
    for row, (before, _, after) in zip(drawn, rounds, strict=True):
        assert set(row.tolist()) == workers(before, after)


@pytest.mark.parametrize(("agents", "participants"), [(5, 2), (5, 4), (10, 1), (7, 3)])
def test_every_agent_and_every_group_is_chosen_equally_often(agents, participants):
    rounds = 4000
    drawn = choices(agents, participants, rounds)
    assert (np.diff(drawn, axis=1) > 0).all()  # ascending, nobody twice
    assert drawn.min() == 0
    assert drawn.max() == agents - 1
    # Of all groups each has the same probability: Pearson's statistic and its distribution.
    groups = list(combinations(range(agents), participants))
    found = dict.fromkeys(groups, 0)
    for row in drawn:
        found[tuple(row.tolist())] += 1
    statistic, _ = scipy.stats.chisquare(list(found.values()))
    assert statistic < scipy.stats.chi2.ppf(0.9999, len(groups) - 1)
    # Each agent in k/n of the rounds, to five deviations.
    share = participants / agents
    counts = np.bincount(drawn.ravel(), minlength=agents)
    deviation = np.sqrt(rounds * share * (1 - share))
    assert np.abs(counts - rounds * share).max() < 5 * deviation
    # And one round says nothing about the next.
    both = np.mean([len(set(a) & set(b)) for a, b in pairwise(drawn)])
    assert both == pytest.approx(participants * share, abs=0.1)


def test_seeds_and_replicates_choose_independently():
    one = choices(5, 2, 400)
    for other in (choices(5, 2, 400, seed=1), choices(5, 2, 400, replicate=1)):
        same = np.mean((one == other).all(1))
        assert same == pytest.approx(1 / 10, abs=0.06)


def traced(engine):
    """A training's program, and the federation that it takes."""
    federation = jax.eval_shape(lambda: begin(engine, jnp.int32(0)))

    def program(federation, rounds, E):
        return go_on(engine, federation, jnp.int32(0), rounds, E)

    return jax.make_jaxpr(program)(federation, jnp.int32(1), jnp.int32(1)), federation


def primitives(engine):
    """Names of all operations of a training's program, and the federation that it takes."""
    closed, federation = traced(engine)
    found = set()

    def walk(jaxpr):
        for equation in jaxpr.eqns:
            found.add(equation.primitive.name)
            for inner in jaxprs_in_params(equation.params):
                walk(inner)

    walk(closed.jaxpr)
    return found, federation


def test_if_all_take_part_nobody_is_chosen_and_all_have_one_clock():
    everybody, federation = primitives(LocalEngine(replace(SOME, participation=1.0)))
    some, partly = primitives(ENGINE)
    assert "sort" in some
    assert "sort" not in everybody
    assert "cond" in everybody - some  # with one clock, copying a target is a real branch
    assert federation.clock.updates.shape == ()
    assert partly.clock.updates.shape == (5,)


def test_a_participation_that_is_rounded_to_all_is_everybody():
    everybody, _ = traced(LocalEngine(replace(SOME, participation=1.0)))
    for participation in (0.95, 0.91):
        experiment = replace(SOME, participation=participation)
        assert experiment.participants == 5
        assert experiment.lockstep
        assert str(traced(LocalEngine(experiment))[0]) == str(everybody)


@pytest.mark.parametrize(
    ("agents", "participation", "expected"),
    [(5, 0.4, 2), (5, 0.01, 1), (10, 0.25, 2), (10, 0.26, 3), (3, 0.5, 2), (1, 0.3, 1), (4, 1, 4)],
)
def test_how_many_take_part(agents, participation, expected):
    experiment = replace(TINY, agents=agents, participation=participation)
    assert experiment.participants == expected


@pytest.fixture(scope="module")
def run(kept, hasty, tmp_path_factory):
    experiment = replace(SOME, updates=35, seeds=1)
    return fedrl.train(experiment, out=tmp_path_factory.mktemp("runs"), progress=False)


@pytest.mark.parametrize("memory", [Memory(), Memory("float16")])
def test_a_run_that_was_interrupted_ends_as_one_that_was_not(run, memory, tmp_path, monkeypatch):
    if memory != Memory():
        learner = replace(SOME.learner, memory=memory)
        other = replace(run.experiment, learner=learner)
        run = fedrl.train(other, out=tmp_path / "whole", progress=False)
    monkeypatch.setattr(driver._Pause, "over", lambda self: True)
    (directory,) = made([run.experiment], tmp_path)
    for legs in (2, 1):
        with pytest.raises(Died):
            driver.carry_out(directory, DiesAfter(legs))
    assert not directory.finished
    resumed = resume(directory.path, progress=False)
    assert results(resumed.path) == results(run.path)


def test_metrics_tell_how_much_each_agent_has_learnt(run):
    updates = run.metrics().query("metric == 'updates'")
    # Evaluated at the beginning, after two rounds, one more, and one that is shorter.
    table = updates.pivot(index="updates", columns="environment", values="value")
    assert table.index.tolist() == [0, 20, 30, 35]
    assert table.sum(axis=1).tolist() == [0, 2 * 20, 2 * 10, 2 * 5]
    drawn = choices(5, 2, 4)
    legs = ((20, (10, 10), drawn[:2]), (30, (10,), drawn[2:3]), (35, (5,), drawn[3:]))
    for at, lengths, rows in legs:
        expected = np.zeros(5)
        for length, row in zip(lengths, rows, strict=True):
            expected[row] += length
        assert table.loc[at].tolist() == expected.tolist()


@pytest.mark.parametrize("participation", [0, -0.5, 1.01, float("nan"), "half", None, True])
def test_a_participation_is_a_share(participation):
    with pytest.raises(FedrlError, match=r"participation must be a number in \(0, 1\]"):
        replace(TINY, participation=participation)


@pytest.mark.parametrize(
    "changed", [{"E": inf}, {"survives": Survives(replay=False)}], ids=["E = inf", "no memory"]
)
def test_who_waits_must_be_able_to_go_on(changed):
    with pytest.raises(FedrlError) as told:
        replace(TINY, agents=5, participation=0.4, **changed)
    assert "participation = 0.4 needs agents that communicate" in str(told.value)
    assert "survives.replay = true" in str(told.value)
    # If all take part, nobody waits.
    replace(TINY, agents=5, participation=1.0, **changed)


def test_without_communication_everybody_learns():
    alone = SOME.without_communication()
    assert alone.participation == 1
    assert inf == alone.E
    assert alone.lockstep


def test_the_command_takes_a_participation(tmp_path, capsys):
    tiny = [
        *("--agents", "5", "--E", "5", "--updates", "10", "--seeds", "1", "--held-out", "1"),
        *("--learner.hidden", "8", "--learner.batch", "4", "--learner.replay", "64"),
        *("--learner.learning-starts", "8", "--family.time-limit", "20"),
        *("--evaluation.every", "10", "--evaluation.episodes", "1", "--out", str(tmp_path)),
    ]
    arguments = ["run", "cartpoles-dqnavg", "--participation", "0.4", *tiny]
    assert main([*arguments, "--dry-run"]) == 0
    assert "participation = 0.4" in capsys.readouterr().out
    assert main(arguments) == 0
    (path,) = tmp_path.iterdir()
    found = fedrl.Run(path)
    assert found.finished
    assert found.experiment.participants == 2
    learnt = found.metrics().query("metric == 'updates'").groupby("updates").value.sum()
    assert learnt.to_dict() == {0: 0, 10: 20}
    assert main(["run", "cartpoles-dqnavg", "--participation", "1.5", *tiny]) != 0
    assert "participation must be a number in (0, 1], got 1.5" in capsys.readouterr().err
    assert preset("cartpoles-dqnavg").participation == 1
