"""The server's side of QAvg and PAvg with known dynamics: the model is a table."""

from collections.abc import Mapping
from math import sqrt
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.experiment.toml import to_toml
from fedrl.files import Array, Arrays, write_atomically
from fedrl.keys import Purpose, replicate_key
from fedrl.network.agent_client import REPLICATE
from fedrl.network.deployment import EXPERIMENT
from fedrl.network.server_side import Arrived, Planned, ServerSide
from fedrl.network.table_client import TABLE, TableClient
from fedrl.runs.run_directory import RunDirectory
from fedrl.strategies.corrections import NoCorrection
from fedrl.strategies.strategy import ServerState
from fedrl.tabular.experiment import TabularExperiment
from fedrl.tabular.learners import ProjPAvg, QAvg, SoftPAvg
from fedrl.tabular.rounds import gain_over_plateau

# How often an agent is let go further than it could without a correction: a margin that has let
# all honest agents in that we tried; unlike without a correction, we have no proof.
MARGIN = 10.0


class ServerOfTables(ServerSide):
    """The server of an experiment on tables."""

    experiment: TabularExperiment
    wide = True

    def __init__(self, experiment: TabularExperiment) -> None:
        agent = TableClient(experiment, 0)
        super().__init__(experiment, agent)
        self.evaluated = range(experiment.updates)
        with jax.enable_x64(True):
            root = jnp.uint32(experiment.seed)
            self.noise = replicate_key(root, jnp.uint32(REPLICATE), Purpose.NOISE)
        self._first = agent.server()
        family = experiment.family
        values = family.task(agents=self.agents, seed=experiment.seed).R / (1 - family.gamma)
        self._possible = float(values.min()), float(values.max())

    def directory(self, runs: Path) -> RunDirectory:
        path = runs / self.experiment.directory_name
        path.mkdir(parents=True, exist_ok=True)
        if not (path / EXPERIMENT).exists():
            write_atomically(path / EXPERIMENT, to_toml(self.experiment).encode())
        return RunDirectory(path, self.experiment)

    def begin(self) -> ServerState:
        return self._first

    def step(
        self, state: ServerState, arrived: Mapping[int, Arrived], number: int, asked: int
    ) -> ServerState:
        after = super().step(state, arrived, number, asked)
        if self.experiment.strategy.averages:
            return after
        with jax.enable_x64(True):
            nearest = self.experiment.learner.nearest(after.sent.model[TABLE][..., None])
        model = {TABLE: np.asarray(nearest)[..., 0]}
        return after._replace(sent=after.sent._replace(model=model))

    @property
    def largest_direction(self) -> float:
        """Of policies: advantages are at most high - low; what they are multiplied by, as below.

        Those of QAvg are differences of values, which are less.
        """
        low, high = self._possible
        return MARGIN * (high - low + 1) / (1 - self.experiment.family.gamma)

    def largest_change(self, planned: Planned, before: Arrays) -> float | None:
        experiment, table = self.experiment, before[TABLE]
        low, high = self._possible
        match experiment.learner:
            case QAvg() if experiment.lr <= 1:
                # Entries are averages of possible values and of those that were sent.
                entry = _reach(table, low, high)
            case ProjPAvg():
                entry = _reach(table, 0.0, 1.0)
            case SoftPAvg():
                # |A| is at most high - low, and what it is multiplied by at most 1 / (1 - gamma).
                entry = planned.E * experiment.lr * (high - low) / (1 - experiment.family.gamma)
            case _:
                return None
        margin = 1.0 if type(experiment.correction) is NoCorrection else MARGIN
        return margin * entry * sqrt(table.size)

    def why_not(self, metrics: Mapping[str, float]) -> str | None:
        """Discounted rewards of what can be earned in a step, whatever the dynamics are."""
        low, high = self._possible
        told = metrics.get("objective", low)
        # To rounding.
        slack = 1e-9 * max(abs(low), abs(high))
        if low - slack <= told <= high + slack:
            return None
        return f"its objective is {told:.6g}, possible are {low:.6g} to {high:.6g}"

    def scale(self, objectives: list[Array]) -> float:
        """Decays at plateaus, as in `fedrl.tabular.rounds`, but at those of the median agent.

        What an agent says of itself cannot be checked, and the mean would follow any one of them.
        """
        scale, decay = 1.0, self.experiment.decay or 1.0
        for r in range(3, len(objectives) + 1):
            gains = gain_over_plateau(objectives[r - 1], objectives[r - 2])
            heard = gains[~np.isnan(gains)]
            if heard.size and np.median(heard) < 0:
                scale *= decay
        return scale


def _reach(table: Array, low: float, high: float) -> float:
    """The largest difference between the entries of a table and what is possible."""
    return max(high, float(table.max())) - min(low, float(table.min()))
