"""Progress on terminals, in notebooks and in logs."""

import io
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from fedrl.progress import WIDTH_OF_LOGS, RunProgress, in_words, new_console

TITLE = "wiredcartpoles-perdqnavg-e9ee76f9"
RESULT = "return 192.9 in training, 191.8 held out"


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when told to."""
    now = SimpleNamespace(time=0.0)
    monkeypatch.setattr("fedrl.progress.time.monotonic", lambda: now.time)
    return now


def log():
    return Console(file=io.StringIO(), width=80)


def lines(console):
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 60, 40])
def test_a_terminal_shows_bar_percentage_estimate_and_the_whole_result(clock, width):
    terminal = Console(file=io.StringIO(), width=width, force_terminal=True)
    with RunProgress(TITLE, terminal) as progress:
        progress.begin(100.0, 0.0)
        clock.time = 30.0
        progress.advance(50.0)
        progress.headline(RESULT)
        paper = Console(file=io.StringIO(), width=width)
        paper.print(progress._bar)
    *text, bar = lines(paper)
    assert " ".join(line.strip() for line in text) == f"{TITLE}: {RESULT}"
    assert "50%" in bar
    assert "about 30 s left" in bar
    assert bar.startswith("━")


def test_a_log_has_lines_with_an_estimate(clock):
    console = log()
    with RunProgress("job", console) as progress:
        progress.begin(100.0, 20.0)
        clock.time = 20.0
        progress.advance(1.0)
        clock.time = 40.0
        progress.advance(39.0)
    assert lines(console) == [
        "job: 20% was done before, continuing",
        "job: 21% done, estimating the time left",
        # 40 units in 40 seconds of this run, 40 left.
        "job: 60% done, about 40 s left",
    ]


def test_a_log_has_the_latest_result_now_and_then_and_the_last_one_at_the_end(clock):
    console = log()
    with RunProgress(TITLE, console) as progress:
        progress.begin(100.0, 0.0)
        for second in range(0, 40, 4):
            clock.time = float(second)
            progress.headline(f"return {second}.0 in training")
            progress.advance(10.0)
        progress.headline("return 99.0 in training")
    assert lines(console) == [
        f"{TITLE}: 0% done, estimating the time left; return 0.0 in training",
        # After more than 15 seconds.
        f"{TITLE}: 40% done, about 18 s left; return 16.0 in training",
        f"{TITLE}: 80% done, about 7 s left; return 32.0 in training",
        f"{TITLE}: 100% done; return 99.0 in training",
    ]


def test_a_result_is_printed_after_each_long_stretch_of_training(clock):
    console = log()
    with RunProgress("run", console) as progress:
        progress.begin(3.0, 0.0)
        progress.headline("return 1.0")
        for number in (2, 3, 4):
            clock.time += 60.0
            progress.advance(1.0)
            progress.headline(f"return {number}.0")
    said = [line.partition("; ")[2] for line in lines(console)]
    assert [one for one in said if one] == ["return 1.0", "return 2.0", "return 3.0", "return 4.0"]


def test_an_interrupted_run_prints_its_last_result(clock):
    console = log()

    def interrupted():
        with RunProgress("run", console) as progress:
            progress.begin(2.0, 0.0)
            progress.headline("return 1.0")
            progress.headline("return 2.0")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert lines(console)[-1].endswith("return 2.0")


def test_lines_of_a_log_are_not_wrapped(clock):
    console = Console(file=io.StringIO(), width=20)
    with RunProgress(TITLE, console) as progress:
        progress.begin(1.0, 0.5)
        progress.headline(RESULT)
        progress.say("results: /some/where/far/away/from/here")
    assert lines(console) == [
        f"{TITLE}: 50% was done before, continuing",
        f"{TITLE}: 50% done, estimating the time left; {RESULT}",
        "results: /some/where/far/away/from/here",
    ]


def test_a_notebook_shows_a_bar_that_is_updated_in_place(clock, monkeypatch):
    shown, kept = [], []

    def text(bar):
        paper = Console(file=io.StringIO(), width=100)
        paper.print(bar)
        return paper.file.getvalue()

    def display(bar, display_id=False):
        if display_id:
            kept.append(bar)
        return SimpleNamespace(update=lambda bar: shown.append(text(bar)))

    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    notebook = Console(file=io.StringIO(), width=100, force_jupyter=True)
    with RunProgress("run", notebook) as progress:
        progress.begin(100.0, 0.0)
        for second in range(1, 4):
            clock.time = float(second)
            progress.advance(25.0)
            progress.headline(f"return {second}.0")
    assert len(kept) == 1
    assert any("50%" in one for one in shown)
    assert "75%" in shown[-1]
    assert "run: return 3.0" in shown[-1]


@pytest.mark.parametrize(
    ("seconds", "words"), [(3.2, "3 s"), (89, "89 s"), (600, "10 min"), (7200, "2.0 h")]
)
def test_durations_in_words(seconds, words):
    assert in_words(seconds) == words


def test_tables_are_not_folded_where_nothing_says_how_wide_it_is(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("os.isatty", lambda fd: False)
    assert new_console().width == WIDTH_OF_LOGS
    monkeypatch.setenv("COLUMNS", "72")
    assert new_console().width == 72
