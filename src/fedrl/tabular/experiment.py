"""An experiment on tables with known dynamics, described completely; for federations."""

from dataclasses import dataclass, field
from typing import ClassVar, get_args

import numpy as np

from fedrl import arguments
from fedrl.counting import count
from fedrl.errors import FedrlError
from fedrl.experiment.timing import Timing
from fedrl.experiment.toml import Named
from fedrl.strategies.aggregators import Aggregator, Mean
from fedrl.strategies.corrections import Correction, NoCorrection
from fedrl.strategies.server_optimizers import Replace, ServerOptimizer
from fedrl.strategies.strategy import Strategy
from fedrl.tabular.families import RandomMDPs, WindyCliffs
from fedrl.tabular.learners import ProjPAvg, QAvg, SoftPAvg
from fedrl.tabular.problems import DrawnProblems
from fedrl.tabular.replicates import Outcome, Schedule, run_replicates

TabularFamilies = WindyCliffs | RandomMDPs
TabularLearning = QAvg | ProjPAvg | SoftPAvg


@dataclass(frozen=True)
class TabularExperiment(Named):
    """n agents average a table, each in an environment of its own whose dynamics it knows."""

    name: str
    """What the run is called."""
    family: TabularFamilies
    """Where the environments come from."""
    learner: TabularLearning = field(default_factory=QAvg)
    """What an agent does between two communications."""
    correction: Correction = field(default_factory=NoCorrection)
    """What bends every local step of an agent."""
    aggregator: Aggregator = field(default_factory=Mean)
    """What makes one offer of many."""
    server_optimizer: ServerOptimizer = field(default_factory=Replace)
    """How the server steps from the model it sent to the next one."""
    agents: int = 5
    """Agents, each with an environment of its own."""
    E: int = 1
    """Local updates between two communications."""
    updates: int = 640
    """Local updates of each agent."""
    lr: float = 1e-3
    """Step size."""
    decay: float | None = None
    """Factor on the step size when a round brings less than 0.1 %; None: never."""
    seed: int = 0
    """Root of all random numbers."""

    timing: ClassVar[Timing] = Timing()
    lockstep: ClassVar[bool] = True
    communicates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        arguments.of_kind("name", self.name, str)
        arguments.of_kind("family", self.family, *get_args(TabularFamilies))
        arguments.of_kind("learner", self.learner, *get_args(TabularLearning))
        arguments.of_kind("correction", self.correction, Correction)
        arguments.of_kind("aggregator", self.aggregator, Aggregator)
        arguments.of_kind("server_optimizer", self.server_optimizer, ServerOptimizer)
        positive = "a positive number"
        arguments.settle(
            self,
            lr=arguments.number("lr", self.lr, positive, lambda x: 0 < x < 1e30),
            seed=arguments.whole("seed", self.seed, smallest=0, largest=2**32 - 1),
            **{n: arguments.whole(n, getattr(self, n)) for n in ("agents", "E", "updates")},
        )
        if self.decay is not None:
            arguments.number("decay", self.decay, "a number in (0, 1]", lambda x: 0 < x <= 1)
        if self.updates < self.E:
            raise FedrlError(
                f"E = {self.E} is longer than the training ({count(self.updates, 'updates')})"
            )
        self.strategy.check(self.agents, self.participants)

    @property
    def strategy(self) -> Strategy:
        """The three parts that make local learning federated."""
        return Strategy(self.correction, self.aggregator, self.server_optimizer)

    @property
    def participants(self) -> int:
        """Agents that take part in a round: all of them."""
        return self.agents

    @property
    def rounds(self) -> int:
        """Communications until the end; the last round may be shorter."""
        return -(-self.updates // self.E)

    @property
    def schedule(self) -> Schedule:
        return Schedule(np.full(self.updates, self.lr), self.E, self.decay)

    def run(self) -> Outcome:
        """Carry it out in this process."""
        problems = DrawnProblems(self.family, self.agents, None, self.seed, 0, 1)
        return run_replicates(
            *(self.learner, problems, self.schedule, self.strategy),
            gamma=self.family.gamma,
            seed=self.seed,
        )


TABULAR_PRESETS = {
    "windycliffs-qavg": TabularExperiment(
        name="windycliffs-qavg", family=WindyCliffs(), E=4, updates=640, lr=1e-3, decay=0.1
    )
}
"""Experiments on tables by name, for federations."""
