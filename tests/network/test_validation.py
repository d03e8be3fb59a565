"""Of what comes over the network only what was agreed on is let in, and the others are told why."""

from math import inf, nan

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedrl.network.messages import METRICS, Answer, Instruction
from fedrl.network.validation import distance, shown, why_not, why_not_answer

AGREED = {"w": np.zeros((2, 3), np.float32), "b": np.ones(3, np.float32)}
FAR = 10.0


def changed(**leaves):
    return AGREED | leaves


def asking(number, worked=True):
    return Instruction("t", "e", number, 5 if worked else 0, 0, False)


def judged(shared=AGREED, metrics=None, number=4, worked=True, bound=FAR):
    answer = Answer(number, {"loss": 0.5} if metrics is None else metrics, dict(shared))
    return why_not_answer(answer, asking(4, worked), AGREED, AGREED, bound, 0.0)


def test_what_was_agreed_on_is_let_in():
    assert why_not(AGREED, AGREED) is None
    assert judged() is None
    assert judged(changed(w=np.full((2, 3), -1.5, np.float32))) is None
    assert judged(metrics={}) is None
    assert judged(metrics=dict.fromkeys(METRICS, -1e300)) is None
    assert judged(metrics={"updates": 7}) is None
    assert judged({}, worked=False) is None


@pytest.mark.parametrize("bad", [nan, inf, -inf])
@pytest.mark.parametrize("where", [(0, 0), (1, 2)])
def test_one_value_that_is_no_number_is_enough(bad, where):
    w = np.zeros((2, 3), np.float32)
    w[where] = bad
    assert judged(changed(w=w)) == "w has values that are not finite"


@pytest.mark.parametrize(
    ("shared", "said"),
    [
        (changed(w=np.zeros((3, 2), np.float32)), ["w", "shape (3, 2)", "agreed was (2, 3)"]),
        (changed(w=np.zeros((1, 2, 3), np.float32)), ["shape (1, 2, 3)"]),
        (changed(w=np.zeros(6, np.float32)), ["shape (6,)"]),
        (changed(b=np.float32(1).reshape(())), ["b has shape ()"]),
        (changed(b=np.zeros(0, np.float32)), ["b has shape (0,)"]),
        (changed(w=np.zeros((2, 3))), ["w is float64", "agreed was float32"]),
        (changed(b=np.ones(3, np.int32)), ["b is int32"]),
        (changed(b=np.ones(3, np.complex64)), ["b is complex64"]),
        (changed(b=np.array(["x"] * 3)), ["b is <U1"]),
        (changed(b=np.ones(3, ">f4")), ["b is >f4"]),
        (changed(theta=np.ones(1, np.float32)), ["unknown ['theta']"]),
        ({"w": AGREED["w"]}, ["missing ['b']"]),
        ({}, ["missing ['b', 'w']"]),
    ],
)
def test_other_names_shapes_and_types_are_told_apart(shared, said):
    wrong = judged(shared)
    assert all(words in wrong for words in said)
    assert why_not(shared, AGREED) == wrong


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"theta": 0.5}, "a metric that nobody asked for ('theta')"),
        ({"loss": 1.0, "Return": 1.0}, "('Return')"),
        ({"loss": inf}, "its loss is inf"),
        ({"return": nan}, "its return is nan"),
        ({"return": -inf}, "its return is -inf"),
        ({"loss": [1.0]}, "its loss is [1.0]"),
        ({"loss": "1"}, "its loss is '1'"),
        ({"loss": None}, "its loss is None"),
    ],
    ids=str,
)
def test_only_finite_numbers_with_known_names_are_metrics(metrics, said):
    assert said in judged(metrics=metrics)
    # Also after a round without work.
    assert said in judged({}, metrics=metrics, worked=False)


@pytest.mark.parametrize("number", [3, 5, -4])
def test_an_answer_about_another_round_is_not_taken(number):
    assert judged(number=number) == f"it is about round {number}, asked was 4"


def test_parameters_that_nobody_asked_for_are_not_taken():
    assert judged(worked=False) == "it has parameters that nobody asked for"


@pytest.mark.parametrize("size", [10.5, 1e30, -3.4e38])
def test_what_is_too_far_away_is_not_taken(size):
    w = np.zeros((2, 3), np.float32)
    w[1, 1] = size
    assert "away from the model that was sent, allowed is 10" in judged(changed(w=w))
    assert judged(changed(w=w), bound=1e39) is None


def test_the_distance_is_over_all_leaves_and_the_bound_belongs_to_it():
    w, b = AGREED["w"] + np.float32(0.5), AGREED["b"] + np.float32(2)
    # 6 * 0.25 + 3 * 4
    assert distance(changed(w=w, b=b), AGREED) == pytest.approx(np.sqrt(13.5), rel=1e-12)
    w = AGREED["w"].copy()
    w[0, 0] = 10
    assert judged(changed(w=w), bound=10) is None
    assert judged(changed(w=w), bound=np.nextafter(10, 0)) is not None


def test_what_a_correction_adds_has_a_bound_of_its_own():
    added = {"correction/w": np.full(4, 0.5, np.float32)}
    answer = Answer(4, {}, AGREED | added)
    shapes = AGREED | {"correction/w": np.zeros(4, np.float32)}

    def wrong(furthest, furthest_added):
        return why_not_answer(answer, asking(4), shapes, AGREED, furthest, furthest_added)

    # Its length is 1, wherever the model is.
    assert wrong(0.0, 1.0) is None
    assert wrong(1e9, 0.99) == "what its correction adds is 1 long, allowed is 0.99"
    assert "unknown ['correction/w']" in judged(AGREED | added)


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@hypothesis.given(
    hnp.arrays(np.float32, (2, 3), elements=FLOATS), hnp.arrays(np.float32, 3, elements=FLOATS)
)
def test_the_distance_is_numpys_norm_also_of_huge_numbers(w, b):
    both = np.concatenate([w.ravel(), b - AGREED["b"].astype(np.float64)]).astype(np.float64)
    assert distance({"w": w, "b": b}, AGREED) == pytest.approx(np.linalg.norm(both), rel=1e-12)


def test_in_64_bits_squares_that_overflow_are_infinitely_far():
    before = {"table": np.zeros((2, 2))}
    answer = Answer(1, {}, {"table": np.full((2, 2), 1e200)})
    assert "it is inf away" in why_not_answer(answer, asking(1), before, before, 1e29, 0.0)


@hypothesis.given(st.text())
def test_what_is_shown_is_one_short_printable_line(text):
    line = shown(text)
    assert line.isprintable()
    assert len(line) <= 500


def test_ordinary_words_are_shown_as_they_are():
    assert shown("it was stopped: 3 × größer\n  again") == "it was stopped: 3 × größer again"
    assert shown("\x1b[31mred") == "\\x1b[31mred"
