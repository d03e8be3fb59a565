"""Rounds over a network that wait for nobody: who has arrived counts, by how stale it is."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from fedrl.errors import FedrlError
from fedrl.experiment.settings import Evaluation
from fedrl.experiment.timing import Timing
from fedrl.network.agent_client import model_only
from fedrl.network.messages import Refusal
from fedrl.strategies.corrections import ControlVariates
from fedrl.strategies.server_optimizers import Momentum
from in_process import Clock, Federation
from tiny import TINY, Died

pytestmark = pytest.mark.usefixtures("kept", "hasty")

EXPERIMENT = replace(
    TINY,
    name="asynchronous",
    agents=4,
    seeds=1,
    E=5,
    updates=40,
    timing=Timing(arrivals=2, staleness=0.5),
    evaluation=Evaluation(every=20, episodes=1),
)
ROUNDS = 8


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


class Slow:
    """Agents that answer so many waits after they are asked."""

    def __init__(self, federation, clock, waits):
        self.transport, self.waits, self.left = federation.transport, waits, {}
        federation.transport.change = self.hold
        clock.waits.append(self.tick)

    def hold(self, agent, asked, answer):
        self.left[agent] = [self.waits[agent], answer]

    def tick(self):
        for agent, waiting in list(self.left.items()):
            waiting[0] -= 1
            if waiting[0] <= 0:
                self.transport.came.append((agent, waiting[1]))
                del self.left[agent]


def federation(folder, experiment=EXPERIMENT, clock=None, **given):
    return Federation(experiment, folder, clock=clock, **given)


def steps_of(done):
    """The server's model before and after each round, and whose offers made it."""
    steps, step = [], done.server.step

    def watched(planned, answers, begun):
        before = done.server.progress.server.sent.model
        step(planned, answers, begun)
        steps.append(
            (planned, before, dict(answers), begun, done.server.progress.server.sent.model)
        )

    done.server.step = watched
    return steps


def test_the_server_steps_on_who_has_arrived_weighted_by_staleness(tmp_path, clock):
    done = federation(tmp_path, clock=clock)
    Slow(done, clock, [1, 2, 3, 7])
    steps = steps_of(done)
    done.run()
    assert not done.log
    assert len(steps) == ROUNDS
    stale = set()
    for planned, before, answers, _, after in steps:
        assert len(answers) == 2
        # By hand: the changes of what each was sent, each times (1 + s) ** -1/2, averaged.
        moved = 0.0
        for agent, answer in answers.items():
            (asked,) = [
                x.instruction
                for x in done.transport.exchanges
                if x.agent == agent and x.instruction.round == answer.round
            ]
            s = planned.number - asked.round
            stale.add(s)
            change = flat(model_only(answer.shared)) - flat(model_only(asked.model))
            moved = moved + (1 + s) ** -0.5 * change / 2
        np.testing.assert_allclose(leaves(after) - leaves(before), moved, rtol=0, atol=1e-6)
        assert np.abs(moved).max() > 1e-4
    # Some waited for nobody, and others were overtaken several times.
    assert {0, 1} < stale
    assert max(stale) >= 3


def flat(arrays):
    return np.concatenate([np.ravel(leaf) for leaf in arrays.values()])


def leaves(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def test_nobody_is_waited_for(tmp_path, clock):
    done = federation(tmp_path, clock=clock)
    slow = Slow(done, clock, [1, 1, 1, 10_000])
    steps = steps_of(done)
    done.server.deployment = replace(done.server.deployment, quorum=3)
    ends = []
    finish = done.record.finish
    done.record.finish = lambda models: (ends.append(clock.now), finish(models))
    slow.waits[3] = 40
    done.run()
    # All rounds but the last, which only evaluates, were over before the slow one answered.
    taking_part = [set(answers) for _, _, answers, *_ in steps]
    assert len(taking_part) == ROUNDS
    assert sum(3 in who for who in taking_part) <= 1
    assert done.path.joinpath("models.npz").exists()


def test_each_agent_is_asked_once_for_each_round_it_can_use(tmp_path, clock):
    done = federation(tmp_path, clock=clock)
    Slow(done, clock, [1, 2, 3, 4])
    done.run()
    for agent in range(4):
        numbers = [x.instruction.round for x in done.transport.exchanges if x.agent == agent]
        assert numbers == sorted(set(numbers))
        assert numbers[0] == 1
        assert numbers[-1] == ROUNDS + 1  # the evaluation at the end


def test_every_agent_measures_the_model_once_an_evaluation_is_due(tmp_path, clock):
    done = federation(tmp_path, clock=clock)
    Slow(done, clock, [1, 2, 3, 4])
    done.run()
    table = done_rows(done)
    returns = table[(table.metric == "return") & (table.split == "train")]
    by_time = returns.groupby("updates").environment.apply(lambda x: sorted(map(int, x)))
    assert list(by_time.index) == [0, 20, 40]
    assert by_time[0] == [0, 1, 2, 3] == by_time[40]
    assert set(by_time[20]) <= {0, 1, 2, 3}
    assert len(by_time[20]) >= 2
    assert not returns.duplicated(["updates", "environment", "agent"]).any()
    held_out = table[(table.split == "held-out") & (table.metric == "return")]
    assert held_out.groupby("updates").size().to_dict() == {0: 2, 20: 2, 40: 2}


def done_rows(done):
    import fedrl

    return fedrl.Run(done.path).metrics()


@pytest.mark.parametrize("after", [1, 4, ROUNDS])
def test_after_a_kill_the_same_instructions_are_sent_and_nobody_learns_twice(
    tmp_path, clock, after
):
    """With agents that always need as long, a kill changes nothing but when they are asked."""
    experiment = replace(EXPERIMENT, correction=ControlVariates(), server_optimizer=Momentum(0.5))
    done = federation(tmp_path, experiment, clock=clock)
    Slow(done, clock, [1, 2, 3, 4])
    save = done.server.save

    def saved(planned):
        save(planned)
        if planned.number == after:
            raise Died

    done.server.save = saved
    with pytest.raises(Died):
        done.run()
    before = {(x.agent, x.instruction.round): x for x in done.transport.exchanges}
    clock.waits.clear()
    again = federation(tmp_path, experiment, clock=clock)
    assert again.log == [f"going on after round {after}"]
    Slow(again, clock, [1, 2, 3, 4])
    again.run()
    repeated = 0
    for x in again.transport.exchanges:
        first = before.get((x.agent, x.instruction.round))
        if first is None:
            continue
        repeated += 1
        assert x.instruction == replace(first.instruction, model=x.instruction.model)
        assert flat(x.instruction.model).tobytes() == flat(first.instruction.model).tobytes()
        assert flat(x.answer.shared).tobytes() == flat(first.answer.shared).tobytes()
        assert x.answer.metrics == first.answer.metrics  # also how long it took
    assert repeated >= (1 if after < ROUNDS else 0)
    assert (again.path / "models.npz").exists()


def test_the_servers_c_is_the_average_of_the_agents_also_where_nobody_waits(tmp_path, clock):
    experiment = replace(EXPERIMENT, correction=ControlVariates())
    done = federation(tmp_path, experiment, clock=clock)
    Slow(done, clock, [1, 2, 3, 7])
    steps = steps_of(done)
    done.run()
    total = 0.0
    for _, _, answers, *_ in steps:
        for answer in answers.values():
            added = {n: x for n, x in answer.shared.items() if n.startswith("correction/")}
            total = total + flat(added)
    sent = leaves(done.server.progress.server.sent.correction)
    np.testing.assert_allclose(sent, total / 4, rtol=1e-4, atol=1e-6)


def test_a_bad_offer_is_left_out_and_its_agent_asked_again_with_the_next_model(tmp_path, clock):
    done = federation(tmp_path, clock=clock)
    slow = Slow(done, clock, [1, 2, 3, 4])

    def change(agent, asked, answer):
        if (agent, asked.round) == (0, 1):
            answer = replace(answer, shared={n: x * np.nan for n, x in answer.shared.items()})
        return slow.hold(agent, asked, answer)

    done.transport.change = change
    steps = steps_of(done)
    done.run()
    assert done.log[0].startswith("round 1: without agent 0: its answer was rejected: ")
    assert "not finite" in done.log[0]
    assert set(steps[0][2]) == {1, 2}
    numbers = [x.instruction.round for x in done.transport.exchanges if x.agent == 0]
    assert numbers[:2] == [1, 2]
    assert any(0 in answers for _, _, answers, *_ in steps[1:])
    (lost,) = json.loads((tmp_path / "status.json").read_text())["lost"]
    assert (lost["round"], lost["agent"]) == (1, 0)


def test_after_the_deadline_an_agent_is_asked_for_the_same_again(tmp_path, clock):
    done = federation(tmp_path, clock=clock, deadline=2.0)
    # Longer than the deadline: it has the answer by the time it is asked again.
    Slow(done, clock, [50, 50, 50, 50])
    slow_down = [50]

    def change(agent, asked, answer):
        slow.left[agent] = [slow_down[0] if asked.round == 1 and agent not in again else 1, answer]
        if asked.round == 1:
            again.add(agent)

    again: set[int] = set()
    slow = Slow(done, clock, [1, 1, 1, 1])
    done.transport.change = change
    done.run()
    assert "round 1: agents [0, 1, 2, 3] have not answered before the deadline; asking again" in (
        done.log
    )
    assert (done.path / "models.npz").exists()


def test_if_too_few_can_arrive_the_server_gives_up_after_its_patience(tmp_path, clock):
    done = federation(tmp_path, clock=clock, patience=60.0)
    done.transport.change = lambda agent, asked, answer: (
        Refusal("the disk is full") if agent else answer
    )
    with pytest.raises(FedrlError) as told:
        done.run()
    for words in ("round 1 needs 2 arrivals", "for 60 s", "agent 3: the disk is full", "again"):
        assert words in str(told.value)
    assert not list(done.path.glob("checkpoints/*"))


def test_who_comes_late_begins_with_the_newest_model(tmp_path, clock):
    done = federation(tmp_path, clock=clock, gathering=0.1)
    Slow(done, clock, [1, 1, 1, 1])
    del done.transport.marks[3]
    status = done.record.status

    def join(planned, present):
        if planned.number == 5:
            done.transport.marks[3] = "late"
        status(planned, present)

    done.record.status = join
    done.run()
    numbers = [x.instruction.round for x in done.transport.exchanges if x.agent == 3]
    assert numbers[0] == 5
