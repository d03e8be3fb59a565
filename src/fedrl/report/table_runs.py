"""What a federation of tables leaves: the objective of the averaged policy, round by round."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedrl.errors import FedrlError
from fedrl.experiment.toml import about_tables, read_settings, table_of
from fedrl.files import read_text
from fedrl.runs.run import Run
from fedrl.runs.run_directory import EXPERIMENT, RunDirectory
from fedrl.tabular.experiment import TabularExperiment

if TYPE_CHECKING:
    import pandas as pd

AVERAGE = "average"


@dataclass(frozen=True)
class TableRun:
    """The run directory of a federation of tables."""

    path: Path
    experiment: TabularExperiment

    @property
    def finished(self) -> bool:
        """Whether it came to its end."""
        return RunDirectory(self.path, self.experiment).finished

    def objectives(self) -> "pd.DataFrame":
        """A row for each round done, a column for each agent and one for their average.

        The value of the averaged policy in an agent's own environment, as the agent measured it;
        missing where an agent did not answer. The average is over those that did.
        """
        import pandas as pd

        text = RunDirectory(self.path, self.experiment).metrics_text()
        frame = pd.read_csv(io.StringIO(text), dtype={"agent": "str"})
        frame = frame[frame["metric"] == "objective"]
        if frame.empty:
            raise FedrlError(f"{self.path} has no results yet: its first round is not done")
        by_agent = frame.pivot_table(index="round", columns="environment", values="value")
        by_agent = by_agent.reindex(columns=range(self.experiment.agents))
        by_agent.columns = pd.Index([f"agent {i}" for i in range(self.experiment.agents)])
        return by_agent.assign(**{AVERAGE: by_agent.mean(axis=1)})

    def updates(self, rounds: int) -> int:
        """Local updates of each agent after so many rounds."""
        return min(rounds * self.experiment.E, self.experiment.updates)


AnyRun = Run | TableRun


def table_run(path: Path) -> TableRun | None:
    """The federation of tables in a folder; None if it is another kind of run, or none."""
    if not (path / EXPERIMENT).is_file():
        return None
    text = read_text(path / EXPERIMENT)
    if not about_tables(table_of(text, str(path / EXPERIMENT))):
        return None
    experiment = read_settings(TabularExperiment, path / EXPERIMENT)
    RunDirectory(path, experiment).verify(EXPERIMENT)
    return TableRun(path, experiment)
