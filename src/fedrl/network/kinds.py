"""What there is to federate: experiments with networks, and those on tables.

Nobody else asks which of them an experiment is.
"""

from pathlib import Path

from fedrl.counting import count
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.experiment.toml import about_tables, read_settings, table_of
from fedrl.files import read_text
from fedrl.network.agent_client import AgentClient
from fedrl.network.deployment import AGENT, AgentSettings
from fedrl.network.server_of_networks import ServerOfNetworks
from fedrl.network.server_of_tables import ServerOfTables
from fedrl.network.server_side import ServerSide
from fedrl.network.simulated_client import SimulatedClient
from fedrl.network.table_client import TableClient
from fedrl.tabular.experiment import TabularExperiment

AnyExperiment = Experiment | TabularExperiment


def read_experiment(path: Path, *, allow_code: bool = False) -> AnyExperiment:
    """An experiment of either kind; the family tells which.

    `allow_code`: import modules that it names as `module:Class`.
    """
    if about_tables(table_of(read_text(path), str(path))):
        return read_settings(TabularExperiment, path)
    return read_settings(Experiment, path, allow_code=allow_code)


def server_of(experiment: AnyExperiment) -> ServerSide:
    """The server's side of an experiment."""
    if isinstance(experiment, TabularExperiment):
        return ServerOfTables(experiment)
    return ServerOfNetworks(experiment)


def any_agent_of(experiment: AnyExperiment) -> AgentClient:
    """The first agent of an experiment, in the environment that is drawn for it."""
    if isinstance(experiment, TabularExperiment):
        return TableClient(experiment, 0)
    return SimulatedClient(experiment, 0)


def agent_of(experiment: AnyExperiment, settings: AgentSettings, folder: Path) -> AgentClient:
    """An agent of an experiment, as its owner has described it in a folder."""
    if settings.id >= experiment.agents:
        raise FedrlError(
            f"id = {settings.id} in {AGENT}, but the agents of this experiment are 0 to "
            f"{experiment.agents - 1}"
        )
    on_tables = isinstance(experiment, TabularExperiment)
    allowed = ("mdp",) if on_tables else ("theta", "environment")
    for name in settings.described:
        if name not in allowed:
            raise FedrlError(
                f"{name} in {AGENT} does not describe an environment of "
                f"{experiment.family.name}: give {' or '.join(allowed)} instead"
            )
    if isinstance(experiment, TabularExperiment):
        mdp = folder / settings.mdp if settings.mdp else None
        return TableClient(experiment, settings.id, mdp)
    if settings.environment:
        # Here, because most agents need no Gymnasium.
        from fedrl.network.gymnasium_client import GymnasiumClient

        return GymnasiumClient(experiment, settings.id, settings.environment)
    return SimulatedClient(experiment, settings.id, settings.theta or None)


def first_theta(experiment: AnyExperiment, agent: int) -> tuple[float, ...]:
    """What the folder of an agent says of its environment, until its owner says otherwise."""
    if isinstance(experiment, TabularExperiment):
        return ()
    return tuple(map(float, SimulatedClient(experiment, agent).theta))


def refuse_quorum(experiment: AnyExperiment, quorum: int) -> None:
    """Refuse a quorum that a round cannot have, or with which its aggregator cannot do."""
    participants, aggregator = experiment.participants, experiment.aggregator
    if quorum > participants:
        raise FedrlError(
            f"quorum = {quorum}, but a round has only {count(participants, 'agents')}: lower it"
        )
    least, bad = aggregator.least(participants), aggregator.withstands(participants)
    if 0 < quorum < least:
        raise FedrlError(
            f"quorum = {quorum}, but the {aggregator.name} aggregator needs {least} valid answers "
            f"of {participants}: raise it to that, or leave it at 0, more than half"
        )
    if quorum > participants - bad:
        raise FedrlError(
            f"quorum = {quorum}, but the {aggregator.name} aggregator is to withstand {bad} bad of "
            f"{participants} agents, which could then end the training: lower it to at most "
            f"{participants - bad}"
        )
