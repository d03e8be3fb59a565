"""The agent's worker: a process that stays, with compiled programs and memory in it.

`python -m fedrl.network.worker FOLDER` is what `fedrl agent` starts.
"""

import os
import sys
from pathlib import Path

from fedrl.compilation import use_compilation_cache
from fedrl.errors import FedrlError
from fedrl.experiment.toml import read_settings
from fedrl.network.agent_process import REFUSED
from fedrl.network.answering import Agent
from fedrl.network.deployment import AGENT, EXPERIMENT, STATE, AgentSettings
from fedrl.network.experiments import read_experiment
from fedrl.network.kinds import agent_of
from fedrl.network.processes import leave_with
from fedrl.network.socket import listen, serve


def agent_in(folder: Path) -> Agent:
    """The agent of a folder, as its owner has described it."""
    use_compilation_cache(folder / "compiled")
    # The owner of this machine has put the folder here: what it names may be imported.
    settings = read_settings(AgentSettings, folder / AGENT, allow_code=True)
    experiment = read_experiment(folder / EXPERIMENT, allow_code=True)
    client = agent_of(experiment, settings, folder)
    return Agent(folder / STATE, client, experiment.digest)


def main(folder: Path) -> None:
    """Answer until whoever started us is gone."""
    leave_with(os.getppid())
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
