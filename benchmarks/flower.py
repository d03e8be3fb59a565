"""What a round over a network costs beyond its computation: `python -m benchmarks.flower`.

The same experiment in the local engine and in federations on this machine, with warm and with cold
agents. Needs `fedrl[flower]`; no nginx, so that it runs anywhere.
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.machine import describe
from fedrl import preset, train
from fedrl.experiment.settings import Experiment
from fedrl.flower.init import init
from fedrl.flower.processes import free_port, start, stop
from fedrl.flower.settings import Deployment

ROUNDS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=5)
    parser.add_argument("--E", type=int, default=500)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    base = preset("cartpoles-dqnavg")
    updates = ROUNDS * given.E
    evaluation = replace(base.evaluation, every=updates)
    shortened = replace(base, E=given.E, updates=updates, evaluation=evaluation)
    experiment = replace(shortened, agents=given.agents, seeds=1)
    with tempfile.TemporaryDirectory() as folder:
        train(replace(experiment, name="warm-up"), out=folder, progress=False)
        begun = time.perf_counter()
        train(experiment, out=folder, progress=False)
        local = (time.perf_counter() - begun) / ROUNDS
        rows = {"warm": _federation(Path(folder) / "warm", experiment, [])}
        rows["cold"] = _federation(Path(folder) / "cold", experiment, ["--cold"])
    result = {
        "machine": describe(),
        "agents": given.agents,
        "E": given.E,
        "rounds": ROUNDS,
        "local engine, seconds per round": local,
        "federation": rows,
    }
    print(json.dumps(result, indent=2))
    if given.out:
        given.out.write_text(json.dumps(result, indent=2) + "\n")


def _federation(folder: Path, experiment: Experiment, options: list[str]) -> dict[str, float]:
    """Median costs of rounds after the first two, which compile."""
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
    frame = pd.read_csv(costs).iloc[2:ROUNDS]
    beyond = frame["seconds"] - frame["longest_computation"]
    return {
        "seconds per round": float(frame["seconds"].median()),
        "longest computation": float(frame["longest_computation"].median()),
        "beyond it": float(beyond.median()),
        "beyond it, worst": float(np.max(beyond)),
        "bytes per agent and direction": float(frame["bytes_received"].median())
        / experiment.agents,
        "from the first command to the end": whole,
    }


if __name__ == "__main__":
    main()
