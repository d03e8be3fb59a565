"""The agent's worker: a process that stays, with compiled programs and memory in it.

`python -m fedrl.network.worker FOLDER` is what `fedrl agent` starts.
"""

import os
import sys
import threading
import time
from pathlib import Path

from fedrl.compilation import use_compilation_cache
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.experiment.toml import read_settings
from fedrl.network.agent_process import REFUSED
from fedrl.network.answering import Agent
from fedrl.network.client import NetworkWork, Work
from fedrl.network.deployment import AGENT, EXPERIMENT, STATE, AgentSettings
from fedrl.network.experiments import AnyExperiment, read_experiment
from fedrl.network.socket import listen, serve
from fedrl.network.table_client import TableWork


def agent_in(folder: Path) -> Agent:
    """The agent of a folder, as its owner has described it."""
    use_compilation_cache(folder / "compiled")
    # The owner of this machine has put the folder here: what it names may be imported.
    settings = read_settings(AgentSettings, folder / AGENT, allow_code=True)
    experiment = read_experiment(folder / EXPERIMENT, allow_code=True)
    _refuse_what_does_not_fit(settings, experiment)
    work: Work
    if not isinstance(experiment, Experiment):
        mdp = folder / settings.mdp if settings.mdp else None
        work = TableWork(experiment, settings.id, mdp)
    elif settings.environment:
        from fedrl.network.gymnasium_client import GymnasiumWork

        work = GymnasiumWork(experiment, settings.id, settings.environment)
    else:
        work = NetworkWork(experiment, settings.id, settings.theta or None)
    return Agent(folder / STATE, work, experiment.digest)


def _refuse_what_does_not_fit(settings: AgentSettings, experiment: AnyExperiment) -> None:
    if settings.id >= experiment.agents:
        raise FedrlError(
            f"id = {settings.id} in {AGENT}, but the agents of this experiment are 0 to "
            f"{experiment.agents - 1}"
        )
    tabular = not isinstance(experiment, Experiment)
    for name in ("theta", "environment") if tabular else ("mdp",):
        if getattr(settings, name):
            allowed = "mdp" if tabular else "theta or environment"
            raise FedrlError(
                f"{name} in {AGENT} does not describe an environment of {experiment.family.name}: "
                f"give {allowed} instead"
            )


def main(folder: Path) -> None:
    """Answer until whoever started us is gone."""
    parent = os.getppid()

    def leave_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(0)

    threading.Thread(target=leave_with_parent, daemon=True).start()
    agent = _agent_or_exit(folder)
    listening = listen(folder)
    print("ready", flush=True)
    serve(listening, agent.answer)


def _agent_or_exit(folder: Path) -> Agent:
    try:
        return agent_in(folder)
    except FedrlError as error:
        print(error, file=sys.stderr, flush=True)
        sys.exit(REFUSED)


if __name__ == "__main__":
    if sys.argv[2:] == ["--check"]:
        _agent_or_exit(Path(sys.argv[1]).resolve())
    else:
        main(Path(sys.argv[1]).resolve())
