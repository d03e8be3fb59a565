"""Carries out a run: legs of training with metrics and checkpoints between them."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol, get_args

from fedrl import arguments
from fedrl.engine import divergence
from fedrl.engine.all_seeds import Training
from fedrl.engine.divergence import Diverged, OnDivergence
from fedrl.engine.executors import training
from fedrl.engine.plan import Leg, plan
from fedrl.engine.programs import Record
from fedrl.errors import FedrlError
from fedrl.runs import checkpoint, metrics
from fedrl.runs.run_directory import RunDirectory
from fedrl.runs.tracking import tracked
from fedrl.trackers.tracker import Tracker
from fedrl.trees import named_leaves

# Checkpoints take at most this share of the time.
CHECKPOINT_SHARE = 0.05


class Watcher(Protocol):
    """Who wants to know how a run goes."""

    def begin(self, total: float, done: float) -> None:
        """The length of the whole work, and what an earlier process has done of it."""

    def advance(self, amount: float) -> None:
        """So much more is done."""

    def headline(self, text: str) -> None:
        """The latest result in words."""

    def say(self, text: str) -> None:
        """Something that is good to know."""

    def warn(self, text: str) -> None:
        """Something the user should know."""


def carry_out(
    directory: RunDirectory,
    watcher: Watcher,
    trackers: Mapping[str, Tracker] | None = None,
    wave: int | None = None,
    on_divergence: OnDivergence = "stop",
) -> None:
    """Run, or go on with, the experiment of a directory until it is finished.

    `wave`: agents that work side by side; changes no result. `on_divergence`: whether a run goes on
    when a reward, a loss, a parameter or a return is not finite; changes nothing of what comes.
    """
    arguments.choice("on_divergence", on_divergence, get_args(OnDivergence))
    while_tracked = tracked(directory, trackers or {}, say=watcher.say, warn=watcher.warn)
    with directory.locked():
        if directory.finished:
            with while_tracked:
                return
        directory.refuse_if_changed(watcher.warn)
        directory.sweep()
        experiment = directory.experiment
        legs = list(plan(experiment))
        replicates = training(experiment, directory.start(), wave)
        first = _restore(directory, replicates, legs, watcher.warn)
        watcher.begin(sum(map(_work, legs)), sum(map(_work, legs[:first])))
        if first == 0:
            directory.begin()
            replicates.start()
        health = _Health(directory, replicates, on_divergence, watcher.warn)
        if first > 0:
            health.go_on()
        pause, since = _Pause(), time.monotonic()
        with _Interrupts(watcher.warn) as interrupts, while_tracked as tell:
            for number, leg in enumerate(legs[first:], first):
                share = _work(leg) / experiment.seeds

                def advance(seeds: float, share: float = share) -> None:
                    watcher.advance(seeds * share)
                    interrupts.wanted()

                record = replicates.run(leg, advance)
                experiment.family.raise_trouble()
                if words := experiment.family.warning():
                    watcher.warn(words)
                diverged = health.news()
                if record is not None or diverged:
                    rows = metrics.rows(experiment, leg, record, replicates.thetas, diverged)
                    directory.save_metrics(leg.trained, rows)
                    tell(rows)
                if record is not None:
                    watcher.headline(metrics.headline(record, experiment))
                # Without a checkpoint: whoever resumes the run comes to the same place.
                health.check(leg, record)
                last = number == len(legs) - 1
                if last or interrupts.wanted() or pause.over():
                    with pause.measured():
                        checkpoint.save(
                            directory.checkpoints,
                            experiment.digest,
                            number,
                            leg.trained,
                            replicates.export(),
                        )
                    now = time.monotonic()
                    directory.spend(now - since)
                    since = now
                if interrupts.wanted() and not last:
                    raise KeyboardInterrupt
            directory.finish(named_leaves(replicates.models()))
            checkpoint.keep(directory.checkpoints, 1)
            if interrupts.wanted():
                raise KeyboardInterrupt


def _work(leg: Leg) -> float:
    """How long a leg takes, in units of training; an evaluation counts a little."""
    return leg.rounds * leg.E + float(leg.evaluates)


def _restore(
    directory: RunDirectory,
    replicates: Training,
    legs: list[Leg],
    warn: Callable[[str], None],
) -> int:
    """Load the newest checkpoint that is good; the number of the leg to go on with."""
    files = checkpoint.checkpoints(directory.checkpoints)
    for file in reversed(files):
        try:
            leg, trained, leaves = checkpoint.load(file, directory.experiment.digest)
            if leg >= len(legs) or legs[leg].trained != trained:
                raise FedrlError(f"{file} is from a version of fedrl that pauses at other places")
            if not replicates.matches(leaves):
                raise FedrlError(f"{file} has arrays of other shapes than this experiment")
        except FedrlError as error:
            warn(f"{error}; looking for an older one")
            continue
        replicates.restore(leaves)
        return leg + 1
    if files:
        warn("no checkpoint can be used: starting from the beginning")
    return 0


class _Health:
    """Notices what is not finite, and stops the run unless it is to continue."""

    def __init__(
        self,
        directory: RunDirectory,
        replicates: Training,
        on_divergence: OnDivergence,
        warn: Callable[[str], None],
    ) -> None:
        self._directory, self._replicates = directory, replicates
        self._stops, self._warn = on_divergence == "stop", warn
        # What agents met while they explored is news of the first leg.
        self._diverged = Diverged.nobody(replicates.diverged())
        self._said: set[str] = set()

    def go_on(self) -> None:
        """From a checkpoint, which may have been made although agents had diverged."""
        self.news()
        self.check(None, None)

    def news(self) -> list[tuple[int, int, int]]:
        """(seed, agent, update) of agents that have diverged since somebody last asked."""
        before, self._diverged = self._diverged, self._replicates.diverged()
        return self._diverged.since(before)

    def check(self, leg: Leg | None, record: Record | None) -> None:
        """Say what is not finite now, and what is hardly so."""
        experiment, thetas = self._directory.experiment, self._replicates.thetas
        if leg is not None and (words := divergence.too_large(record)):
            self._once("large", words)
        words = self._diverged.sentence(experiment, thetas)
        if words is None and leg is not None:
            words = divergence.in_evaluation(record, leg, experiment, thetas)
        if words is None:
            return
        if self._stops:
            path = self._directory.path
            raise FedrlError(
                f"{path} has stopped: {words}; mend the rewards or lower the step size in a new "
                f"run, or go on all the same with `fedrl resume {path} --on-divergence continue`"
            )
        self._once("diverged", f"{words}; going on")

    def _once(self, subject: str, words: str) -> None:
        if subject not in self._said:
            self._said.add(subject)
            self._warn(words)


class _Pause:
    """Time between checkpoints: long enough that they do not slow the run down."""

    def __init__(self) -> None:
        self._next = time.monotonic() + 1.0

    def over(self) -> bool:
        return time.monotonic() >= self._next

    @contextmanager
    def measured(self) -> Iterator[None]:
        start = time.monotonic()
        yield
        now = time.monotonic()
        self._next = now + (now - start) / CHECKPOINT_SHARE


class _Interrupts:
    """Tells whether someone wants to stop; the second request does not wait for the leg's end."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._wanted = threading.Event()
        self._told = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "_Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        # Nothing is printed here: the signal may have come in the middle of printing.
        if self._wanted.is_set():
            raise KeyboardInterrupt
        self._wanted.set()

    def wanted(self) -> bool:
        """Whether to stop after this leg; says so once."""
        if self._wanted.is_set() and not self._told:
            self._told = True
            self._warn("stopping in a moment, to lose nothing; once more to stop at once")
        return self._wanted.is_set()
