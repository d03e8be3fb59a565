"""What is no finite number stops a run, is told apart from bad results, and is never averaged."""

from dataclasses import dataclass, fields, replace
from math import inf
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import fedrl
from fedrl import FedrlError
from fedrl.cli.main import main
from fedrl.engine.agent import NEVER
from fedrl.engine.divergence import Diverged
from fedrl.engine.evaluation import greedy_returns
from fedrl.engine.local_engine import LocalEngine
from fedrl.engine.mesh import Sharded
from fedrl.engine.plan import plan
from fedrl.engine.programs import drawn_thetas
from fedrl.engine.single_device import Replicates
from fedrl.families import CartPoles
from fedrl.learners.dqn import DQN
from fedrl.progress import Silence
from fedrl.report.arms import arms_of
from fedrl.runs.driver import carry_out
from fedrl.runs.launch import begin as begin_runs
from pages import page_of
from tiny import LEARNER, TINY, begin, go_on, results

pytestmark = pytest.mark.usefixtures("kept", "hasty")
BROKEN_AT = 17


@dataclass(frozen=True)
class MarkedPoles(CartPoles):
    """Rewards are 2 instead of 1 where poles are longer than `longest`."""

    longest: float = 1e9
    name: ClassVar[str] = "marked-poles"

    def step(self, state, action, constants):
        state, reward, terminated = super().step(state, action, constants)
        length = 2 * constants.half_length
        return state, jnp.where(length > self.longest, 2 * reward, reward), terminated


@dataclass(frozen=True)
class LostPoles(MarkedPoles):
    """Rewards are not a number where poles are longer than `longest`."""

    name: ClassVar[str] = "lost-poles"

    def step(self, state, action, constants):
        state, reward, terminated = super().step(state, action, constants)
        return state, jnp.where(reward > 1, jnp.nan, reward), terminated


@dataclass(frozen=True)
class Breaks(DQN):
    """An update of which nothing is a number, once, where rewards are 2."""

    name: ClassVar[str] = "breaks"

    def update(self, learned, batch, draws, updates, correct=None):
        learned, loss = super().update(learned, batch, draws, updates, correct)
        broken = (updates == BROKEN_AT) & (jnp.mean(batch.reward) > 1.5)
        spoil = lambda leaf: jnp.where(broken, jnp.nan, leaf)  # noqa: E731
        params = jax.tree.map(spoil, learned.params)
        return learned._replace(params=params), spoil(loss)


def the_longest():
    """(seed, agent, length) of the longest pole of all, and one that only it exceeds."""
    lengths = np.array([LocalEngine(TINY).thetas(seed)[:, 0] for seed in range(TINY.seeds)])
    seed, agent = np.unravel_index(lengths.argmax(), lengths.shape)
    *_, second, first = np.sort(lengths.ravel())
    return int(seed), int(agent), float(first), float((first + second) / 2)


SEED, AGENT, LENGTH, BETWEEN = the_longest()
SETTINGS = {one.name: getattr(LEARNER, one.name) for one in fields(LEARNER)}
ONE_BREAKS = replace(
    TINY,
    name="one-breaks",
    family=MarkedPoles(time_limit=20, longest=BETWEEN),
    learner=Breaks(**SETTINGS),
    E=inf,
    held_out=0,
)
SENTENCE = (
    rf"the loss or a parameter of agent {AGENT} of seed {SEED} \(.* = {LENGTH:.6g}\) is not a "
    rf"finite number from update {BROKEN_AT} on \(by now 1 of 4 agents, in 1 of 2 seeds\)"
)


class Listens(Silence):
    def __init__(self):
        self.warnings = []

    def warn(self, text):
        self.warnings.append(text)


@pytest.fixture(scope="module")
def stopped(kept, hasty, tmp_path_factory):
    """A run that has stopped, its message, and its metrics as they were then."""
    (directory,) = begin_runs([ONE_BREAKS], tmp_path_factory.mktemp("stopped"))
    with pytest.raises(FedrlError) as error:
        carry_out(directory, Silence())
    return directory, str(error.value), fedrl.Run(directory.path).metrics()


@pytest.fixture(scope="module")
def finished(kept, hasty, tmp_path_factory):
    """The same, to its end at once, and what was said about it."""
    (directory,) = begin_runs([ONE_BREAKS], tmp_path_factory.mktemp("finished"))
    heard = Listens()
    carry_out(directory, heard, on_divergence="continue")
    return fedrl.Run(directory.path), heard.warnings


def test_a_run_stops_where_an_agent_diverges_and_names_it(stopped):
    directory, said, frame = stopped
    assert pd.Series([said]).str.contains(SENTENCE).all(), said
    assert f"fedrl resume {directory.path} --on-divergence continue" in said
    assert not directory.finished
    (event,) = frame[frame["metric"] == "diverged"].to_dict("records")
    assert (event["seed"], event["agent"], event["value"]) == (SEED, str(AGENT), BROKEN_AT)
    assert event["updates"] == 20  # the first evaluation after it
    of_agent = frame[(frame["seed"] == SEED) & (frame["agent"] == str(AGENT))]
    returns = of_agent[of_agent["metric"] == "return"].set_index("updates")["value"]
    assert returns[0].notna().all()
    # Greedy actions look as if they came from a policy even if no value is a number.
    assert returns[20].isna().all()
    assert of_agent[of_agent["metric"] == "loss"]["value"].isna().all()


def test_resuming_says_the_same_again_until_it_is_to_continue(stopped, finished, capsys):
    directory, said, _ = stopped
    assert main(["resume", str(directory.path)]) == 2
    assert capsys.readouterr().err == f"fedrl: {said}\n"
    heard = Listens()
    carry_out(directory, heard, on_divergence="continue")
    run, warnings = finished
    assert heard.warnings == warnings
    assert len(warnings) == 1
    assert pd.Series(warnings).str.contains(SENTENCE).all()
    assert results(directory.path) == results(run.path)


def test_reports_say_how_many_seeds_diverged_and_do_not_average_the_others(finished, capsys):
    run, _ = finished
    average, baseline = arms_of(run)
    for arm in (average, baseline):
        assert arm.shown == f"{arm.label} (1 of 2 seeds diverged)"
        assert arm.updates.tolist() == [0, 20, 40, 60]
        for curve in arm.curves.values():
            assert np.isnan(curve[SEED, 1:]).all()
            assert np.isfinite(np.delete(curve, SEED, 0)).all()
    table = fedrl.compare(run)
    assert (table.to_numpy() == "diverged").all()
    assert list(table.index) == [average.shown, baseline.shown]
    printed = " ".join(capsys.readouterr().out.split())
    assert "There is no mean over the other seeds" in printed
    assert printed.count("(1 of 2 seeds diverged)") >= 2
    shown = page_of([run])
    assert "Diverged means" in shown
    assert '<span class="mean">diverged</span>' in shown
    assert "nan" not in shown.lower().replace("finance", "")
    written = pd.read_csv(run.path / "figures" / "report.csv")
    assert len(written) == 2 * 2 * 2 * 4  # arms, splits, seeds, evaluations
    assert written["return"].isna().sum() == 2 * 2 * 3


def test_a_diverged_model_is_not_used(finished, capsys):
    run, _ = finished
    returns = run.evaluate([0.7], agent=AGENT, episodes=1).undiscounted
    assert np.isnan(returns[SEED]).all()
    assert np.isfinite(returns[1 - SEED]).all()
    assert main(["evaluate", str(run.path), "--theta", "0.7", "--episodes", "1"]) == 0
    assert "1 of 2 seeds diverged" in capsys.readouterr().out
    run.policy(seed=1 - SEED)
    for use in (lambda: run.policy(seed=SEED), lambda: run.adapt([0.7], method="n-update")):
        with pytest.raises(FedrlError, match=f"parameters of seed {SEED} of .* not finite"):
            use()


def test_a_run_that_stops_between_two_evaluations_has_no_value_at_its_end(finished):
    run, _ = finished
    rows = run.metrics()

    class Before:
        path, experiment = run.path, ONE_BREAKS

        @staticmethod
        def metrics():
            event = rows[rows["metric"] == "diverged"].assign(updates=18)
            return pd.concat([rows[rows["updates"] == 0], event])

    for arm in arms_of(Before()):
        assert arm.updates.tolist() == [0, 18]
        assert np.isnan(arm.curves["train"][:, -1]).all()
        assert arm.diverged == 1


def test_an_agent_that_diverges_while_it_explores_is_in_the_metrics(tmp_path):
    lost = replace(
        ONE_BREAKS, name="lost", family=LostPoles(time_limit=20, longest=BETWEEN), learner=LEARNER
    )
    said = rf"agent {AGENT} of seed {SEED} \(.*\) got a reward that is not .* after 0 updates"
    with pytest.raises(FedrlError, match=said):
        fedrl.train(lost, out=tmp_path, progress=False)
    frame = fedrl.Run(tmp_path / lost.directory_name).metrics()
    (event,) = frame[frame["metric"] == "diverged"].to_dict("records")
    found = [event[name] for name in ("seed", "agent", "updates", "value")]
    assert found == [SEED, str(AGENT), 0, 0]


def test_returns_that_are_not_finite_stop_a_run(tmp_path):
    many = replace(TINY, E=inf, held_out=20, name="lost")
    lost = replace(many, family=LostPoles(time_limit=20, longest=LENGTH))
    lengths = [drawn_thetas(lost)[seed, many.agents :, 0] for seed in range(2)]
    seed, place = np.argwhere(np.array(lengths) > LENGTH)[0]
    theta = f"{lengths[seed][place]:.6g}"
    where = rf"held-out environment {place} of seed {seed} \(.* = {theta}\)"
    said = f"after 0 updates, a return in {where}"
    for _ in range(2):
        with pytest.raises(FedrlError, match=said):
            fedrl.train(lost, out=tmp_path, progress=False)


def test_who_diverged_is_the_same_however_agents_are_spread():
    many = replace(ONE_BREAKS, agents=4)
    found = []
    for training in (
        Replicates(many),
        Replicates(many, wave=2),
        Sharded(many),
    ):
        training.start()
        assert not training.diverged().agents
        for leg in list(plan(many))[:3]:  # beyond an evaluation, after which sums begin anew
            training.run(leg, lambda _: None)
        found.append(training.diverged())
    expected = np.where(training.thetas[..., 0] > BETWEEN, BROKEN_AT, NEVER)
    assert expected[SEED, AGENT] == BROKEN_AT
    for one in found:
        np.testing.assert_array_equal(one.update, expected)
        np.testing.assert_array_equal(one.reward, np.full((2, 4), NEVER))


def test_a_reward_that_is_not_finite_is_told_from_a_loss():
    family = LostPoles(time_limit=20, longest=BETWEEN)
    engine = LocalEngine(replace(TINY, family=family, E=inf))
    done = jax.jit(lambda: go_on(engine, begin(engine, SEED), SEED, 1, 9))()
    found = Diverged.of(jax.tree.map(lambda leaf: leaf[None], done.agents.seen))
    # Among the steps before the first update; so the first loss is not finite either.
    assert found.agents == [(0, AGENT)]
    assert found.reward[0, AGENT] == 0
    assert found.update[0, AGENT] in range(1, 9)
    assert "got a reward that is not a finite number after 0 updates" in found.told(0, AGENT, "it")


def test_the_returns_of_a_model_that_is_not_finite_are_not_numbers():
    models = LocalEngine(TINY).first_params(jnp.int32(0))
    spoilt = jax.tree.map(lambda leaf: leaf.at[1].set(jnp.inf), models)
    returns = greedy_returns(
        TINY.family,
        LEARNER.policy,
        spoilt,
        jnp.array([[0.5], [0.6], [0.7]]),
        jax.random.key(0),
        episodes=2,
        gamma=0.9,
    )
    assert np.isfinite(returns.undiscounted[0]).all()
    assert np.isnan(returns.undiscounted[1]).all()
    assert np.isnan(returns.discounted[1]).all()
