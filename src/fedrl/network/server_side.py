"""The server's side of an algorithm: its rounds, who takes part, what comes of the offers."""

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Mapping
from functools import cached_property, partial
from math import sqrt
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.files import Array, Arrays
from fedrl.network.agent_client import AgentClient, named, shapes
from fedrl.runs.run_directory import RunDirectory
from fedrl.strategies.aggregators import Communication
from fedrl.strategies.corrections import Broadcast, Offer
from fedrl.strategies.private import Private
from fedrl.strategies.staleness import rebased
from fedrl.strategies.strategy import ServerState

# How far answers may be from the model where nothing is known of the learner's steps.
UNKNOWN = 1000.0


class Planned(NamedTuple):
    """One round."""

    number: int
    E: int
    """Local work of those who take part; 0 in the last one, which only evaluates."""
    trained: int
    """What has been trained before it."""
    evaluate: bool
    """Whether the agents first evaluate the model they are sent."""


class ServerSide(ABC):
    """What the server of an experiment does, whatever brings the messages; states hold NumPy."""

    wide: ClassVar[bool] = False
    """Whether its numbers have 64 bits."""
    sends_first: bool = True
    """Whether agents begin with the server's model, or each with one of its own."""
    evaluated: Container[int]
    """After how much training the model is evaluated."""
    noise: jax.Array
    """The root of the random numbers of aggregators that draw some."""

    def __init__(self, experiment: Any, agent: AgentClient) -> None:
        """`agent` is any of the agents: it knows what is sent and offered."""
        self.experiment, self.agents = experiment, experiment.agents
        self.sent, self.offered = agent.sent, agent.offered
        self.shapes = shapes(agent.offered)

    @cached_property
    def rounds(self) -> list[Planned]:
        """All rounds, and one more that evaluates the last model."""
        updates, E = self.experiment.updates, int(self.experiment.E)
        evaluated, starts = self.evaluated, range(0, updates, E)
        rounds = [
            Planned(i + 1, min(E, updates - start), start, start in evaluated)
            for i, start in enumerate(starts)
        ]
        return [*rounds, Planned(len(rounds) + 1, 0, updates, True)]

    def directory(self, runs: Path) -> RunDirectory:
        """Where its results are, below `runs`; made if it is new."""
        return RunDirectory.create(runs, self.experiment)

    @abstractmethod
    def begin(self) -> ServerState:
        """The server before the first round."""

    def takes_part(self, number: int) -> list[int]:
        """The agents of a round, ascending."""
        return list(range(self.agents))

    def step(
        self,
        state: ServerState,
        offered: Mapping[int, Offer],
        begun: Mapping[int, tuple[Broadcast, int]],
        number: int,
        asked: int,
    ) -> ServerState:
        """The server after round `number`, in which so many agents were asked.

        `begun` says what each agent had received, and in which round.
        """
        experiment, agents = self.experiment, sorted(offered)
        with jax.enable_x64(self.wide):
            offers = stacked(offered[agent] for agent in agents)
            if experiment.timing.arrivals:
                received = stacked(begun[agent][0] for agent in agents)
                stale = jnp.array([number - begun[agent][1] for agent in agents])
                offers = rebased(offers, received, stale, state.sent, experiment.timing.staleness)
            communication = Communication(
                before=state.sent.model if self.sends_first else None,
                agents=jnp.array(agents),
                key=jax.random.fold_in(self.noise, number - 1),
            )
            after: ServerState = jax.device_get(
                experiment.strategy.step(
                    state,
                    offers,
                    communication,
                    share=experiment.aggregator.share(communication.agents, self.agents),
                    aggregate=partial(experiment.aggregator.at_server, asked=asked),
                )
            )
            if experiment.strategy.averages:
                return after
            return after._replace(sent=after.sent._replace(model=self.nearest(after.sent.model)))

    def nearest(self, model: Any) -> Any:
        """The model nearest to one that the server has come to and that may mean nothing."""
        return model

    @abstractmethod
    def largest_change(self, planned: Planned, before: Arrays) -> float | None:
        """How far from the model it is sent an agent's own steps can carry it; None: unknown."""

    @property
    def largest_direction(self) -> float | None:
        """The most that a learner's direction says of one weight; None if that is not known."""
        return None

    def furthest(self, planned: Planned, before: Arrays) -> float:
        """How far from the model an agent that follows the algorithm can come in a round."""
        change, stretch = self.largest_change(planned, before), self.experiment.correction.stretch
        # And rounding to 32 bits.
        if change is None or stretch is None:
            return UNKNOWN
        return float(1.01 * stretch * change + 1e-3)

    def furthest_added(self) -> float:
        """How long what a correction adds to an offer can be."""
        direction, reach = self.largest_direction, self.experiment.correction.reach
        if direction is None or reach is None:
            return UNKNOWN
        size = sum(leaf.size for leaf in jax.tree.leaves(self.offered.correction))
        return float(1.01 * reach * direction * sqrt(size) + 1e-3)

    def why_not(self, metrics: Mapping[str, float]) -> str | None:
        """What is impossible in what an agent has measured, or None."""
        return None

    def scale(self, objectives: list[Array]) -> float:
        """Factor on the step size, from each agent's objective in the rounds so far."""
        return 1.0

    def held_out(self, state: ServerState, trained: int) -> dict[str, list[float]]:
        """What the model is worth in the held-out environments, by metric."""
        return {}

    def models(self, state: ServerState) -> Arrays:
        """The final model as a run directory keeps it."""
        return named(Broadcast(state.sent.model))

    def epsilon(self, rounds: int) -> float | None:
        """What privacy has been spent, if there is any."""
        aggregator = self.experiment.aggregator
        if not isinstance(aggregator, Private) or not aggregator.noise:
            return None
        return aggregator.epsilon(rounds)


def stacked(trees: Iterable[Any]) -> Any:
    """Trees of NumPy arrays as one, with the trees first."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
