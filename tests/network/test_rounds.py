"""The server's loop when things go wrong: what is bad stays out, what is done stays done."""

import json
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from fedrl.errors import FedrlError
from fedrl.network.messages import Instruction, Refusal
from fedrl.network.record import Record
from fedrl.runs import checkpoint
from fedrl.tabular.experiment import TabularExperiment
from fedrl.tabular.families import WindyCliffs
from in_process import Clock, Federation, records

pytestmark = pytest.mark.usefixtures("kept", "hasty")

# Four rounds and an evaluation.
EXPERIMENT = TabularExperiment(
    name="cliffs", family=WindyCliffs(), agents=4, E=3, updates=12, lr=0.5, seed=1
)
EVERYBODY = {0, 1, 2, 3}


def federation(folder, experiment=EXPERIMENT, **given):
    return Federation(experiment, folder, **given)


def files(path):
    """Everything that a run has on disk but for what tells of times."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != "communication.csv" and "training" not in file.name
    }


def model(path):
    with np.load(path / "models.npz") as arrays:
        return arrays["table"]


def model_after(path, number):
    """From a checkpoint."""
    _, _, (_, table, *_) = checkpoint.load(
        path / "checkpoints" / f"{number:08d}.npz", EXPERIMENT.digest
    )
    return table


def answers(done, number):
    """Tables by agent, as they were sent."""
    return {x.agent: x.answer.shared for x in done.transport.exchanges if x.answer.round == number}


def tables_of(done):
    """The server's table after each round, once the training has run."""
    kept = {}
    save = done.server.save

    def saved(planned):
        kept[planned.number] = done.server.progress.server.sent.model["table"]
        save(planned)

    done.server.save = saved
    return kept


@pytest.fixture(scope="module")
def undisturbed(kept, hasty, tmp_path_factory):
    """The path of a training that nothing happens to; its models after each round."""
    folder = tmp_path_factory.mktemp("undisturbed")
    done = federation(folder)
    seen = tables_of(done)
    done.run()
    assert not done.log
    assert len(np.unique([table.sum() for table in seen.values()])) == 4
    return SimpleNamespace(path=done.path, models=seen, done=done)


def test_a_round_is_the_average_of_what_the_agents_send(undisturbed):
    for number in range(1, 5):
        tables = [x["table"] for x in answers(undisturbed.done, number).values()]
        assert len(tables) == 4
        np.testing.assert_allclose(undisturbed.models[number], np.mean(tables, 0), rtol=1e-14)
    np.testing.assert_array_equal(model(undisturbed.path), undisturbed.models[4])


def test_agents_are_told_what_they_need_and_sent_the_model_of_the_round_before(undisturbed):
    exchanges = undisturbed.done.transport.exchanges
    assert [x.agent for x in exchanges] == [0, 1, 2, 3] * 5
    for x in exchanges:
        asked = x.instruction
        assert (asked.E, asked.trained) == (
            (3, 3 * (asked.round - 1)) if asked.round < 5 else (0, 12)
        )
        assert asked.evaluate
        assert asked.experiment == EXPERIMENT.digest
        before = undisturbed.models.get(asked.round - 1, undisturbed.done.first["table"])
        np.testing.assert_array_equal(asked.model["table"], before)
    assert len({x.instruction.training for x in exchanges}) == 1


def test_the_status_says_how_it_went(undisturbed):
    status = json.loads((undisturbed.path.parents[1] / "status.json").read_text())
    assert (status["state"], status["done"], status["rounds"]) == ("finished", 4, 4)
    assert status["alive"] == [0, 1, 2, 3]
    assert status["lost"] == []
    assert {status["agents"][str(i)]["round"] for i in range(4)} == {5}
    assert "objective" in status["agents"]["2"]
    assert status["bytes"]["sent"] > 4 * 16 * 4 * 8  # a table of 64-bit numbers to each agent
    assert status["run"] == str(undisturbed.path)


# Bad answers: each is rejected, with a reason that names it, and the others go on.


def with_leaf(change):
    return lambda answer: replace(answer, shared={"table": change(answer.shared["table"].copy())})


def one_value(value):
    def change(table):
        table[3, 2] = value
        return table

    return with_leaf(change)


BAD = {
    "NaN": (one_value(np.nan), "not finite"),
    "infinity": (one_value(np.inf), "not finite"),
    "a huge weight": (one_value(1e30), "1e+30 away from the model"),
    "shape": (with_leaf(np.transpose), "shape (4, 16), agreed was (16, 4)"),
    "type": (with_leaf(np.float32), "float32, agreed was float64"),
    "missing leaf": (lambda a: replace(a, shared={}), "missing ['table']"),
    "extra leaf": (
        lambda a: replace(a, shared=a.shared | {"theta": np.ones(1)}),
        "unknown ['theta']",
    ),
    "another round": (lambda a: replace(a, round=a.round - 1), "about round 1, asked was 2"),
    "unknown metric": (lambda a: replace(a, metrics={"theta": 0.5}), "nobody asked for ('theta')"),
    "infinite metric": (lambda a: replace(a, metrics={"objective": np.inf}), "objective is inf"),
    "refusal": (lambda a: Refusal("the disk is full"), "the disk is full"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_answer_is_rejected_and_the_round_goes_on_with_the_others(
    tmp_path, undisturbed, kind
):
    spoil, reason = BAD[kind]
    done = federation(tmp_path)
    done.transport.change = lambda agent, asked, answer: (
        spoil(answer) if (agent, asked.round) == (2, 2) else answer
    )
    kept = tables_of(done)
    done.run()
    # Without it in this round, and with it in all others.
    np.testing.assert_array_equal(kept[1], undisturbed.models[1])
    told = answers(done, 2)
    others = np.mean([told[i]["table"] for i in (0, 1, 3)], 0)
    np.testing.assert_allclose(kept[2], others, rtol=1e-14)
    for number in (3, 4):
        tables = [x["table"] for x in answers(done, number).values()]
        assert len(tables) == 4
        np.testing.assert_allclose(kept[number], np.mean(tables, 0), rtol=1e-14)
    assert np.abs(kept[2] - undisturbed.models[2]).max() > 1e-6
    (line,) = [line for line in done.log if "without" in line]
    assert line.startswith("round 2: without agent 2: ")
    assert reason in line
    # Nothing of it is measured, and the status tells why.
    rows = (done.path / "metrics.csv").read_text().splitlines()[1:]
    agents = {
        number: {row.split(",")[4] for row in rows if row[:4] == f"0,{number},"}
        for number in (0, 1, 2)
    }
    assert agents == {0: set("0123"), 1: set("013"), 2: set("0123")}
    (lost,) = json.loads((tmp_path / "status.json").read_text())["lost"]
    assert (lost["round"], lost["agent"]) == (2, 2)
    assert reason in lost["why"]


def test_an_agent_that_fails_once_is_asked_again(tmp_path, undisturbed):
    done = federation(tmp_path)
    failed = []

    def change(agent, asked, answer):
        if (agent, asked.round) == (1, 3) and not failed:
            failed.append(agent)
            return Refusal("out of memory")
        return answer

    done.transport.change = change
    done.run()
    assert done.log == ["round 3: agent 1 failed (out of memory); asking again"]
    np.testing.assert_array_equal(model(done.path), model(undisturbed.path))


def test_no_bad_answer_stops_a_training_that_has_a_quorum_of_good_ones(tmp_path, undisturbed):
    # Agent 3 is of the worst kind: something else in every round.
    done = federation(tmp_path, quorum=3)
    kinds = iter([BAD[kind][0] for kind in ("NaN", "shape", "a huge weight", "extra leaf")])
    done.transport.change = lambda agent, asked, answer: (
        next(kinds)(answer) if agent == 3 and asked.E else answer
    )
    done.run()
    without = federation(tmp_path / "without", quorum=3)
    del without.transport.marks[3]
    without.run()
    np.testing.assert_array_equal(model(done.path), model(without.path))
    assert np.isfinite(model(done.path)).all()


# Too few good answers: an error, and nothing has happened.


def refuse(agents, number):
    """Some agents fail in a round."""
    return lambda agent, asked, answer: (
        Refusal("no power") if agent in agents and asked.round == number else answer
    )


@pytest.mark.parametrize("bad", [{0, 3}, EVERYBODY], ids=["too many fail", "all fail"])
def test_below_the_quorum_nothing_changes_and_a_new_server_ends_as_if_nothing_had_happened(
    tmp_path, undisturbed, bad
):
    broken = federation(tmp_path, quorum=3)
    broken.transport.change = refuse(bad, 3)
    with pytest.raises(FedrlError) as told:
        broken.run()
    assert f"round 3 has {4 - len(bad)} valid answers and needs 3" in str(told.value)
    assert "agent 0: no power" in str(told.value)
    assert "start the server again" in str(told.value)
    left = files(broken.path)
    assert set(left) == {
        "experiment.toml",
        "checkpoints/00000001.npz",
        "checkpoints/00000002.npz",
        "metrics/0000000000.csv",
        "metrics/0000000003.csv",
    }
    for number in (1, 2):
        np.testing.assert_array_equal(model_after(broken.path, number), undisturbed.models[number])
    # Again, and still not enough: nothing is overwritten.
    again = federation(tmp_path, quorum=3)
    assert "going on after round 2" in again.log
    again.transport.change = refuse(bad, 3)
    with pytest.raises(FedrlError, match="round 3 has"):
        again.run()
    assert files(again.path) == left
    # And now all is well. New agents, too, who know only what is on their disks.
    done = federation(tmp_path, quorum=3).run()
    assert files(done.path) == files(undisturbed.path)


def test_unless_given_a_quorum_is_more_than_half(tmp_path):
    for lost, enough in (({0}, True), ({0, 1}, False)):
        done = federation(tmp_path / str(len(lost)), quorum=0)
        done.transport.change = refuse(lost, 2)
        if enough:
            done.run()
        else:
            with pytest.raises(FedrlError, match="round 2 has 2 valid answers and needs 3"):
                done.run()


class Killed(BaseException):
    """The end of the server."""


def die(*given, **named):
    raise Killed


MOMENTS = {
    "when the round begins": (Record, "status"),
    "before it is measured": (Record, "evaluation"),
    "before it is saved": (checkpoint, "save"),
    "after it was saved": (Record, "round"),
    "at the very end": (Record, "finish"),
}


@pytest.mark.parametrize(
    ("moment", "number"),
    [(m, n) for m in MOMENTS if m != "at the very end" for n in (1, 3)]
    + [("when the round begins", 5), ("before it is measured", 5), ("at the very end", 1)],
)
def test_killed_at_any_moment_a_training_ends_as_if_nothing_had_happened(
    tmp_path, undisturbed, monkeypatch, moment, number
):
    place, name = MOMENTS[moment]
    server = federation(tmp_path)
    really = getattr(place, name)
    calls = []

    def once_in_a_while(*given, **named):
        # All are called once a round, the last of them once.
        calls.append(name)
        if len(calls) == number:
            raise Killed
        return really(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(place, name, once_in_a_while)
        with pytest.raises(Killed):
            server.run()
    assert not server.record.directory.finished
    done = federation(tmp_path).run()
    assert files(done.path) == files(undisturbed.path)


def test_step_sizes_that_have_decayed_stay_so(tmp_path):
    experiment = replace(EXPERIMENT, updates=27, decay=0.5)
    whole = federation(tmp_path / "whole", experiment).run()
    killed = federation(tmp_path / "killed", experiment)
    killed.transport.change = refuse(EVERYBODY, 8)
    with pytest.raises(FedrlError):
        killed.run()
    done = federation(tmp_path / "killed", experiment).run()
    np.testing.assert_array_equal(model(done.path), model(whole.path))
    scales = [x.instruction.scale for x in whole.transport.exchanges if x.agent == 0]
    assert scales[7] <= 0.25
    later = [x.instruction.scale for x in done.transport.exchanges if x.agent == 0]
    assert later == scales[7:]


DECAYING = TabularExperiment(
    name="cliffs", family=WindyCliffs(), agents=5, E=4, updates=102, lr=0.5, decay=0.5, seed=3
)


def scales_of(done):
    """Factors on the step size, round by round."""
    done.run()
    return [x.instruction.scale for x in done.transport.exchanges if x.agent == 0]


@pytest.fixture(scope="module")
def honest(kept, hasty, tmp_path_factory):
    return scales_of(federation(tmp_path_factory.mktemp("honest"), DECAYING, quorum=3))


LIES = {
    "falls for ever": lambda number, told: 2000.0 - 100 * number,
    "rises for ever": lambda number, told: -2000.0 + 100 * number,
    "up and down": lambda number, told: 2000.0 * (-1) ** number,
    "nothing": None,
}


@pytest.mark.parametrize("lie", LIES)
def test_what_one_agent_says_of_itself_does_not_drive_the_step_size(tmp_path, honest, lie):
    done = federation(tmp_path, DECAYING, quorum=3)

    def change(agent, asked, answer):
        if agent != 4:
            return answer
        metrics = dict(answer.metrics)
        told = metrics.pop("objective")
        if LIES[lie]:
            metrics["objective"] = LIES[lie](asked.round, told)
        return replace(answer, metrics=metrics)

    done.transport.change = change
    assert scales_of(done) == honest
    assert not done.log
    # There is something to drive: it decays in some rounds and not in others.
    assert 3 < sum(a != b for a, b in pairwise(honest)) < len(honest) - 4


@pytest.mark.parametrize(
    ("told", "possible"), [(2000.1, False), (-2000.1, False), (2000.0, True), (-2000.0, True)]
)
def test_an_objective_that_no_dynamics_give_is_refused(tmp_path, told, possible):
    # Rewards are -100 to 100, and gamma is 0.95.
    done = federation(tmp_path)
    done.transport.change = lambda agent, asked, answer: (
        replace(answer, metrics={"objective": told}) if (agent, asked.round) == (2, 2) else answer
    )
    done.run()
    (*lines,) = done.log
    why = f"its objective is {told:.6g}, possible are -2000 to 2000"
    expected = [] if possible else [f"round 2: without agent 2: its answer was rejected: {why}"]
    assert lines == expected


def test_an_agent_that_was_away_is_compared_with_itself(tmp_path):
    # The mean of those who are there falls and rises by who they are.
    done = federation(tmp_path, DECAYING, quorum=3)
    objective = np.arange(5) * 100.0

    def change(agent, asked, answer):
        if agent == 4 and asked.round % 2:
            return Refusal("away")
        grown = objective[agent] + 10.0 * asked.round
        return replace(answer, metrics={"objective": float(grown)})

    done.transport.change = change
    assert set(scales_of(done)) == {1.0}


def test_killed_in_the_middle_of_a_round_no_agent_learns_twice(tmp_path, undisturbed):
    server = federation(tmp_path)

    def change(agent, asked, answer):
        if (agent, asked.round) == (2, 2):
            raise Killed
        return answer

    server.transport.change = change
    with pytest.raises(Killed):
        server.run()
    done = federation(tmp_path).run()
    # Agents 0, 1 and 2 had done their work, 3 had not.
    before, after = answers(server, 2), answers(done, 2)
    assert set(before) == {0, 1, 2}
    assert all(np.array_equal(before[i]["table"], after[i]["table"]) for i in before)
    assert files(done.path) == files(undisturbed.path)


def test_a_damaged_checkpoint_is_told_and_the_one_before_it_is_used(
    tmp_path, undisturbed, monkeypatch
):
    server = federation(tmp_path)
    really = server.record.round

    def round(planned, *given, **named):
        return die() if planned.number == 3 else really(planned, *given, **named)

    monkeypatch.setattr(server.record, "round", round)
    with pytest.raises(Killed):
        server.run()
    file = server.path / "checkpoints" / "00000003.npz"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    again = federation(tmp_path)
    assert "00000003.npz is damaged" in again.log[0]
    assert again.log[0].endswith("looking for an older one")
    assert again.log[1] == "going on after round 2"
    again.run()
    assert files(again.path) == files(undisturbed.path)


def test_a_server_without_any_checkpoint_left_is_turned_away_by_its_agents(tmp_path, undisturbed):
    server = federation(tmp_path)
    server.transport.change = refuse(EVERYBODY, 3)
    with pytest.raises(FedrlError):
        server.run()
    for file in (server.path / "checkpoints").iterdir():
        file.write_bytes(b"")
    left = files(server.path)
    again = federation(tmp_path)
    with pytest.raises(FedrlError, match="the server has lost its checkpoints"):
        again.run()
    assert files(again.path) == left


# Agents that are slow, away, or never there.


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_after_the_deadline_a_round_goes_on_and_a_late_answer_is_nobodys(tmp_path, clock):
    done = federation(tmp_path, clock=clock, deadline=50.0, quorum=3)
    late, times = [], []

    def change(agent, asked, answer):
        times.append((asked.round, clock.now))
        if agent == 3 and asked.round == 2:
            late.append((agent, answer))
            return None
        return answer

    done.transport.change = change
    receive = done.transport.receive

    def late_in_the_next_round():
        came, received = receive()
        if late and times[-1][0] == 3:
            # It is not asked in this round: its connection is gone.
            came.append(late.pop())
        return came, received

    done.transport.receive = late_in_the_next_round
    status = done.record.status

    def away(planned, present):
        status(planned, present)
        done.transport.marks = dict.fromkeys(EVERYBODY - ({3} if planned.number == 3 else set()), 0)

    done.record.status = away
    kept = tables_of(done)
    done.run()
    assert not late
    began = {number: min(now for n, now in times if n == number) for number in range(1, 6)}
    assert began[2] - began[1] < 1
    assert 50 <= began[3] - began[2] < 51
    assert began[5] - began[3] < 1
    assert "round 2: without agent 3: it did not answer before the deadline" in done.log
    assert "round 3: agent 3 is not there" in done.log
    for number in (2, 3):
        tables = [answers(done, number)[i]["table"] for i in (0, 1, 2)]
        np.testing.assert_allclose(kept[number], np.mean(tables, 0), rtol=1e-14)
    assert set(answers(done, 4)) == EVERYBODY


def test_an_agent_that_was_silent_for_two_rounds_is_asked_last_and_not_waited_for(tmp_path, clock):
    done = federation(tmp_path, clock=clock, deadline=50.0, quorum=3)
    silent, times = {2, 3, 4}, {}

    def change(agent, asked, answer):
        times.setdefault(asked.round, clock.now)
        return None if agent == 0 and asked.round in silent else answer

    done.transport.change = change
    done.run()
    took = {number: times[number + 1] - times[number] for number in range(1, 5)}
    assert took[1] < 1
    assert 50 < took[2] < 51
    assert 50 < took[3] < 51
    assert took[4] < 1
    missed = "it missed 2 rounds before, and the others have answered"
    assert f"round 4: without agent 0: {missed}" in done.log
    # It is still asked, after all the others.
    order = {n: [x.agent for x in done.transport.exchanges if x.answer.round == n] for n in (3, 4)}
    assert order == {3: [0, 1, 2, 3], 4: [1, 2, 3, 0]}


def test_an_agent_that_answers_again_is_waited_for_again(tmp_path, clock):
    done = federation(tmp_path, clock=clock, deadline=50.0, quorum=3)
    slow = []

    def change(agent, asked, answer):
        if agent != 0 or asked.round in (3, 5):
            return answer
        if asked.round == 4:
            # Slower than all others, and in time.
            slow.append((clock.now, (0, answer)))
        return None

    def arrives():
        if slow and clock.now > slow[0][0] + 40:
            done.transport.came.append(slow.pop()[1])

    done.transport.change = change
    clock.waits.append(arrives)
    done.run()
    # Two rounds, but not in a row with the one in which it is slow.
    late = [line for line in done.log if "without agent 0" in line]
    assert [line[:7] for line in late] == ["round 1", "round 2"]


HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\n" + "A" * 5_000_000


@pytest.mark.parametrize(
    "spoil",
    [
        lambda answer: Refusal(HOSTILE),
        lambda answer: replace(answer, metrics={HOSTILE: 1.0}),
        lambda answer: replace(answer, shared={HOSTILE: np.zeros(1)}),
        lambda answer: replace(answer, shared={f"{i}{HOSTILE}": np.zeros(1) for i in range(9)}),
        lambda answer: replace(answer, metrics={"objective": HOSTILE}),
    ],
    ids=["refusal", "metric", "leaf", "leaves", "value"],
)
def test_what_an_agent_says_is_short_and_printable_wherever_it_is_kept(tmp_path, spoil):
    done = federation(tmp_path)
    done.transport.change = lambda agent, asked, answer: spoil(answer) if agent == 1 else answer
    done.run()
    status = (tmp_path / "status.json").read_text()
    assert len(status) < 20_000
    why = [one["why"] for one in json.loads(status)["lost"]]
    assert len(why) >= 4
    for text in [*why, *done.log]:
        assert text.isprintable()
        assert len(text) < 700


def test_the_late_answer_of_an_agent_that_is_asked_again_is_not_that_of_this_round(
    tmp_path, clock, undisturbed
):
    """Should the transport not forget: an answer to another question counts for nothing."""
    done = federation(tmp_path, clock=clock, quorum=3)
    late = []

    def change(agent, asked, answer):
        if agent == 3 and asked.round == 2:
            late.append((agent, answer))
            return None
        if agent == 3 and asked.round == 3:
            return late[0][1]
        return answer

    done.transport.change = change
    done.run()
    assert (
        "round 3: without agent 3: its answer was rejected: it is about round 2, asked was 3"
        in done.log
    )
    assert len(late) == 1


def test_an_agent_that_was_restarted_is_asked_again(tmp_path, clock, undisturbed):
    done = federation(tmp_path, clock=clock)
    asked_of = []

    def change(agent, asked, answer):
        if agent == 1 and asked.round == 2:
            asked_of.append(clock.now)
            if len(asked_of) == 1:
                return None  # killed before it could reply
        return answer

    done.transport.change = change

    def back():
        if clock.now > 20 and asked_of:
            done.transport.marks[1] = "second"

    clock.waits.append(back)
    done.run()
    assert len(asked_of) == 2
    assert asked_of[0] < 1
    assert 20 < asked_of[1] < 21
    assert done.log == ["round 2: agents [1] are back; asking again"]
    # It was asked twice, and learnt once.
    np.testing.assert_array_equal(model(done.path), model(undisturbed.path))


def test_a_failure_of_an_agent_that_was_stopped_over_it_is_not_counted(
    tmp_path, clock, undisturbed
):
    done = federation(tmp_path, clock=clock)
    restarts = []

    def change(agent, asked, answer):
        # Each time it is asked it is stopped, and is back some seconds later.
        if agent == 1 and asked.round == 2 and len(restarts) < 4:
            restarts.append(clock.now)
            del done.transport.marks[1]
            return Refusal("the ClientApp was terminated")
        return answer

    def back():
        if 1 not in done.transport.marks and clock.now > restarts[-1] + 3:
            done.transport.marks[1] = f"restart {len(restarts)}"

    done.transport.change = change
    clock.waits.append(back)
    # All are needed.
    done.server.deployment = replace(done.server.deployment, quorum=4)
    done.run()
    assert len(restarts) == 4
    np.testing.assert_array_equal(model(done.path), model(undisturbed.path))


def test_who_has_gone_is_not_waited_for_when_enough_have_answered(tmp_path, clock):
    done = federation(tmp_path, clock=clock, quorum=3, deadline=1000.0)

    def change(agent, asked, answer):
        if agent == 0 and asked.round == 2:
            del done.transport.marks[0]
            return None
        return answer

    done.transport.change = change
    done.run()
    assert clock.now < 10
    assert "round 2: without agent 0: it has gone" in done.log
    assert "round 3: agent 0 is not there" in done.log


def test_who_has_gone_is_waited_for_when_too_few_have_answered(tmp_path, clock, undisturbed):
    done = federation(tmp_path, clock=clock, quorum=4, deadline=1000.0)
    gone = []

    def change(agent, asked, answer):
        if agent == 0 and asked.round == 2 and not gone:
            gone.append(done.transport.marks.pop(0))
            return None
        return answer

    def back():
        if clock.now > 500:
            done.transport.marks[0] = "back"

    done.transport.change = change
    clock.waits.append(back)
    done.run()
    assert 500 < clock.now < 510
    np.testing.assert_array_equal(model(done.path), model(undisturbed.path))


def test_an_agent_that_is_never_there_is_tolerated(tmp_path, undisturbed):
    done = federation(tmp_path, quorum=3)
    del done.transport.marks[2]
    done.run()
    assert done.log == [f"round {n}: agent 2 is not there" for n in range(1, 6)]
    assert {x.agent for x in done.transport.exchanges} == {0, 1, 3}
    assert np.abs(model(done.path) - model(undisturbed.path)).max() > 1e-3


def test_an_agent_that_comes_late_begins_with_the_current_model(tmp_path):
    done = federation(tmp_path, quorum=3)
    del done.transport.marks[2]
    status = done.record.status

    def join(planned, present):
        if planned.number == 3:
            done.transport.marks[2] = "late"
        status(planned, present)

    done.record.status = join
    done.run()
    assert done.log == [f"round {n}: agent 2 is not there" for n in (1, 2)]
    exchanges = {(x.agent, x.instruction.round): x for x in done.transport.exchanges}
    sent = exchanges[2, 3].instruction.model["table"]
    np.testing.assert_array_equal(sent, exchanges[0, 3].instruction.model["table"])
    # In its own environment it learns from there as one that was there all the time.
    other = federation(tmp_path / "other").transport.agents[2]
    expected = other.answer(replace(exchanges[2, 3].instruction))
    np.testing.assert_array_equal(exchanges[2, 3].answer.shared["table"], expected.shared["table"])
    assert set(answers(done, 3)) == EVERYBODY


def test_if_nobody_comes_the_server_gives_up_after_its_patience(tmp_path, clock):
    done = federation(tmp_path, clock=clock, patience=300.0, quorum=2)
    done.transport.marks.clear()
    with pytest.raises(FedrlError) as told:
        done.run()
    assert 300 <= clock.now < 301
    for words in ("round 1 needs 2 of the agents [0, 1, 2, 3]", "after 300 s", "[] are there"):
        assert words in str(told.value)
    assert not list(done.path.rglob("*.npz"))
    assert json.loads((tmp_path / "status.json").read_text())["alive"] == []


def test_a_server_waits_for_enough_agents(tmp_path, clock, undisturbed):
    done = federation(tmp_path, clock=clock, patience=300.0, quorum=4)
    done.transport.marks.clear()

    def come():
        for agent in EVERYBODY:
            if clock.now > 50 * agent:
                done.transport.marks[agent] = "here"

    clock.waits.append(come)
    done.run()
    assert 150 < clock.now < 152
    np.testing.assert_array_equal(model(done.path), model(undisturbed.path))


def test_before_its_first_round_a_server_waits_for_all_agents_and_then_for_a_quorum(
    tmp_path, clock, undisturbed
):
    done = federation(tmp_path, clock=clock, quorum=1, gathering=60.0)
    for agent in (2, 3):
        del done.transport.marks[agent]

    def come():
        if clock.now > 20:
            done.transport.marks[2] = done.transport.marks[3] = "here"

    clock.waits.append(come)
    done.run()
    assert 20 < clock.now < 22
    np.testing.assert_array_equal(model(done.path), model(undisturbed.path))
    # Those who never come cost this time once.
    clock.waits.clear()
    clock.now = 0.0
    done = federation(tmp_path / "without", clock=clock, quorum=1, gathering=60.0)
    del done.transport.marks[3]
    done.run()
    assert 60 <= clock.now < 62
    assert set(answers(done, 1)) == EVERYBODY - {3}


# The same over Flower's own interface, with nobody behind it.


class Grid:
    """What a SuperLink would do with messages: each has an id, and replies refer to it."""

    def __init__(self, nodes):
        self.nodes = nodes
        self.pushed, self.replies, self.pulled = {}, {}, []

    def get_nodes(self):
        return self.nodes

    def push_messages(self, messages):
        for message in messages:
            key = f"message {len(self.pushed)}"
            message.metadata.__dict__["_message_id"] = key
            self.pushed[key] = message
            yield key

    def pull_messages(self, keys):
        self.pulled.append(list(keys))
        return [self.replies.pop(key) for key in keys if key in self.replies]

    def reply(self, key, content):
        from flwr.app import Message

        self.replies[key] = Message(content, reply_to=self.pushed[key])


@pytest.fixture
def flower(monkeypatch):
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    from fedrl.network.server_app import FlowerTransport

    nodes = [SimpleNamespace(node_id=70 + i, last_activated_at=f"at {i}") for i in (0, 1, 2)] + [
        SimpleNamespace(node_id=99, last_activated_at="stranger")
    ]
    grid = Grid(nodes)
    return grid, FlowerTransport(grid, {70: 0, 71: 1, 72: 2}, deadline=600.0)


def an_instruction(number):
    table = {"table": np.full((2, 2), float(number))}
    return Instruction("t", "e", number, 5, 0, False, model=table)


def an_answer(number):
    from fedrl.network.messages import Answer

    return records.telling(Answer(number, {"loss": 1.0}, {"table": np.ones((2, 2))}))


def test_only_registered_nodes_are_agents(flower):
    _, transport = flower
    assert transport.present() == {0: "at 0", 1: "at 1", 2: "at 2"}


def test_instructions_go_to_the_nodes_of_their_agents_and_replies_are_theirs(flower):
    grid, transport = flower
    sent = transport.send({0: an_instruction(1), 2: an_instruction(1)})
    assert [m.metadata.dst_node_id for m in grid.pushed.values()] == [70, 72]
    asked = [records.asked(m.content) for m in grid.pushed.values()]
    assert all(x.round == 1 and x.model["table"][0, 0] == 1 for x in asked)
    assert sent == sum(records.size(m.content) for m in grid.pushed.values())
    grid.reply("message 1", an_answer(1))
    ((agent, answer),), received = transport.receive()
    assert (agent, answer.round, answer.metrics) == (2, 1, {"loss": 1.0})
    assert received == records.size(an_answer(1))
    # What has come is not waited for any more.
    assert transport.receive() == ([], 0)
    assert grid.pulled == [["message 0", "message 1"], ["message 0"]]


def test_what_was_asked_before_is_forgotten_when_an_agent_is_asked_again(flower):
    grid, transport = flower
    transport.send({0: an_instruction(1), 1: an_instruction(1)})
    transport.send({0: an_instruction(2)})
    grid.reply("message 0", an_answer(1))
    grid.reply("message 1", an_answer(1))
    grid.reply("message 2", an_answer(2))
    came, _ = transport.receive()
    assert [(agent, answer.round) for agent, answer in came] == [(1, 1), (0, 2)]


def test_failures_and_hostile_replies_are_refusals(flower):
    from flwr.app import ConfigRecord, Error, RecordDict

    grid, transport = flower
    transport.send({0: an_instruction(1), 1: an_instruction(1), 2: an_instruction(1)})
    grid.reply("message 0", Error(code=2, reason="the app has failed"))
    grid.reply("message 1", RecordDict({"config": ConfigRecord({"run": "me"})}))
    grid.reply("message 2", RecordDict())
    came, _ = transport.receive()
    assert [agent for agent, _ in came] == [0, 1, 2]
    assert all(isinstance(answer, Refusal) for _, answer in came)
    assert came[0][1].reason == "the app has failed"
    assert "not an answer of ours" in came[1][1].reason
