"""Runs side by side: on the terminal, as figures, as a page."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from fedrl.errors import FedrlError

if TYPE_CHECKING:
    import pandas as pd

    from fedrl.experiment.run import Run


def compare(
    *runs: "Run",
    out: str | Path | None = None,
    html: str | Path | None = None,
    metric: str = "return",
) -> "pd.DataFrame":
    """Print tables of runs and their differences; write the curves, and all of it as one page.

    Figures and a CSV file go to `out`, the first run's `figures` unless given. `html` is a file.
    The values at the end come back: a row for each way to get a policy, a column for each split.
    """
    import pandas as pd

    from fedrl.report.arms import final, interval
    from fedrl.report.html.page import write_page
    from fedrl.report.runs import report_runs

    if not runs:
        raise FedrlError("name at least one run: fedrl report runs/NAME-HASH")
    console = Console()
    if html is not None:  # first: a file that cannot be written is said before anything else is
        write_page(runs, Path(html), metric)
    folder = Path(out) if out else runs[0].path / "figures"
    arms, splits = report_runs(runs, folder, console, metric)
    if html is not None:
        console.print(f"page: {html}", highlight=False, soft_wrap=True)
    return pd.DataFrame(
        [[str(interval(final(arm, split))) for split in splits] for arm in arms],
        index=[arm.shown for arm in arms],
        columns=splits,
    )
