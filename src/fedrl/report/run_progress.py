"""Live progress of a run: how much is done, how long the rest takes, the latest returns."""

import warnings
from types import TracebackType

from rich.console import Console

from fedrl.report.progress import WorkProgress


class RunProgress:
    """Shows what a run tells about itself (see `experiment.driver.Watcher`)."""

    def __init__(self, title: str, console: Console) -> None:
        self._title, self._console = title, console
        self._work: WorkProgress | None = None
        self._headline = "compiling"

    def __enter__(self) -> "RunProgress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._work is not None:
            self._work.__exit__(kind, error, trace)

    def begin(self, total: float, done: float) -> None:
        self._work = WorkProgress(self._title, total, done, self._console)
        self._work.__enter__()

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
