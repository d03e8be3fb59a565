"""An experiment, described completely: same description, same results."""

from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, isinf
from pathlib import Path
from typing import Annotated, Literal

from fedrl.arguments import AboveZero, Check, Count, check_fields, whole, whole_or_inf
from fedrl.counting import count
from fedrl.errors import FedrlError
from fedrl.experiment.timing import Timing
from fedrl.experiment.toml import Named, refuse_tables, settings_from
from fedrl.families.control_family import MOST_STEPS, ControlFamily
from fedrl.files import read_text
from fedrl.learners.dqn import DQN
from fedrl.learners.learner import Learner
from fedrl.strategies.aggregators import Aggregator, Mean
from fedrl.strategies.corrections import Correction, NoCorrection
from fedrl.strategies.server_optimizers import Replace, ServerOptimizer
from fedrl.strategies.strategy import PLAIN, Strategy

MOST_EVALUATIONS = 100_000

Unit = Literal["updates", "episodes"]


@dataclass(frozen=True)
class Survives:
    """What an agent keeps when it receives the averaged model."""

    replay: bool = True
    """Its memory; otherwise it is emptied and filled anew before the next update."""
    optimizer: bool = True
    """Adam's moments; otherwise they start from zero."""
    target: bool = True
    """Its own target network; otherwise the averaged model becomes the target."""

    def __post_init__(self) -> None:
        check_fields(self, "survives")


@dataclass(frozen=True)
class Evaluation:
    """When and how models are evaluated."""

    every: Annotated[int, Check(whole)] = 1000
    """Training between two evaluations, in the experiment's unit; rounded up to whole rounds."""
    episodes: Annotated[int, Check(whole)] = 5
    """Greedy episodes in each environment."""
    where: Literal["everywhere", "own"] = "everywhere"
    """In all training and held-out environments, or each agent's model in its own one only."""

    def __post_init__(self) -> None:
        check_fields(self, "evaluation")


@dataclass(frozen=True)
class Experiment(Named):
    """n agents learn one policy together, each in an environment of its own."""

    name: str
    """What the run is called; the run directory begins with it."""
    family: ControlFamily
    """Where the environments come from."""
    learner: Learner = field(default_factory=DQN)
    """What an agent does between two communications."""
    correction: Correction = field(default_factory=NoCorrection)
    """What bends every local step of an agent."""
    aggregator: Aggregator = field(default_factory=Mean)
    """What the server does with the agents' parameters."""
    server_optimizer: ServerOptimizer = field(default_factory=Replace)
    """How the server steps from the model it sent to the next one."""
    agents: Count = 5
    """Agents, each with a training environment of its own (N)."""
    participation: AboveZero = 1.0
    """Share of the agents that take part in a round, drawn anew each time; the others wait."""
    held_out: Annotated[int, Check(partial(whole, smallest=0, largest=MOST_STEPS))] = 20
    """Environments that nobody trains in (M)."""
    E: Annotated[float, Check(whole_or_inf)] = 100
    """Local updates between two communications; inf: never communicate."""
    unit: Unit = "updates"
    """What E, updates and evaluation.every count."""
    updates: Count = 20_000
    """Length of the training of each agent."""
    timing: Timing = field(default_factory=Timing)
    """How long agents take on a simulated clock, and whether the server waits for all of them."""
    survives: Survives = field(default_factory=Survives)
    """What an agent keeps when it receives the averaged model."""
    initialisation: Literal["shared", "per-agent"] = "shared"
    """Whether all agents start from the same random network."""
    evaluation: Evaluation = field(default_factory=Evaluation)
    """When and how models are evaluated."""
    seeds: Count = 16
    """Independent repetitions, each with environments and random numbers of its own."""
    seed: Annotated[int, Check(partial(whole, smallest=0, largest=2**32 - 1))] = 0
    """Root of all random numbers."""

    def __post_init__(self) -> None:
        check_fields(self, "")
        if not self.name or not all(c.isalnum() or c in "-_." for c in self.name):
            raise FedrlError(
                f"name must consist of letters, digits, '-', '_' and '.', got {self.name!r}"
            )
        if not isinf(self.E) and self.updates < self.E:
            raise FedrlError(
                f"E = {self.E:g} is longer than the training ({count(self.updates, self.unit)}), "
                "so the agents would communicate once at the end: use E = inf to never communicate"
            )
        if self.evaluation.where == "own" and not self.has_own_models:
            raise FedrlError(
                "evaluation.where = 'own' is about models of the agents' own, and these share all "
                "of theirs: leave it out"
            )
        self.learner.check(self.family.name, self.family.continuous, self.unit)
        self.learner.memory.check(self.family.name, self.family.actions, self.family.continuous)
        self.timing.check(self.agents, self.participation, self.communicates)
        self._refuse_what_cannot_be_aggregated()
        self._refuse_too_long()
        between = max(self.evaluation.every, self.E if self.communicates else 1)
        if self.updates / between > MOST_EVALUATIONS:
            raise FedrlError(
                f"evaluation.every = {self.evaluation.every} means {self.updates / between:,.0f} "
                f"evaluations, more than {MOST_EVALUATIONS:,}: raise it, or lower updates"
            )

    def _refuse_what_cannot_be_aggregated(self) -> None:
        self.strategy.check(self.agents, self.participants)
        if not self.communicates:
            self.strategy.check_without_communication()
        if self.participants < self.agents and not (self.communicates and self.survives.replay):
            some = f"timing.arrivals = {self.timing.arrivals}"
            if not self.timing.arrivals:
                some = f"participation = {self.participation:g}"
            raise FedrlError(
                f"{some} needs agents that communicate (E other than inf) and keep their memory "
                "while they wait (survives.replay = true)"
            )
        part = self.strategy.needs_one_beginning
        if self.timing.arrivals:
            part = f"timing.arrivals = {self.timing.arrivals}"
            if self.updates % self.E:
                raise FedrlError(
                    f"{part} needs rounds that are equally long: updates = {self.updates} is no "
                    f"multiple of E = {self.E:g}"
                )
        if self.initialisation == "per-agent" and part:
            raise FedrlError(
                f"{part} looks at what agents have changed of the model they were sent, so they "
                'must begin with one model: initialisation = "shared"'
            )

    def _refuse_too_long(self) -> None:
        per_unit = self.family.time_limit if self.unit == "episodes" else self.learner.update_every
        refills = 1 if self.survives.replay or not self.communicates else 1 + self.rounds
        steps = self.updates * per_unit + refills * self.learner.learning_starts
        if steps > MOST_STEPS:
            raise FedrlError(
                f"an agent would take up to {steps:,} environment steps, more than the "
                f"{MOST_STEPS:,} we can count: lower updates"
            )

    @property
    def strategy(self) -> Strategy:
        """The three parts that make local learning federated."""
        return Strategy(self.correction, self.aggregator, self.server_optimizer)

    @property
    def communicates(self) -> bool:
        return not isinf(self.E)

    @property
    def participants(self) -> int:
        """Agents that take part in a round."""
        return self.timing.arrivals or max(round(self.participation * self.agents), 1)

    @property
    def divisible(self) -> bool:
        """Whether agents can be divided among waves and devices: all are in every round."""
        return self.participants == self.agents and not self.timing.arrivals

    @property
    def has_own_models(self) -> bool:
        """Whether the agents' models differ from each other when they are evaluated."""
        return bool(self.learner.personal) or not self.communicates

    @property
    def rounds(self) -> int:
        """Communications until the end; the last round may be shorter."""
        return -int(-self.updates // self.E) if self.communicates else 0

    @property
    def lockstep(self) -> bool:
        """Whether all agents always have done equally much."""
        return self.unit == "updates" and self.participants == self.agents

    def without_communication(self) -> "Experiment":
        """The same experiment with E = inf: Baseline and "average once at the end"."""
        return replace(
            self,
            E=inf,
            participation=1.0,
            timing=Timing(),
            correction=PLAIN.correction,
            aggregator=PLAIN.aggregator,
            server_optimizer=PLAIN.server_optimizer,
        )


def from_toml(text: str, source: str = "the settings", *, allow_code: bool = False) -> Experiment:
    """An experiment from TOML; what is not said has its default value.

    `allow_code`: import modules that it names as `module:Class`.
    """
    refuse_tables(text, source)
    return settings_from(Experiment, text, source, allow_code=allow_code)


def read_experiment(path: Path, *, allow_code: bool = False) -> Experiment:
    """The experiment in a file."""
    return from_toml(read_text(path), str(path), allow_code=allow_code)
