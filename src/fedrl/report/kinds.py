"""Which kind of report runs have: those of networks measure returns, those of tables objectives."""

from collections.abc import Sequence

from fedrl.errors import FedrlError
from fedrl.report.run_report import RunReport
from fedrl.report.table_report import TableReport
from fedrl.report.table_runs import AnyRun, TableRun
from fedrl.runs.metrics import RETURN

Report = RunReport | TableReport


def report_of(runs: Sequence[AnyRun], metric: str = RETURN) -> Report:
    """The report of some runs of one kind; `metric` is what those of networks are compared by."""
    if not runs:
        raise FedrlError("name at least one run: fedrl report runs/NAME-HASH")
    tables = [run for run in runs if isinstance(run, TableRun)]
    networks = [run for run in runs if not isinstance(run, TableRun)]
    if tables and networks:
        raise FedrlError(
            f"{tables[0].path} is of tables and {networks[0].path} is not: report them one by one"
        )
    return TableReport(tables) if tables else RunReport(networks, metric)
