"""An agent and its disk: whatever happens, it learns every round once and loses nothing."""

import errno
import fcntl
import json
import os
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import jax
import numpy as np
import pytest

from fedrl import files
from fedrl.errors import FedrlError
from fedrl.network.agent_client import like, named
from fedrl.network.answering import KEPT, Agent
from fedrl.network.federated_networks import SimulatedClient
from fedrl.network.federated_tables import TableClient
from fedrl.network.flower_records import telling
from fedrl.network.kinds import server_of
from fedrl.network.messages import Instruction
from fedrl.tabular.experiment import TABULAR_PRESETS
from published import PERSONAL
from tiny import LEARNER

pytestmark = pytest.mark.usefixtures("kept", "hasty")

# With a memory, an optimiser, a target, an embedding and statistics: much to lose.
EXPERIMENT = replace(
    PERSONAL,
    seeds=1,
    learner=replace(
        PERSONAL.learner, personal=replace(PERSONAL.learner.personal, normalisation=True)
    ),
)
E = 6
TRAINING = "training0"


@pytest.fixture(scope="module")
def work(kept, hasty):
    return SimulatedClient(EXPERIMENT, 1, None)


@pytest.fixture(scope="module")
def make():
    """An agent in a folder as a new process would make it: nothing of another one is in it."""
    return lambda folder, experiment=EXPERIMENT: Agent(
        folder, SimulatedClient(experiment, 1, None), experiment.digest
    )


@cache
def first():
    """What the server sends first."""
    return named(server_of(EXPERIMENT).begin().sent)


def model_of(work, number):
    """What the server sends in a round."""
    return {name: leaf + np.float32(number / 100) for name, leaf in first().items()}


def received(work, model):
    return like(work.sent, model)


def shared(work, state):
    """What an agent in this state offers."""
    return named(work.offer(state))


@pytest.fixture(scope="module")
def ask(work):
    def instruction(number, **changed):
        plain = {
            "training": TRAINING,
            "experiment": EXPERIMENT.digest,
            "round": number,
            "E": E,
            "trained": (number - 1) * E,
            "evaluate": number % 2 == 1,
            "model": model_of(work, number),
        }
        return Instruction(**plain | changed)

    return instruction


def about(answer):
    """All that an answer says but for how long it took."""
    said = {name: value for name, value in answer.metrics.items() if name != "seconds"}
    arrays = {name: (x.shape, x.dtype, x.tobytes()) for name, x in answer.shared.items()}
    return answer.round, said, arrays


def on_disk(folder, training=TRAINING):
    """The state that a folder holds: every bit of it, but for how long it took."""
    arrays = files.read_arrays(folder / f"{training}.npz")
    description = json.loads(str(arrays.pop("about")))
    del description["metrics"]["seconds"]
    return description, {name: x.tobytes() for name, x in arrays.items()}


def learnt(agent):
    """How many updates an agent has done, from its counters."""
    return int(agent._state.clock.updates)


@pytest.fixture(scope="module")
def undisturbed(make, ask, tmp_path_factory):
    """Answers of an agent that nothing happens to, and its disk, after each of four rounds."""
    folder = tmp_path_factory.mktemp("undisturbed") / "state"
    agent = make(folder)
    rounds = {}
    for number in range(1, 5):
        answer = about(agent.answer(ask(number)))
        rounds[number] = answer, on_disk(folder)
        assert learnt(agent) == number * E
    assert len({to_bytes_of[2]["network/layers/0/bias"] for to_bytes_of, _ in rounds.values()}) == 4
    return rounds


def assert_as_undisturbed(undisturbed, number, answer, folder):
    assert about(answer) == undisturbed[number][0]
    assert on_disk(folder) == undisturbed[number][1]


def test_asked_twice_an_agent_says_the_same_and_learns_once(make, ask, tmp_path, undisturbed):
    agent = make(tmp_path)
    for number in range(1, 4):
        first = agent.answer(ask(number))
        written = (tmp_path / f"{TRAINING}.npz").stat().st_mtime_ns
        again = agent.answer(ask(number))
        assert telling(first) == telling(again)
        assert learnt(agent) == number * E
        assert (tmp_path / f"{TRAINING}.npz").stat().st_mtime_ns == written
        assert_as_undisturbed(undisturbed, number, again, tmp_path)


def test_one_process_after_the_other_goes_on_to_the_last_bit(make, ask, tmp_path, undisturbed):
    for number in range(1, 5):
        assert_as_undisturbed(undisturbed, number, make(tmp_path).answer(ask(number)), tmp_path)


def test_killed_before_it_could_reply_an_agent_does_not_learn_twice(
    make, ask, tmp_path, undisturbed
):
    for number in range(1, 4):
        said = make(tmp_path).answer(ask(number))  # and nobody hears it
        agent = make(tmp_path)
        again = agent.answer(ask(number))
        # The very same, also how long it took.
        assert telling(again) == telling(said)
        assert learnt(agent) == number * E
        assert_as_undisturbed(undisturbed, number, again, tmp_path)


class Killed(BaseException):
    """As far as the agent is concerned, the end of the world."""


@pytest.mark.parametrize("when", ["while it learns", "before it is written", "half written"])
def test_killed_in_a_round_an_agent_does_it_again(
    make, ask, tmp_path, undisturbed, monkeypatch, when
):
    agent = make(tmp_path)
    agent.answer(ask(1))

    def die(*given):
        raise Killed

    with monkeypatch.context() as patch:
        place, name = {
            "while it learns": (SimulatedClient, "offer"),
            "before it is written": (files.os, "fsync"),
            "half written": (Path, "replace"),
        }[when]
        patch.setattr(place, name, die)
        with pytest.raises(Killed):
            agent.answer(ask(2))
    assert on_disk(tmp_path) == undisturbed[1][1]
    # The same process if it has survived, and a new one.
    for survivor in (agent, make(tmp_path)):
        assert_as_undisturbed(undisturbed, 2, survivor.answer(ask(2)), tmp_path)


def test_what_a_kill_in_the_middle_of_writing_left_does_not_fill_the_disk(make, ask, tmp_path):
    agent = make(tmp_path)
    agent.answer(ask(1))
    left = tmp_path / f".{TRAINING}.npz.x8f3ab_1"
    left.write_bytes(b"half a state")
    agent.answer(ask(2))
    assert {file.name for file in tmp_path.iterdir()} == {".lock", f"{TRAINING}.npz"}


def test_a_late_joiner_begins_with_the_current_model(make, ask, work, tmp_path):
    agent = make(tmp_path)
    model = model_of(work, 7)
    looked = agent.answer(ask(7, E=0))
    assert looked.shared == {}
    assert "own_return" in looked.metrics
    offered = shared(work, agent._state)
    assert all(np.array_equal(offered[name], model[name]) for name in model)
    name = "network/layers/0/bias"
    assert not np.array_equal(offered[name], first()[name])
    # Its first round is one from that model.
    joined = make(tmp_path / "other").answer(ask(7, evaluate=False))
    expected = shared(work, work.work(work.begin(received(work, model)), E, 0, 1.0))
    assert all(joined.shared[n].tobytes() == expected[n].tobytes() for n in expected)


def test_after_rounds_without_it_an_agent_gets_the_current_model(make, ask, work, tmp_path):
    agent = make(tmp_path)
    agent.answer(ask(1))
    before = jax.device_get(agent._state)
    agent.answer(ask(9, E=0, evaluate=False))
    after = jax.device_get(agent._state)
    model = model_of(work, 9)
    assert all(np.array_equal(shared(work, after)[n], model[n]) for n in model)
    # And has kept all that is its own.
    assert np.array_equal(after.rows, before.rows)
    assert jax.tree.all(jax.tree.map(np.array_equal, after.clock, before.clock))
    own = [x.agents.learned for x in (before, after)]
    assert jax.tree.all(jax.tree.map(np.array_equal, own[0].optimizer, own[1].optimizer))
    assert jax.tree.all(jax.tree.map(np.array_equal, own[0].target, own[1].target))
    views = [x.params.view for x in own]
    assert jax.tree.all(jax.tree.map(np.array_equal, *views))


def test_without_a_model_an_agent_begins_with_its_own(make, ask, work, tmp_path):
    own = make(tmp_path).answer(ask(1, model={}))
    same = make(tmp_path / "other").answer(ask(1, model=first()))
    assert about(own) == about(same)


def test_agents_of_tables_go_on_as_well(tmp_path):
    experiment = replace(TABULAR_PRESETS["windycliffs-qavg"], lr=0.5)
    plain = {"training": TRAINING, "experiment": experiment.digest, "E": 3, "evaluate": True}

    def fresh(name):
        return Agent(tmp_path / name, TableClient(experiment, 2), experiment.digest)

    one, model = fresh("one"), {}
    for number in range(1, 4):
        instruction = Instruction(**plain, round=number, trained=3 * number - 3, model=model)
        said = one.answer(instruction)
        assert about(fresh("other").answer(instruction)) == about(said)
        assert about(fresh("other").answer(instruction)) == about(said)
        assert said.shared["table"].dtype == np.float64
        model = {"table": said.shared["table"] / 2}


def test_what_is_evaluated_is_the_model_that_was_sent(tmp_path):
    experiment = replace(TABULAR_PRESETS["windycliffs-qavg"], lr=0.5)
    plain = {"training": TRAINING, "experiment": experiment.digest, "evaluate": True}
    work = TableClient(experiment, 2)
    agent = Agent(tmp_path, work, experiment.digest)
    said = agent.answer(Instruction(**plain, round=1, E=20, trained=0))
    # The worst that it could do in most states, and it has to say so.
    sent = {"table": -said.shared["table"]}
    begun = (work.begin(received(work, x)) for x in (said.shared, sent))
    own, other = (work.evaluate(state, 20)[1]["objective"] for state in begun)
    assert own - other > 10
    again = agent.answer(Instruction(**plain, round=2, E=20, trained=20, model=sent))
    assert again.metrics["objective"] == other


def damaged(content):
    yield "cut off", content[: len(content) // 2]
    # Of an array: dates in the archive's headers may be wrong, and the state still is right.
    largest = max(ZipFile(BytesIO(content)).infolist(), key=lambda one: one.file_size)
    place = largest.header_offset + largest.file_size
    yield "a bit is wrong", content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    yield "empty", b""
    yield "something else", b"this is no state"


@pytest.mark.parametrize("how", range(4))
def test_a_damaged_state_is_told_and_left_alone(make, ask, tmp_path, how):
    make(tmp_path).answer(ask(1))
    file = tmp_path / f"{TRAINING}.npz"
    _, content = list(damaged(file.read_bytes()))[how]
    file.write_bytes(content)
    agent = make(tmp_path)
    for _ in range(2):
        with pytest.raises(FedrlError, match=r"training0\.npz is damaged .* move it away"):
            agent.answer(ask(2))
        assert file.read_bytes() == content
    # What its owner can do about it.
    file.rename(tmp_path / "damaged")
    assert agent.answer(ask(2)).round == 2
    assert learnt(agent) == E


def full(*given, **named):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_told_and_afterwards_it_goes_on(
    make, ask, tmp_path, undisturbed, monkeypatch
):
    agent = make(tmp_path)
    agent.answer(ask(1))
    for place, name in ((files.os, "fsync"), (files.tempfile, "mkstemp")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, full)
            for _ in range(2):
                with pytest.raises(FedrlError) as told:
                    agent.answer(ask(2))
        for words in (f"{tmp_path}/{TRAINING}.npz", "No space left on device", "is still there"):
            assert words in str(told.value)
        assert on_disk(tmp_path) == undisturbed[1][1]
        assert {file.name for file in tmp_path.iterdir()} == {".lock", f"{TRAINING}.npz"}
    assert_as_undisturbed(undisturbed, 2, agent.answer(ask(2)), tmp_path)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written_is_told(make, ask, tmp_path, monkeypatch, number):
    # Tests may run as root, who may write everywhere.
    really = os.open

    def refused(path, flags, *given, **named):
        if flags & (os.O_RDWR | os.O_WRONLY) and Path(path).is_relative_to(tmp_path):
            raise OSError(number, os.strerror(number))
        return really(path, flags, *given, **named)

    agent = make(tmp_path)
    agent.answer(ask(1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        with pytest.raises(FedrlError) as told:
            agent.answer(ask(2))
    assert str(tmp_path) in str(told.value)
    assert os.strerror(number) in str(told.value)
    assert "keeps its state there" in str(told.value)
    assert agent.answer(ask(2)).round == 2


def test_a_file_in_the_place_of_the_folder_is_told(make, ask, tmp_path):
    (tmp_path / "state").write_text("")
    with pytest.raises(FedrlError, match=r"state cannot be used .* keeps its state there"):
        make(tmp_path / "state").answer(ask(1))


def test_another_experiment_is_refused(make, ask, tmp_path):
    agent = make(tmp_path / "state")
    with pytest.raises(FedrlError) as told:
        agent.answer(ask(1, experiment="12345678"))
    for words in ("12345678", EXPERIMENT.digest, "experiment.toml"):
        assert words in str(told.value)
    assert not list((tmp_path / "state").glob("*.npz"))


@pytest.mark.parametrize(
    "changed",
    [{"E": 20}, {"learner": replace(LEARNER, hidden=(4,))}],
    ids=["settings", "shapes"],
)
def test_a_state_of_another_experiment_is_not_used(make, ask, tmp_path, changed):
    other = replace(EXPERIMENT, **changed)
    make(tmp_path, other).answer(ask(1, experiment=other.digest, model={}))
    before = on_disk(tmp_path)
    with pytest.raises(
        FedrlError, match=r"(belongs to another experiment|of other shapes) .* move it away"
    ):
        make(tmp_path).answer(ask(2))
    assert on_disk(tmp_path) == before


def test_leaves_that_do_not_fit_are_not_used(make, ask, tmp_path):
    make(tmp_path).answer(ask(1))
    file = tmp_path / f"{TRAINING}.npz"
    arrays = files.read_arrays(file)
    arrays["0003"] = arrays["0003"].astype(np.float16)
    files.write_arrays(file, arrays)
    with pytest.raises(FedrlError, match="move it away"):
        make(tmp_path).answer(ask(2))


def spoilt(work):
    model = model_of(work, 2)
    name = "network/layers/0/weight"
    with_nan = model[name].copy()
    with_nan[1, 2] = np.nan
    yield model | {name: with_nan}, "not finite"
    yield model | {name: model[name].T}, "has shape"
    yield model | {name: model[name].astype(np.float64)}, "float64"
    yield model | {"view/embedding": np.zeros(2, np.float32)}, r"unknown \['view/embedding'\]"
    yield {n: x for n, x in model.items() if n != name}, "missing"


@pytest.mark.parametrize("which", range(5))
def test_a_model_that_cannot_be_used_is_refused(make, ask, work, tmp_path, undisturbed, which):
    model, why = list(spoilt(work))[which]
    agent = make(tmp_path)
    agent.answer(ask(1))
    with pytest.raises(FedrlError, match=f"the server's model cannot be used: .*{why}"):
        agent.answer(ask(2, model=model))
    assert_as_undisturbed(undisturbed, 2, agent.answer(ask(2)), tmp_path)


def test_only_its_owner_sees_an_agents_state(make, ask, tmp_path):
    folder = tmp_path / "agents" / "1" / "state"
    before = os.umask(0)
    try:
        make(folder).answer(ask(1))
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_another_process_has_done_meanwhile_is_noticed(make, ask, tmp_path, undisturbed):
    one, other = make(tmp_path), make(tmp_path)
    one.answer(ask(1))
    assert_as_undisturbed(undisturbed, 1, other.answer(ask(1)), tmp_path)
    other.answer(ask(2))
    # Not from its own memory of round 1.
    assert_as_undisturbed(undisturbed, 2, one.answer(ask(2)), tmp_path)
    assert learnt(one) == 2 * E
    other.answer(ask(3))
    assert_as_undisturbed(undisturbed, 4, one.answer(ask(4)), tmp_path)


def test_two_processes_do_not_work_at_the_same_time(make, ask, tmp_path):
    agent = make(tmp_path)
    agent.answer(ask(1))
    with (tmp_path / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(FedrlError, match="another process is working in"):
            agent.answer(ask(2))
    assert agent.answer(ask(2)).round == 2


def test_a_server_that_has_lost_rounds_is_told(make, ask, tmp_path, undisturbed):
    agent = make(tmp_path)
    for number in (1, 2, 3):
        agent.answer(ask(number))
    with pytest.raises(FedrlError, match="asks for round 2, this agent is at 3"):
        agent.answer(ask(2))
    assert_as_undisturbed(undisturbed, 4, agent.answer(ask(4)), tmp_path)


def test_every_training_has_a_state_of_its_own(make, ask, tmp_path, undisturbed):
    agent = make(tmp_path)
    agent.answer(ask(1))
    agent.answer(ask(1, training="another"))
    assert on_disk(tmp_path, "another") == on_disk(tmp_path)
    assert_as_undisturbed(undisturbed, 2, agent.answer(ask(2)), tmp_path)


def test_the_states_of_the_newest_trainings_are_kept(make, ask, tmp_path):
    agent = make(tmp_path)
    for number in range(KEPT + 2):
        agent.answer(ask(1, training=f"training{number}"))
        os.utime(tmp_path / f"training{number}.npz", (number, number))
    left = {file.stem for file in tmp_path.glob("*.npz")}
    assert left == {f"training{number}" for number in range(2, KEPT + 2)}


def test_the_state_of_this_training_is_kept_whatever_the_clock_says(make, ask, tmp_path):
    agent = make(tmp_path)
    future = 2**32
    for number in range(KEPT):
        other = tmp_path / f"other{number}.npz"
        other.write_bytes(b"")
        os.utime(other, (future, future))
    agent.answer(ask(1))
    agent.answer(ask(2))
    assert learnt(agent) == 2 * E
    assert (tmp_path / f"{TRAINING}.npz").exists()
    assert len(list(tmp_path.glob("*.npz"))) == KEPT


@pytest.mark.parametrize("name", ["../elsewhere", "", "a/b", "a.b", "."])
def test_the_name_of_a_training_is_no_path(make, ask, tmp_path, name):
    with pytest.raises(FedrlError, match="not a name of a training"):
        make(tmp_path / "state").answer(ask(1, training=name))
    assert not list(tmp_path.rglob("*.npz"))


def test_an_agent_leaves_a_mark_once_its_training_is_finished(make, ask, tmp_path):
    agent = make(tmp_path)
    agent.answer(ask(1))
    assert not (tmp_path / "finished").exists()
    agent.answer(ask(9, E=0, evaluate=True, trained=EXPERIMENT.updates))
    assert (tmp_path / "finished").exists()
    again = {"training": "training1", "model": {}}
    agent.answer(ask(1, **again))
    assert not (tmp_path / "finished").exists()


def test_an_agent_whose_training_diverges_says_so_and_sends_nothing(tmp_path, ask):
    steep = replace(EXPERIMENT, learner=replace(EXPERIMENT.learner, lr=1e30))
    agent = Agent(tmp_path, SimulatedClient(steep, 1, None), steep.digest)
    asked = ask(1, experiment=steep.digest)
    for _ in range(2):
        with pytest.raises(
            FedrlError, match="a parameter of agent 1 is not a finite number"
        ) as error:
            agent.answer(asked)
        # It goes to the server, which is not to know where the agent lives.
        assert not any(varied.name in str(error.value) for varied in steep.family.varied)
    assert not list(tmp_path.glob("*.npz"))
