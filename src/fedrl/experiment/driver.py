"""Carries out a run: legs of training with metrics and checkpoints between them."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

import jax
import numpy as np

from fedrl.errors import FedrlError
from fedrl.experiment import checkpoint, metrics
from fedrl.experiment.legs import Leg, Replicates, plan
from fedrl.experiment.run_directory import RunDirectory

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

    def warn(self, text: str) -> None:
        """Something the user should know."""


def carry_out(directory: RunDirectory, watcher: Watcher) -> None:
    """Run, or go on with, the experiment of a directory until it is finished."""
    with directory.locked():
        if directory.finished:
            return
        experiment = directory.experiment
        legs = list(plan(experiment))
        replicates = Replicates(experiment)
        first = _restore(directory, replicates, watcher.warn)
        watcher.begin(sum(map(_work, legs)), sum(map(_work, legs[:first])))
        if first == 0:
            replicates.start()
        pause = _Pause()
        with _interrupts(watcher.warn) as interrupted:
            for number, leg in enumerate(legs[first:], first):
                share = _work(leg) / experiment.seeds

                def advance(seeds: int, share: float = share) -> None:
                    watcher.advance(seeds * share)

                record = replicates.run(leg, advance)
                directory.save_metrics(
                    number, metrics.rows(experiment, leg, record, replicates.thetas)
                )
                watcher.headline(metrics.headline(record, experiment))
                last = number == len(legs) - 1
                if last or interrupted() or pause.over():
                    with pause.measured():
                        checkpoint.save(
                            directory.checkpoints, experiment.digest, number, replicates.export()
                        )
                if interrupted() and not last:
                    raise KeyboardInterrupt
            directory.finish(named_leaves(replicates.models()))


def named_leaves(tree: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The leaves of a tree under the names of their places."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _work(leg: Leg) -> float:
    """How long a leg takes, in units of training; an evaluation counts a little."""
    return leg.rounds * leg.E + 1.0


def _restore(directory: RunDirectory, replicates: Replicates, warn: Callable[[str], None]) -> int:
    """Load the newest checkpoint that is good; the number of the leg to go on with."""
    for file in reversed(checkpoint.checkpoints(directory.checkpoints)):
        try:
            leg, leaves = checkpoint.load(file, directory.experiment.digest)
            if not replicates.matches(leaves):
                raise FedrlError(f"{file} has arrays of other shapes than this experiment")
        except FedrlError as error:
            warn(f"{error}; looking for an older one")
            continue
        replicates.restore(leaves)
        return leg + 1
    return 0


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
    """Tells whether someone wants to stop; the second request stops at once."""
    wanted = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        if wanted.is_set():
            raise KeyboardInterrupt
        wanted.set()
        warn("stopping at the next evaluation to lose nothing; once more to stop at once")

    if threading.current_thread() is not threading.main_thread():
        yield wanted.is_set
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wanted.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
