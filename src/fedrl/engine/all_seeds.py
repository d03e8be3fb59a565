"""The states of all seeds of an experiment, and what is asked of them wherever they are."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from fedrl.engine.agent import Agent
from fedrl.engine.client import with_own
from fedrl.engine.divergence import Diverged
from fedrl.engine.plan import Leg
from fedrl.engine.programs import Record, Start, drawn_thetas
from fedrl.engine.state import Federation
from fedrl.experiment.settings import Experiment
from fedrl.files import Array
from fedrl.trees import fits


class Training(ABC):
    """All seeds of an experiment: they begin, go from leg to leg, and can be kept in between."""

    def __init__(self, experiment: Experiment, start: Start | None) -> None:
        self._experiment, self._start = experiment, start
        self._first_params = None if start is None else start.params
        self.thetas: Array = drawn_thetas(experiment) if start is None else start.thetas
        """(seeds, environments, varied constants)."""

    @abstractmethod
    def start(self) -> None:
        """Agents that are about to learn."""

    @abstractmethod
    def run(self, leg: Leg, done: Callable[[float], None]) -> Record | None:
        """Take all seeds through a leg; `done` hears of how many are."""

    def export(self) -> list[Array]:
        """Every number of every state, seeds first."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves(self._whole())]

    def matches(self, leaves: list[Array]) -> bool:
        """Whether these could be what `export` gave for this experiment."""
        return fits(self._shapes(), leaves)

    def restore(self, leaves: list[Array]) -> None:
        """Go on from what `export` gave."""
        self._spread(jax.tree.unflatten(jax.tree.structure(self._shapes()), leaves))

    def diverged(self) -> Diverged:
        """Which agents have met what is not finite."""
        return Diverged.of(self._of_agents(lambda agents: agents.seen))

    def models(self) -> Any:
        """Parameters of the models that are evaluated: (seeds, models, ...)."""
        params = self._of_agents(lambda agents: agents.learned.params)
        of_seed = partial(with_own, experiment=self._experiment)
        return jax.device_get(jax.vmap(of_seed)(self._averages(params), params))

    @abstractmethod
    def _shapes(self) -> Federation:
        """All seeds and all agents, without numbers."""

    @abstractmethod
    def _whole(self) -> Federation:
        """All seeds and all agents, on the host."""

    @abstractmethod
    def _spread(self, state: Federation) -> None:
        """Put all seeds and all agents where they work."""

    @abstractmethod
    def _of_agents(self, part: Callable[[Agent], Any]) -> Any:
        """A part of all agents, on the host: (seeds, agents, ...)."""

    @abstractmethod
    def _averages(self, params: Any) -> Any:
        """The model of each seed that is evaluated, of agents with these parameters."""
