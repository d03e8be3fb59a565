"""Live progress of a run: how much is done, how long the rest takes, the latest returns."""

import warnings
from contextlib import ExitStack

from rich.console import Console

from fedrl.report.progress import WorkProgress


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

    def warn(self, text: str) -> None:
        self._console.print(f"{self._title}: {text}", highlight=False, soft_wrap=True)


class Silence:
    """For those who do not want to know."""

    def begin(self, total: float, done: float) -> None: ...

    def advance(self, amount: float) -> None: ...

    def headline(self, text: str) -> None: ...

    def warn(self, text: str) -> None:
        warnings.warn(text, stacklevel=2)
