"""What a federation of tables leaves: the objective of the averaged policy, round by round."""

from functools import cached_property
from pathlib import Path

import pandas as pd

from fedrl.errors import FedrlError
from fedrl.experiment.toml import about_tables, read_settings, table_of
from fedrl.files import read_text
from fedrl.runs.run import Run, measurements
from fedrl.runs.run_directory import EXPERIMENT, RunDirectory
from fedrl.tabular.experiment import TabularExperiment

OBJECTIVE, AVERAGE = "objective", "average"


class TableRun:
    """The run directory of a federation of tables."""

    def __init__(self, path: Path) -> None:
        self.path, self.experiment = path, read_settings(TabularExperiment, path / EXPERIMENT)
        self._directory = RunDirectory(path, self.experiment)
        self._directory.verify(EXPERIMENT)
        self.finished, self.seconds = self._directory.finished, self._directory.seconds

    def metrics(self) -> pd.DataFrame:
        """Everything measured so far, one row for each number."""
        return measurements(self._directory)

    @cached_property
    def objectives(self) -> pd.DataFrame:
        """A row for each round done, a column for the average and one for each agent.

        The value of the averaged policy in an agent's own environment, as the agent measured it;
        missing where an agent did not answer. The average is over those that did.
        """
        frame = self.metrics()
        frame = frame[frame["metric"] == OBJECTIVE]
        if frame.empty:
            raise FedrlError(f"{self.path} has no results yet: its first round is not done")
        found = frame.pivot_table(index="round", columns="environment", values="value")
        found = found.reindex(columns=range(self.experiment.agents))
        found = found.rename(columns="agent {}".format)
        found.insert(0, AVERAGE, found.mean(axis=1))
        return found

    def updates(self, rounds: int) -> int:
        """Local updates of each agent after so many rounds."""
        return min(rounds * self.experiment.E, self.experiment.updates)


AnyRun = Run | TableRun


def open_run(path: Path, *, allow_code: bool = False) -> AnyRun:
    """The run in a folder, of either kind."""
    file = path / EXPERIMENT
    if file.is_file() and about_tables(table_of(read_text(file), str(file))):
        return TableRun(path)
    return Run(path, allow_code=allow_code)
