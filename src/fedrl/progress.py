"""Progress of long jobs: a live bar on a terminal, a line now and then in a log."""

import time
import warnings
from contextlib import ExitStack
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

# Seconds between two lines where there is no terminal.
LOG_EVERY = 15.0
# Until this part of the work is done, compilation makes the speed meaningless.
EARLIEST_ESTIMATE = 0.02


def in_words(seconds: float) -> str:
    """About how long, for people."""
    if seconds < 90:
        return f"{max(seconds, 0):.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


class WorkProgress:
    """How much of the work is done, and how long the rest will take at the speed so far.

    `total` and `done` are in any unit proportional to time; what was done by an earlier run counts
    as done but not towards the speed.
    """

    def __init__(self, title: str, total: float, done: float, console: Console) -> None:
        self._title, self._total, self._done = title, total, done
        self._console = console
        self._at_start = done
        self._started = self._logged = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(title, total=total, left="")
        self._bar.update(self._task, completed=done)

    def __enter__(self) -> "WorkProgress":
        if self._at_start:
            share = self._at_start / self._total
            self._console.print(
                f"{self._title}: {share:.0%} was done before, continuing", highlight=False
            )
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def advance(self, amount: float, part: str) -> None:
        """Count finished work of a part."""
        self._done += amount
        now = time.monotonic()
        newly = self._done - self._at_start
        if newly > EARLIEST_ESTIMATE * self._total:
            left = (self._total - self._done) * (now - self._started) / newly
            estimate = f"about {in_words(left)} left"
        else:
            estimate = "estimating the time left"
        self._bar.update(self._task, completed=self._done, left=f"{estimate} ({part})")
        if not self._console.is_terminal and now - self._logged > LOG_EVERY:
            self._logged = now
            self._console.print(
                f"{self._title}: {self._done / self._total:.0%} done, {estimate} ({part})",
                highlight=False,
            )


class RunProgress(ExitStack):
    """Shows what a run tells about itself (see `experiment.driver.Watcher`)."""

    def __init__(self, title: str, console: Console) -> None:
        super().__init__()
        self._title, self._console = title, console
        self._work: WorkProgress | None = None
        self._headline = "compiling"

    def begin(self, total: float, done: float) -> None:
        work = WorkProgress(self._title, total, done, self._console)
        self._work = self.enter_context(work)

    def advance(self, amount: float) -> None:
        if self._work is not None:
            self._work.advance(amount, self._headline)

    def headline(self, text: str) -> None:
        first = self._headline == "compiling"
        self._headline = text
        if first and not self._console.is_terminal:
            self._console.print(f"{self._title}: {text}", highlight=False)

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        self._console.print(f"{self._title}: {text}", highlight=False, soft_wrap=True)


class Silence:
    """For those who do not want to know."""

    def begin(self, total: float, done: float) -> None: ...

    def advance(self, amount: float) -> None: ...

    def headline(self, text: str) -> None: ...

    def say(self, text: str) -> None: ...

    def warn(self, text: str) -> None:
        warnings.warn(text, stacklevel=2)
