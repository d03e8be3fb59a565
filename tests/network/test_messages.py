"""What travels: whole and unchanged, of hostile ones only an error, and nothing that is private."""

import io
import pickle
import threading
from dataclasses import fields, replace
from socket import AF_UNIX
from socket import socket as stream

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrl.engine.local_engine import LocalEngine
from fedrl.errors import FedrlError
from fedrl.experiment.presets import PRESETS
from fedrl.experiment.settings import Evaluation
from fedrl.network.agent_client import named, shapes
from fedrl.network.answering import Agent
from fedrl.network.federated_networks import SimulatedClient
from fedrl.network.federated_tables import TableClient
from fedrl.network.kinds import server_of
from fedrl.network.messages import METRICS, Answer, Instruction, Refusal
from fedrl.network.socket import ask_worker, listen, serve
from fedrl.network.validation import why_not_answer
from fedrl.tabular.experiment import TABULAR_PRESETS
from fedrl.trees import named_leaves
from in_process import flowers_bytes, from_flowers_bytes, records, to_agent, to_server

ARRAYS = {
    "network/layers/0/weight": np.arange(12, dtype=np.float32).reshape(3, 4).T,
    "tiny": np.array([np.nextafter(0, 1), -0.0, np.nan, np.inf, 1e300]),
    "none": np.zeros((0, 3), np.float32),
    "one number": np.array(7.5, np.float32),
    "Größe: 🙂 leaf:": np.float32([1]),
    "header": np.float32([2]),
}
INSTRUCTION = Instruction(
    training="abc123",
    experiment="0f0f0f0f",
    round=7,
    E=500,
    trained=123_456_789_012,
    evaluate=True,
    scale=0.1 + 0.2,
    counted=6,
    model=ARRAYS,
)
SAID = {"loss": 1 / 3, "updates": 500.0, "return": -1e-300}
ANSWER = Answer(round=3, metrics=SAID, shared=ARRAYS)
REFUSAL = Refusal("no space left on device: 'größer' \"machen\"\n")


def same_arrays(one, other):
    return list(one) == list(other) and all(
        one[n].dtype == other[n].dtype
        and one[n].shape == other[n].shape
        and one[n].tobytes() == other[n].tobytes()
        for n in one
    )


def assert_same(one, other):
    assert type(one) is type(other)
    for field in fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.name in ("model", "shared"):
            assert same_arrays(a, b)
        else:
            assert a == b
            assert type(a) is type(b)


@pytest.mark.parametrize(
    "instruction", [INSTRUCTION, replace(INSTRUCTION, evaluate=False, model={})]
)
def test_an_instruction_comes_over_the_network_as_it_was(instruction):
    assert_same(to_agent(instruction)[0], instruction)


@pytest.mark.parametrize("reason", [REFUSAL.reason, ""])
def test_a_refusal_comes_over_the_socket_as_it_was(reason):
    content = flowers_bytes(records.telling(Refusal(reason)))
    assert records.refused(from_flowers_bytes(content)) == reason
    assert records.refused(records.telling(ANSWER)) is None


@pytest.mark.parametrize("answer", [ANSWER, Answer(1, {})])
def test_an_answer_comes_over_the_network_as_it_was(answer):
    assert_same(to_server(answer)[0], answer)


def test_the_size_of_a_message_is_about_what_flower_sends():
    for content in (records.asking(INSTRUCTION), records.telling(ANSWER)):
        assert records.size(content) == pytest.approx(len(flowers_bytes(content)), rel=0.25)


class Bomb:
    def __reduce__(self):
        return exec, ("raise SystemExit('a pickle was run')",)


def packed(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GET / HTTP/1.1",
        flowers_bytes(records.telling(ANSWER))[:-30],
        flowers_bytes(records.telling(ANSWER))[30:],
        pickle.dumps(Bomb()),
    ],
)
def test_what_is_no_message_is_an_error_and_nothing_is_run(content):
    with pytest.raises(FedrlError, match=r"not (a message|an instruction) of ours"):
        records.asked(records.from_bytes(content))


def hostile(**changed):
    """An answer's records with some of them changed; None: left out."""
    from flwr.app import RecordDict

    told = dict(records.telling(Answer(3, {"loss": 1.0}, {"w": np.zeros(2, np.float32)})).items())
    told |= changed
    return RecordDict({name: one for name, one in told.items() if one is not None})


def an_array(data, stype="numpy.ndarray"):
    from flwr.app import Array, ArrayRecord

    return ArrayRecord({"w": Array("float32", (2,), stype, data)})


def saved(array, **how):
    buffer = io.BytesIO()
    np.save(buffer, array, **how)
    return buffer.getvalue()


def hostile_answers():
    from flwr.app import ConfigRecord, MetricRecord

    yield "no model", hostile(model=None)
    yield "no metrics", hostile(told=None)
    yield "no round", hostile(round=None)
    yield "a round without a number", hostile(round=ConfigRecord({"other": 1}))
    yield "a word for the round", hostile(round=ConfigRecord({"round": "3"}))
    yield "half a round", hostile(round=ConfigRecord({"round": 3.5}))
    yield "something more", hostile(theta=MetricRecord({"theta": 0.5}))
    yield "settings for a model", hostile(model=ConfigRecord({"w": 1.0}))
    yield "no array", hostile(model=an_array(b"not an array"))
    yield "half an array", hostile(model=an_array(saved(np.zeros(2, np.float32))[:-3]))
    yield "a pickle", hostile(model=an_array(saved(np.array([Bomb()]), allow_pickle=True)))
    yield "many arrays", hostile(model=an_array(packed(w=np.zeros(2, np.float32))))
    yield "a tensor", hostile(model=an_array(saved(np.zeros(2, np.float32)), "torch.tensor"))


@pytest.mark.parametrize("number", range(13))
def test_whatever_an_agent_sends_the_only_error_is_ours(number):
    what, content = list(hostile_answers())[number]
    with pytest.raises(FedrlError, match="not an answer of ours"):
        print(what, records.told(from_flowers_bytes(flowers_bytes(content))))


def test_lists_of_numbers_are_no_metrics():
    from flwr.app import MetricRecord

    content = hostile(told=MetricRecord({"loss": [1.0, 2.0]}))
    answer = replace(records.told(from_flowers_bytes(flowers_bytes(content))), round=7)
    before = {"w": np.zeros(2, np.float32)}
    assert "its loss is [1.0, 2.0]" in why_not_answer(
        answer, INSTRUCTION, before, before, 10.0, 0.0
    )


def test_what_is_no_instruction_is_an_error():
    from flwr.app import ConfigRecord, RecordDict

    good = dict(records.asking(INSTRUCTION).items())
    for changed in (
        {"asked": ConfigRecord({"round": 1})},
        {"model": ConfigRecord()},
        {"asked": ConfigRecord(dict(good["asked"]) | {"E": "many"})},
    ):
        with pytest.raises(FedrlError, match="not an instruction of ours"):
            records.asked(RecordDict(good | changed))


def test_a_worker_answers_over_its_socket_and_says_why_when_it_does_not(tmp_path, monkeypatch):
    # Longer than the path of a socket may be.
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    instruction = records.asking(INSTRUCTION)
    assert ask_worker(folder, instruction) is None
    asked = []

    def answer(instruction):
        asked.append(instruction)
        if len(asked) == 2:
            raise FedrlError("the disk is full")
        if len(asked) == 3:
            raise KeyError("a mistake")
        return ANSWER

    listening = listen(folder)
    threading.Thread(target=serve, args=(listening, answer), daemon=True).start()
    socket = folder / "worker.sock"
    assert socket.stat().st_mode & 0o777 == 0o600
    assert_same(records.told(ask_worker(folder, instruction)), ANSWER)
    assert_same(asked[0], INSTRUCTION)
    assert records.refused(ask_worker(folder, instruction)) == "the disk is full"
    assert records.refused(ask_worker(folder, instruction)) == "KeyError('a mistake')"
    assert_same(records.told(ask_worker(folder, instruction)), ANSWER)
    # Nor does it stop over what is no message.
    monkeypatch.chdir(folder)
    for content in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 12, b"\0\0\0\4half", b"\0", b""):
        with stream(AF_UNIX) as stranger:
            stranger.connect("worker.sock")
            stranger.sendall(content)
    assert_same(records.told(ask_worker(folder, instruction)), ANSWER)


# What is private, from the names of leaves: an agent's view, and its output layer where it has one.


def is_private(name, learner):
    last = len(learner.hidden)
    return "view/" in name or (learner.personal.head and f"layers/{last}/" in name)


@pytest.mark.parametrize("name", PRESETS)
def test_the_leaves_that_an_agent_sends_are_the_shared_ones_of_its_preset(name):
    experiment = PRESETS[name]
    assert experiment.communicates
    work = SimulatedClient(experiment, 0, [v.low for v in experiment.family.varied])
    first = jax.eval_shape(LocalEngine(experiment).first_params, jnp.int32(0))
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), first)
    all_leaves = named_leaves(params)
    expected = {n: x[0] for n, x in all_leaves.items() if not is_private(n, experiment.learner)}
    assert same_arrays(shapes(work.offered), {n: np.zeros_like(x) for n, x in expected.items()})
    assert same_arrays(shapes(work.sent), shapes(work.offered))
    personal = bool(experiment.learner.personal)
    assert (len(expected) < len(all_leaves)) == personal
    # The very leaves that the learner declares.
    assert list(expected) == list(named_leaves(experiment.learner.split(params)[0]))


def shrunken(experiment):
    """The same in small; units and everything about privacy are as they were."""
    learner = experiment.learner
    learner = replace(
        learner, hidden=(8,) * len(learner.hidden), batch=4, replay=32, learning_starts=8
    )
    E = 7 if experiment.unit == "updates" else 3
    return replace(
        experiment,
        family=replace(experiment.family, time_limit=5),
        learner=learner,
        E=E,
        updates=2 * E,
        evaluation=Evaluation(every=1, episodes=1),
    )


QUICK = {
    "cartpoles-dqnavg",
    "acrobots-dqnavg-released",
    "wiredcartpoles-perdqnavg",
    "hoppers-perddpgavg",
}
EACH = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name in [*PRESETS, *TABULAR_PRESETS]
]


def three_rounds(experiment, work, folder):
    """(instruction, answer, its bytes, state) of an agent after each round."""
    agent = Agent(folder, work, experiment.digest)
    model = named(server_of(experiment).begin().sent)
    for number, E in ((1, experiment.E), (2, experiment.E), (3, 0)):
        instruction = Instruction(
            *("training", experiment.digest, number, int(E), 0, True), model=model
        )
        answer = agent.answer(to_agent(instruction)[0])
        received, content = to_server(answer)
        yield instruction, received, content, jax.device_get(agent._state)
        # Another model, as from a server that has heard others too.
        model = {name: leaf + np.float32(0.01) for name, leaf in received.shared.items()}


def traces(array):
    """How a private array would look in a message; nothing where that could be a coincidence."""
    for dtype in (np.float32, np.float64):
        content = np.asarray(array).astype(dtype).tobytes()
        if len(set(content)) > 4:
            yield content


def assert_nothing_private(content, state, work):
    whole = [trace for leaf in private_leaves(state, work) for trace in traces(leaf)]
    # Of a memory already one transition would be too much.
    told = [trace for transition in state.rows[0] for trace in traces(transition)] + whole
    assert len(whole) > 10
    assert len(told) > len(whole) + 10
    for number in np.ravel(work.theta):
        for dtype in (np.float32, np.float64):
            told += [dtype(number).tobytes(), dtype(number).byteswap().tobytes()]
        told += [f"{number:.6g}".encode(), repr(float(number)).encode()]
    for trace in told:
        assert trace not in content


def private_leaves(state, work):
    """All that an agent has but for the parameters it shares."""
    learned = state.agents.learned
    _, private = work.experiment.learner.split(learned.params)
    rest = state._replace(
        agents=state.agents._replace(learned=learned._replace(params=private)),
        # What the server sent is not the agent's secret; counters are 0, 1, 2, ...
        server=None,
        clock=None,
    )
    return jax.tree.leaves(rest)


@pytest.mark.usefixtures("kept", "hasty")
@pytest.mark.parametrize("name", [x for x in EACH if x.values[0] in PRESETS])
def test_every_message_of_a_preset_is_shared_leaves_and_named_numbers(name, tmp_path):
    experiment = shrunken(PRESETS[name])
    work = SimulatedClient(experiment, 1, None)
    declared = {n for n in named_leaves(work._first) if not is_private(n, experiment.learner)}
    said = set()
    for instruction, answer, content, state in three_rounds(experiment, work, tmp_path):
        assert set(answer.shared) == (declared if instruction.E else set())
        assert set(answer.metrics) <= set(METRICS)
        said |= set(answer.metrics)
        assert set(vars(answer)) == {"round", "metrics", "shared"}
        assert_nothing_private(content, state, work)
        if instruction.E:
            # The test would see it: what is sent is found.
            params = work.experiment.learner.split(state.agents.learned.params)[0]
            for leaf in jax.tree.leaves(params):
                assert leaf.tobytes() in content
    own = "own_" if experiment.learner.personal else ""
    returns = {f"{own}return", f"{own}discounted_return"}
    assert said == returns | {"loss", "explored_return", "updates", "seconds"}


@pytest.mark.usefixtures("hasty")
def test_every_message_of_exact_qavg_is_a_table_and_an_objective(tmp_path):
    experiment = TABULAR_PRESETS["windycliffs-qavg"]
    work = TableClient(experiment, 1)
    for instruction, answer, content, _ in three_rounds(experiment, work, tmp_path):
        assert set(answer.shared) == ({"table"} if instruction.E else set())
        assert set(answer.metrics) == {"objective", "seconds"}
        P = np.asarray(work._mdps.P)[..., 0]
        rows = [row.tobytes() for row in P.reshape(-1, P.shape[-1])]
        winds = {float(x) for x in np.unique(P) if 0 < x < 1}
        assert winds
        assert not any(row in content for row in rows)
        assert not any(np.float64(x).tobytes() in content for x in winds)
        assert not any(f"{x:.6g}".encode() in content for x in winds)
