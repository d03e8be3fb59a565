"""Carries out a run: legs of training with metrics and checkpoints between them."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import get_args

from fedrl import arguments
from fedrl.engine import divergence
from fedrl.engine.all_seeds import Training
from fedrl.engine.divergence import Diverged, OnDivergence
from fedrl.engine.executors import training
from fedrl.engine.plan import Leg, plan
from fedrl.engine.programs import Record
from fedrl.errors import FedrlError
from fedrl.progress import Silence
from fedrl.runs import checkpoint, metrics
from fedrl.runs.run_directory import RunDirectory
from fedrl.runs.tracking import tracked
from fedrl.trackers.tracker import Tracker
from fedrl.trees import named_leaves

# Checkpoints take at most this share of the time.
CHECKPOINT_SHARE = 0.05


def carry_out(
    directory: RunDirectory,
    watcher: Silence,
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
        if first > 0:  # the checkpoint may have been made although agents had diverged
            health.news()
            health.check(None, None)
        pause, since = _Pause(), time.monotonic()
        with _interrupts(watcher.warn) as wanted, while_tracked as tell:
            for number, leg in enumerate(legs[first:], first):
                share = _work(leg) / experiment.seeds

                def advance(seeds: float, share: float = share) -> None:
                    watcher.advance(seeds * share)
                    wanted()

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
                if last or wanted() or pause.over():
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
                if wanted() and not last:
                    raise KeyboardInterrupt
            directory.finish(named_leaves(replicates.models()))
            checkpoint.keep(directory.checkpoints, 1)
            if wanted():
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


@contextmanager
def _interrupts(warn: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Whether to stop after this leg, which is said once; a second request does not wait for it."""
    requested = said = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        # Nothing is printed here: the signal may have come in the middle of printing.
        if requested:
            raise KeyboardInterrupt
        requested = True

    def wanted() -> bool:
        nonlocal said
        if requested and not said:
            said = True
            warn("stopping in a moment, to lose nothing; once more to stop at once")
        return requested

    here = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGINT, signal.SIGTERM) if here else ()
    before = {number: signal.signal(number, note) for number in signals}
    try:
        yield wanted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
