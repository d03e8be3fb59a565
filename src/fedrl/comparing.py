"""Runs side by side: on the terminal, as figures, as a page."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedrl.errors import FedrlError
from fedrl.network.deployment import FEDERATION, Folder
from fedrl.progress import new_console
from fedrl.report.showing import report_of, show, write_page
from fedrl.report.table_runs import AnyRun, open_run


def report(
    paths: Sequence[Path],
    out: Path | None,
    html: Path | None,
    metric: str = "return",
    *,
    allow_code: bool = False,
) -> None:
    """`compare` for folders: of runs, of federations of tables, or of whole federations."""
    folders = [folder for path in paths for folder in _runs_in(path)]
    runs = [open_run(folder, allow_code=allow_code) for folder in folders]
    compare(*runs, out=out, html=html, metric=metric)


def _runs_in(path: Path) -> list[Path]:
    """The trainings of a federation, if it is the folder of one; otherwise the folder itself."""
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
    *runs: AnyRun,
    out: str | Path | None = None,
    html: str | Path | None = None,
    metric: str = "return",
) -> pd.DataFrame:
    """Print tables of runs and their differences; write the curves, and all of it as one page.

    Figures and a CSV file go to `out`, the first run's `figures` unless given. `html` is a file.
    The values at the end come back: a row for each way to get a policy, a column for each split.
    """
    found = report_of(runs, metric)
    console = new_console()
    if html is not None:  # first: a file that cannot be written is said before anything else is
        write_page(found, Path(html))
    show(found, Path(out) if out else runs[0].path / "figures", console)
    if html is not None:
        console.print(f"page: {html}", highlight=False, soft_wrap=True)
    return found.ends()
