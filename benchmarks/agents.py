"""Time and memory against the number of agents: one seed, 5 to 50,000 agents.

Each size is trained in a process of its own, so that its peak of memory is its own: rounds of E
updates and their communications, compiled before the clock starts.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from fedrl.engine.footprint import state_bytes
from fedrl.engine.plan import Leg
from fedrl.engine.single_device import Replicates
from fedrl.experiment.presets import preset
from fedrl.experiment.settings import Experiment

SIZES = (5, 50, 500, 5_000, 50_000)
# Rows that every agent remembers: what 50,000 of them can have on a small machine.
REPLAY, E, REPEATS = 1_000, 32, 3


def experiment(agents: int) -> Experiment:
    """The paper's network and batch, one seed."""
    base = preset("cartpoles-dqnavg")
    learner = replace(base.learner, replay=REPLAY)
    return replace(base, learner=learner, agents=agents, seeds=1, E=E, held_out=20)


def measure(agents: int, wave: int | None = None) -> dict[str, Any]:
    """A row of the record, about this process."""
    of_size = experiment(agents)
    replicates = Replicates(of_size, wave=wave)
    replicates.start()
    rounds = max(20_000 // (agents * E), 1)
    leg = Leg(rounds, E, rounds * E, rounds, evaluates=False)
    for warm_up in (leg._replace(rounds=2 if agents < 5_000 else 1), look := Leg(0, 0, 0, 0)):
        replicates.run(warm_up, lambda _: None)
    seconds, busy = [], []
    for _ in range(REPEATS):
        start, used = time.perf_counter(), time.process_time()
        replicates.run(leg, lambda _: None)
        seconds.append(time.perf_counter() - start)
        busy.append(time.process_time() - used)
    updates = agents * rounds * E
    start = time.perf_counter()
    replicates.run(look, lambda _: None)
    return {
        "agents": agents,
        "seeds": 1,
        "waves": replicates.layout.waves,
        "rounds": rounds,
        "updates_per_second": updates / statistics.median(seconds),
        "slowest": updates / max(seconds),
        "fastest": updates / min(seconds),
        "core_microseconds_per_update": 1e6 * min(busy) / updates,
        "evaluation_seconds": time.perf_counter() - start,
        "state_bytes_per_agent": state_bytes(of_size),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def line(row: dict[str, Any]) -> str:
    return (
        f"{row['agents']:7,d} agents in {row['waves']:5,d} waves: "
        f"{row['updates_per_second']:12,.0f} updates/s "
        f"({row['slowest']:,.0f} to {row['fastest']:,.0f}), "
        f"{row['core_microseconds_per_update']:6.2f} us of a core each, "
        f"{row['peak_bytes'] / 1e6:6,.0f} MB at most, evaluated in "
        f"{row['evaluation_seconds']:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--wave", type=int, help="agents that work side by side")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(measure(given.one, given.wave)))
        return
    record: dict[str, Any] = {"machine": describe(), "replay": REPLAY, "E": E, "rows": []}
    for agents in given.agents:
        command = [sys.executable, "-m", "benchmarks.agents", "--one", str(agents)]
        command += [] if given.wave is None else ["--wave", str(given.wave)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        row = json.loads(done.stdout.strip().splitlines()[-1])
        record["rows"].append(row)
        print(line(row), flush=True)
        if given.json:
            given.json.write_text(json.dumps(record, indent=2) + "\n")
    if given.json:
        print(given.json)


if __name__ == "__main__":
    main()
