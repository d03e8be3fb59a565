"""What a round over a network costs beyond its computation: `python -m benchmarks.flower`.

A federation on this machine, its agents warm or cold. Needs `fedrl[flower]`; no nginx, so that it
runs anywhere. One JSON line with the seconds of a round is printed.
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pandas as pd

from benchmarks.machine import versions
from fedrl import preset
from fedrl.experiment.settings import Experiment
from fedrl.network.deployment import Deployment
from fedrl.network.init import init
from fedrl.network.processes import free_port, start, stop

# Seconds after which Flower's SuperNode looks for messages again.
POLL = 3.0
# Rounds that are not counted: they start programs and compile.
BEFORE = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=2)
    parser.add_argument("--E", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=6, help="those that are not counted included")
    parser.add_argument("--cold", action="store_true", help="agents keep no worker between rounds")
    given = parser.parse_args()
    base = preset("cartpoles-dqnavg")
    updates = given.rounds * given.E
    evaluation = replace(base.evaluation, every=updates)
    shortened = replace(base, E=given.E, updates=updates, evaluation=evaluation)
    experiment = replace(shortened, agents=given.agents, seeds=1)
    with tempfile.TemporaryDirectory() as folder:
        options = ["--cold"] if given.cold else []
        record = _federation(Path(folder), experiment, options, given.rounds)
    known = {**versions(), "flwr": metadata.version("flwr")}
    print(json.dumps({**record, "versions": known}))


def _federation(
    folder: Path, experiment: Experiment, options: list[str], rounds: int
) -> dict[str, float]:
    """Median costs of a round."""
    init(folder, experiment, Deployment(proxy="none", control_port=free_port()))
    begun = time.perf_counter()
    commands = [["server", str(folder)]]
    commands += [["agent", str(folder), "--id", str(i), *options] for i in range(experiment.agents)]
    log = folder / "log"
    started = [start([sys.executable, "-m", "fedrl", *command], log) for command in commands]
    try:
        if started[0].wait(900):
            raise RuntimeError(log.read_text())
    finally:
        for process in started:
            stop(process)
    whole = time.perf_counter() - begun
    (costs,) = (folder / "server" / "runs").glob("*/communication.csv")
    frame = pd.read_csv(costs).iloc[BEFORE:rounds]
    beyond = frame["seconds"] - frame["longest_computation"]
    return {
        "value": float(frame["seconds"].median()),
        "limit": float(frame["longest_computation"].median()) + POLL,
        "computation": float(frame["longest_computation"].median()),
        "beyond": float(beyond.median()),
        "beyond_at_most": float(beyond.max()),
        "bytes_per_agent": float(frame["bytes_received"].median()) / experiment.agents,
        "whole_seconds": whole,
    }


if __name__ == "__main__":
    main()
