"""How the server and the agents of either kind of experiment are made.

Nobody else asks which kind it is.
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.network.agent_client import AgentClient
from fedrl.network.deployment import AGENT, AgentSettings
from fedrl.network.experiments import AnyExperiment
from fedrl.network.server_of_networks import ServerOfNetworks
from fedrl.network.server_of_tables import ServerOfTables
from fedrl.network.server_side import ServerSide
from fedrl.network.simulated_client import SimulatedClient
from fedrl.network.table_client import TableClient
from fedrl.tabular.experiment import TabularExperiment


class Kind(ABC):
    """One kind of experiments."""

    described: ClassVar[tuple[str, ...]]
    """The settings of an agent that can describe its environment."""

    @abstractmethod
    def server(self, experiment: Any) -> ServerSide:
        """The server's side."""

    @abstractmethod
    def first_agent(self, experiment: Any) -> AgentClient:
        """Agent 0, in the environment that is drawn for it."""

    @abstractmethod
    def agent(self, experiment: Any, settings: AgentSettings, folder: Path) -> AgentClient:
        """An agent, as its owner has described it in a folder."""

    def theta(self, experiment: Any, agent: int) -> tuple[float, ...]:
        """What an agent's folder says of its environment, until its owner says otherwise."""
        return ()

    def once(self, experiment: Any) -> Any:
        """The same experiment as one repetition, which a federation is."""
        return experiment


class _Networks(Kind):
    described: ClassVar[tuple[str, ...]] = ("theta", "environment")

    def server(self, experiment: Experiment) -> ServerSide:
        return ServerOfNetworks(experiment)

    def first_agent(self, experiment: Experiment) -> AgentClient:
        return SimulatedClient(experiment, 0)

    def agent(self, experiment: Experiment, settings: AgentSettings, folder: Path) -> AgentClient:
        if settings.environment:
            # Here, because most agents need no Gymnasium.
            from fedrl.network.gymnasium_client import GymnasiumClient

            return GymnasiumClient(experiment, settings.id, settings.environment)
        return SimulatedClient(experiment, settings.id, settings.theta or None)

    def theta(self, experiment: Experiment, agent: int) -> tuple[float, ...]:
        return tuple(map(float, SimulatedClient(experiment, agent).theta))

    def once(self, experiment: Experiment) -> Experiment:
        return replace(experiment, seeds=1)


class _Tables(Kind):
    described: ClassVar[tuple[str, ...]] = ("mdp",)

    def server(self, experiment: TabularExperiment) -> ServerSide:
        return ServerOfTables(experiment)

    def first_agent(self, experiment: TabularExperiment) -> AgentClient:
        return TableClient(experiment, 0)

    def agent(
        self, experiment: TabularExperiment, settings: AgentSettings, folder: Path
    ) -> AgentClient:
        return TableClient(experiment, settings.id, folder / settings.mdp if settings.mdp else None)


_KINDS: dict[type, Kind] = {Experiment: _Networks(), TabularExperiment: _Tables()}


def kind_of(experiment: AnyExperiment) -> Kind:
    """The kind of an experiment."""
    return _KINDS[type(experiment)]


def server_of(experiment: AnyExperiment) -> ServerSide:
    """The server's side of an experiment."""
    return kind_of(experiment).server(experiment)


def agent_of(experiment: AnyExperiment, settings: AgentSettings, folder: Path) -> AgentClient:
    """An agent of an experiment, as its owner has described it in a folder."""
    if settings.id >= experiment.agents:
        raise FedrlError(
            f"id = {settings.id} in {AGENT}, but the agents of this experiment are 0 to "
            f"{experiment.agents - 1}"
        )
    kind = kind_of(experiment)
    for name in settings.described:
        if name not in kind.described:
            raise FedrlError(
                f"{name} in {AGENT} does not describe an environment of "
                f"{experiment.family.name}: give {' or '.join(kind.described)} instead"
            )
    return kind.agent(experiment, settings, folder)
