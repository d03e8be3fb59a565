"""Runs side by side: on the terminal, as figures, as a page."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedrl.errors import FedrlError
from fedrl.progress import new_console

if TYPE_CHECKING:
    import pandas as pd

    from fedrl.runs.run import Run


def report(
    paths: Sequence[Path],
    out: Path | None,
    html: Path | None,
    metric: str = "return",
    *,
    allow_code: bool = False,
) -> None:
    """`compare` for folders: of runs, of federations of tables, or of whole federations."""
    from fedrl.report.html.tables_page import write_tables_page
    from fedrl.report.table_report import report_tables
    from fedrl.report.table_runs import table_run
    from fedrl.runs.run import Run

    folders = [run for path in paths for run in _runs_in(path)]
    tables = {path: found for path in folders if (found := table_run(path)) is not None}
    if not tables:
        runs = [Run(path, allow_code=allow_code) for path in folders]
        compare(*runs, out=out, html=html, metric=metric)
        return
    others = [path for path in folders if path not in tables]
    if others:
        raise FedrlError(
            f"{next(iter(tables))} is of tables and {others[0]} is not: report them one by one"
        )
    console, found_tables = new_console(), list(tables.values())
    if html is not None:
        write_tables_page(found_tables, html)
    report_tables(found_tables, out or found_tables[0].path / "figures", console)
    if html is not None:
        console.print(f"page: {html}", highlight=False, soft_wrap=True)


def _runs_in(path: Path) -> list[Path]:
    """The trainings of a federation, if it is the folder of one; otherwise the folder itself."""
    from fedrl.network.deployment import FEDERATION, Folder

    folder = Folder(path)
    if not (folder.server / FEDERATION).is_file():
        return [path]
    runs = sorted(file.parent for file in folder.runs.glob("*/experiment.toml"))
    if not runs:
        raise FedrlError(
            f"{path} has no results yet: `fedrl federation up {path}` or `fedrl server {path}` "
            "begins its training"
        )
    return runs


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
    from fedrl.report.run_report import report_runs

    if not runs:
        raise FedrlError("name at least one run: fedrl report runs/NAME-HASH")
    console = new_console()
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
