"""Progress of long jobs: a live bar on a terminal or in a notebook, lines in a log or pipe."""

import os
import time
import warnings
from collections.abc import Iterable
from math import inf
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

# Seconds between two lines where there is no live bar.
LOG_EVERY = 15.0
# And between two updates of a notebook's output.
NOTEBOOK_EVERY = 0.2
# Characters in a line where nothing says how many there are: rich would fold tables at 80.
WIDTH_OF_LOGS = 160
# Until this part of the work is done, compilation makes the speed meaningless.
EARLIEST_ESTIMATE = 0.02


def in_words(seconds: float) -> str:
    """About how long, for people."""
    if seconds < 90:
        return f"{max(seconds, 0):.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def new_console(*, quiet: bool = False) -> Console:
    """A console as wide as the terminal or notebook, or wide enough for tables in a log."""
    console = Console(quiet=quiet)
    unknown = not (console.is_jupyter or "COLUMNS" in os.environ or any(map(os.isatty, range(3))))
    if unknown:
        console.width = WIDTH_OF_LOGS
    return console


class _Bar(Progress):
    """A line of text above a bar that fills the width, so that neither pushes the other out."""

    def __init__(self, title: str, total: float, console: Console) -> None:
        self.text = title
        super().__init__(
            BarColumn(bar_width=None, table_column=Column(ratio=1)),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
            expand=True,
            disable=not console.is_terminal,
        )
        self.task = self.add_task("", total=total)

    def get_renderables(self) -> Iterable[RenderableType]:
        yield Text(self.text)
        yield from super().get_renderables()


class Silence:
    """Is told how a run goes, and keeps all of it but warnings to itself."""

    def begin(self, total: float, done: float) -> None:
        """The length of the whole work, and what an earlier process has done of it.

        Both are in any unit proportional to time.
        """

    def advance(self, amount: float) -> None:
        """So much more is done."""

    def headline(self, text: str) -> None:
        """The latest result in words, or what is being worked on."""

    def say(self, text: str) -> None:
        """Something that is good to know."""

    def warn(self, text: str) -> None:
        """Something the user should know."""
        warnings.warn(text, stacklevel=2)


class RunProgress(Silence):
    """Shows how much is done, and how long the rest will take at the speed so far."""

    def __init__(self, title: str, console: Console) -> None:
        self._title, self._console = title, console
        self._live = console.is_terminal or console.is_jupyter
        self._bar: _Bar | None = None
        self._notebook: Any = None
        self._shown = -inf
        self._estimate, self._latest, self._news = "", "", False

    def __enter__(self) -> "RunProgress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is None:
            return
        self._bar.stop()
        self._shown = -inf
        self._show()
        if not self._live and (self._news or self._done >= self._total):
            self._log()

    def begin(self, total: float, done: float) -> None:
        self._total, self._done, self._at_start = total, done, done
        self._started = self._logged = self._logged_news = time.monotonic()
        if done:
            self.say(f"{self._title}: {done / total:.0%} was done before, continuing")
        self._bar = _Bar(self._title, total, self._console)
        if self._console.is_jupyter:
            from IPython.display import display

            self._notebook = display(self._bar, display_id=True)
        self._bar.start()
        self._show()

    def advance(self, amount: float) -> None:
        self._done += amount
        now = time.monotonic()
        newly = self._done - self._at_start
        if self._done >= self._total:
            self._estimate = ""
        elif newly > EARLIEST_ESTIMATE * self._total:
            left = (self._total - self._done) * (now - self._started) / newly
            self._estimate = f"about {in_words(left)} left"
        else:
            self._estimate = "estimating the time left"
        self._show()
        # The last line waits for the last result.
        due = now - self._logged > LOG_EVERY and self._done < self._total
        if due and not self._live:
            self._log()

    def headline(self, text: str) -> None:
        first = not self._latest
        self._latest, self._news = text, True
        self._show()
        if not self._live and (first or time.monotonic() - self._logged_news > LOG_EVERY):
            self._log()

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        self.say(f"{self._title}: {text}")

    def _show(self) -> None:
        """Bring the bar up to date."""
        assert self._bar is not None
        self._bar.text = f"{self._title}: {self._latest}" if self._latest else self._title
        self._bar.update(self._bar.task, completed=self._done, description=self._estimate)
        if self._notebook is not None and time.monotonic() - self._shown > NOTEBOOK_EVERY:
            self._shown = time.monotonic()
            self._notebook.update(self._bar)

    def _log(self) -> None:
        """Print a line; a result is in it if it is new."""
        self._logged = time.monotonic()
        said = f"{self._title}: {self._done / self._total:.0%} done"
        if self._done < self._total:
            said += f", {self._estimate or 'estimating the time left'}"
        if self._news:
            said += f"; {self._latest}"
            self._news, self._logged_news = False, self._logged
        self.say(said)
