"""An experiment on tables with known dynamics, described completely; for federations."""

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, ClassVar, get_args

from fedrl.arguments import AboveZero, Check, Positive, Whole, check_fields, of_kind, whole
from fedrl.counting import count
from fedrl.errors import FedrlError
from fedrl.experiment.timing import Timing
from fedrl.experiment.toml import Named
from fedrl.strategies.aggregators import Aggregator, Mean
from fedrl.strategies.corrections import Correction, NoCorrection
from fedrl.strategies.server_optimizers import Replace, ServerOptimizer
from fedrl.strategies.strategy import Strategy
from fedrl.tabular.api import Result, run_drawn
from fedrl.tabular.families import RandomMDPs, WindyCliffs
from fedrl.tabular.learners import ProjPAvg, QAvg, SoftPAvg

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
    agents: Whole = 5
    """Agents, each with an environment of its own."""
    E: Whole = 1
    """Local updates between two communications."""
    updates: Whole = 640
    """Local updates of each agent."""
    lr: Positive = 1e-3
    """Step size."""
    decay: AboveZero | None = None
    """Factor on the step size when a round brings less than 0.1 %; None: never."""
    seed: Annotated[int, Check(partial(whole, smallest=0, largest=2**32 - 1))] = 0
    """Root of all random numbers."""

    timing: ClassVar[Timing] = Timing()
    lockstep: ClassVar[bool] = True
    communicates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self, "")
        of_kind("family", self.family, *get_args(TabularFamilies))
        of_kind("learner", self.learner, *get_args(TabularLearning))
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

    def run(self) -> Result:
        """Carry it out in this process."""
        return run_drawn(
            *(self.learner, self.family),
            agents=self.agents,
            E=self.E,
            iterations=self.updates,
            lr=self.lr,
            decay=self.decay,
            strategy=self.strategy,
            seed=self.seed,
        )


TABULAR_PRESETS = {
    "windycliffs-qavg": TabularExperiment(
        name="windycliffs-qavg", family=WindyCliffs(), E=4, updates=640, lr=1e-3, decay=0.1
    )
}
"""Experiments on tables by name, for federations."""
