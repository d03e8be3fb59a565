"""What there is to federate: experiments with networks, and those on tables.

A kind says how the server and the agents of such an experiment are made; nobody else asks which it
is.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.network.agent_client import AgentClient
from fedrl.network.deployment import AGENT, AgentSettings
from fedrl.network.experiments import AnyExperiment
from fedrl.network.server_of_networks import ServerOfNetworks
from fedrl.network.server_of_tables import ServerOfTables
from fedrl.network.server_side import ServerSide
from fedrl.network.simulated_client import SimulatedClient, drawn_theta, sent_by_server
from fedrl.network.table_client import TableClient
from fedrl.strategies.corrections import Broadcast
from fedrl.tabular.experiment import TabularExperiment


@dataclass(frozen=True)
class Kind:
    """One kind of experiments."""

    server: Callable[[Any], ServerSide]
    """The server's side."""
    agent: Callable[[Any, AgentSettings, Path], AgentClient]
    """An agent, as its owner has described it in a folder."""
    sent: Callable[[Any], Broadcast]
    """What the server sends; its numbers mean nothing."""
    theta: Callable[[Any, int], tuple[float, ...]]
    """What the folder of an agent says of its environment, until its owner says otherwise."""
    environments: tuple[str, ...]
    """The settings of an agent that can describe an environment."""
    once: Callable[[Any], Any]
    """The same experiment as one repetition, which a federation is."""

    def refuse_other_environments(self, settings: AgentSettings, experiment: AnyExperiment) -> None:
        """Say so where an agent's environment is described as for another kind."""
        allowed = " or ".join(self.environments)
        for name in ("theta", "environment", "mdp"):
            if name not in self.environments and getattr(settings, name):
                raise FedrlError(
                    f"{name} in {AGENT} does not describe an environment of "
                    f"{experiment.family.name}: give {allowed} instead"
                )


def kind_of(experiment: AnyExperiment) -> Kind:
    """The kind of an experiment."""
    return _KINDS[type(experiment)]


def server_of(experiment: AnyExperiment) -> ServerSide:
    """The server's side of an experiment."""
    return kind_of(experiment).server(experiment)


def agent_of(experiment: AnyExperiment, settings: AgentSettings, folder: Path) -> AgentClient:
    """An agent of an experiment, as its owner has described it."""
    if settings.id >= experiment.agents:
        raise FedrlError(
            f"id = {settings.id} in {AGENT}, but the agents of this experiment are 0 to "
            f"{experiment.agents - 1}"
        )
    kind = kind_of(experiment)
    kind.refuse_other_environments(settings, experiment)
    return kind.agent(experiment, settings, folder)


def _with_network(experiment: Experiment, settings: AgentSettings, folder: Path) -> AgentClient:
    if settings.environment:
        # Here, because most agents need no Gymnasium.
        from fedrl.network.gymnasium_client import GymnasiumClient

        return GymnasiumClient(experiment, settings.id, settings.environment)
    return SimulatedClient(experiment, settings.id, settings.theta or None)


def _with_table(
    experiment: TabularExperiment, settings: AgentSettings, folder: Path
) -> AgentClient:
    mdp = folder / settings.mdp if settings.mdp else None
    return TableClient(experiment, settings.id, mdp)


def _drawn(experiment: Experiment, agent: int) -> tuple[float, ...]:
    return tuple(float(x) for x in drawn_theta(experiment, agent))


_KINDS: dict[type, Kind] = {
    Experiment: Kind(
        ServerOfNetworks,
        _with_network,
        sent_by_server,
        _drawn,
        ("theta", "environment"),
        lambda experiment: replace(experiment, seeds=1),
    ),
    TabularExperiment: Kind(
        ServerOfTables,
        _with_table,
        lambda experiment: TableClient(experiment, 0).sent,
        lambda *_: (),
        ("mdp",),
        lambda experiment: experiment,
    ),
}
