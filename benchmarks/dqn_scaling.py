"""How updates per second of DQNAvg grow with seeds and agents, evaluation included.

Each line is a leg of training and its evaluation, compiled before. Memory is that of all replays.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from fedrl.engine.plan import Leg
from fedrl.engine.single_device import Replicates
from fedrl.experiment.settings import Experiment
from fedrl.families.cartpoles import CartPoles
from fedrl.learners.dqn import DQN

SIZES = {
    "cpu": ((5, 1), (5, 8), (50, 1), (500, 1)),
    "gpu": ((5, 1), (5, 64), (5, 512), (5, 4096), (20_000, 1)),
}
NETWORKS = (((128,), 16), ((64, 64), 64), ((128, 128), 128))
# Rows of the replay; small, so that the largest size fits any card.
REPLAY = 1000


def measure(experiment: Experiment, updates: int, repeats: int) -> dict[str, Any]:
    """Updates per second over all agents and seeds."""
    replicates = Replicates(experiment)
    replicates.start()
    start = time.perf_counter()
    replicates.run(Leg(1, int(experiment.E), 0, 0), lambda _: None)
    compiled = time.perf_counter() - start
    rounds = max(updates // int(experiment.E), 1)
    leg = Leg(rounds, int(experiment.E), 1000, 0)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        replicates.run(leg, lambda _: None)
        times.append(time.perf_counter() - start)
    done = experiment.agents * experiment.seeds * rounds * int(experiment.E)
    row = experiment.learner.memory.row_bytes(*experiment.family.remembered)
    return {
        "hidden": list(experiment.learner.hidden),
        "batch": experiment.learner.batch,
        "agents": experiment.agents,
        "seeds": experiment.seeds,
        "updates_per_second": done / statistics.median(times),
        "spread": [done / max(times), done / min(times)],
        "compile_seconds": compiled,
        "replay_bytes": experiment.agents * experiment.seeds * REPLAY * row,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=1000, help="of each agent, in a leg")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--networks", type=int, default=len(NETWORKS))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    machine = describe()
    print(*(f"{name}: {value}" for name, value in machine.items()), sep="\n")
    rows = []
    for hidden, batch in NETWORKS[: given.networks]:
        learner = DQN(hidden=hidden, batch=batch, replay=REPLAY)
        base = Experiment(name="scaling", family=CartPoles(), learner=learner)
        for agents, seeds in SIZES["cpu" if machine["platform"] == "cpu" else "gpu"]:
            row = measure(replace(base, agents=agents, seeds=seeds), given.updates, given.repeats)
            rows.append(row)
            print(
                f"4-{'-'.join(map(str, hidden))}-2 batch {batch}: {agents:6d} agents x "
                f"{seeds:5d} seeds: {row['updates_per_second']:12,.0f} updates/s "
                f"(compiled in {row['compile_seconds']:.0f} s)",
                flush=True,
            )
            # What is measured is kept, also if the rest is interrupted.
            if given.json:
                record = {"machine": machine, "rows": rows}
                given.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
