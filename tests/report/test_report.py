"""Comparison and progress, by hand-made numbers."""

import io
from math import hypot

import pytest
from rich.console import Console

from fedrl.progress import WorkProgress, in_words
from fedrl.report.comparison import Comparison


def comparison(ours, se=0.0, published=10.0, published_se=0.0):
    return Comparison({"E": "1"}, published, published_se, ours, se, 100)


def test_z_is_in_combined_standard_errors():
    assert comparison(11.0, 0.3, published_se=0.4).z == pytest.approx(1 / 0.5)


def test_a_published_standard_error_of_zero_counts_as_half_a_digit():
    assert comparison(10.01).z == pytest.approx(2.0)
    assert comparison(10.01, 0.01).z == pytest.approx(0.01 / hypot(0.005, 0.01))


def test_marks_say_within_two_within_three_and_beyond():
    marks = [comparison(10.0 + 0.005 * z).mark for z in (1.9, -2.5, 3.5)]
    assert [mark.split("]")[1][0] for mark in marks] == ["✓", "~", "✗"]
    assert not comparison(10.0 - 0.005 * 3.5).agrees


def test_progress_in_a_log_gives_lines_with_an_estimate(monkeypatch):
    clock = iter(range(0, 10_000, 20))
    monkeypatch.setattr("fedrl.progress.time.monotonic", lambda: float(next(clock)))
    console = Console(file=io.StringIO(), width=100)
    with WorkProgress("job", 100.0, 20.0, console) as progress:
        progress.advance(1.0, "part A")
        progress.advance(39.0, "part A")
    text = console.file.getvalue()
    assert "job: 20% was done before, continuing" in text
    assert "estimating" in text
    # 40 units in 40 seconds of this run, 40 left.
    assert "job: 60% done, about 40 s left (part A)" in text


@pytest.mark.parametrize(
    ("seconds", "words"), [(3.2, "3 s"), (89, "89 s"), (600, "10 min"), (7200, "2.0 h")]
)
def test_durations_in_words(seconds, words):
    assert in_words(seconds) == words
