"""How the server and the agents of either kind of experiment are made.

Nobody else asks which kind it is.
"""

from dataclasses import replace
from pathlib import Path

from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.network.agent_client import AgentClient
from fedrl.network.deployment import AGENT, AgentSettings
from fedrl.network.experiments import AnyExperiment
from fedrl.network.federated_networks import ServerOfNetworks, SimulatedClient
from fedrl.network.federated_tables import ServerOfTables, TableClient
from fedrl.network.server_side import ServerSide


def server_of(experiment: AnyExperiment) -> ServerSide:
    """The server's side of an experiment."""
    if isinstance(experiment, Experiment):
        return ServerOfNetworks(experiment)
    return ServerOfTables(experiment)


def first_agent(experiment: AnyExperiment) -> AgentClient:
    """Agent 0, in the environment that is drawn for it."""
    if isinstance(experiment, Experiment):
        return SimulatedClient(experiment, 0)
    return TableClient(experiment, 0)


def agent_of(experiment: AnyExperiment, settings: AgentSettings, folder: Path) -> AgentClient:
    """An agent of an experiment, as its owner has described it in a folder."""
    if settings.id >= experiment.agents:
        raise FedrlError(
            f"id = {settings.id} in {AGENT}, but the agents of this experiment are 0 to "
            f"{experiment.agents - 1}"
        )
    fitting = ("theta", "environment") if isinstance(experiment, Experiment) else ("mdp",)
    for name in settings.described:
        if name not in fitting:
            raise FedrlError(
                f"{name} in {AGENT} does not describe an environment of "
                f"{experiment.family.name}: give {' or '.join(fitting)} instead"
            )
    if not isinstance(experiment, Experiment):
        return TableClient(experiment, settings.id, folder / settings.mdp if settings.mdp else None)
    if settings.environment:
        # Here, because most agents need no Gymnasium.
        from fedrl.network.gymnasium_client import GymnasiumClient

        return GymnasiumClient(experiment, settings.id, settings.environment)
    return SimulatedClient(experiment, settings.id, settings.theta or None)


def drawn_theta(experiment: AnyExperiment, agent: int) -> tuple[float, ...]:
    """What an agent's folder says of its environment, until its owner says otherwise."""
    if isinstance(experiment, Experiment):
        return tuple(map(float, SimulatedClient(experiment, agent).theta[0]))
    return ()


def once(experiment: AnyExperiment) -> AnyExperiment:
    """The same experiment as one repetition, which a federation is."""
    return replace(experiment, seeds=1) if isinstance(experiment, Experiment) else experiment
