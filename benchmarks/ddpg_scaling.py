"""How updates per second of DDPGAvg grow with seeds, with MJX and with MuJoCo on the host.

Each line is training alone (a step of every robot for every update), compiled before.
"""

import argparse
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from fedrl.engine.plan import Leg
from fedrl.engine.single_device import Replicates
from fedrl.experiment.presets import preset
from fedrl.experiment.settings import Experiment
from fedrl.families.robots import RobotFamily

SEEDS = {"cpu": (1, 4), "gpu": (1, 16, 256, 2048)}
# Rows of the replay, and steps before the first update; small, so that any card can hold them.
REPLAY, LEARNING_STARTS = 500, 64


def prepared(experiment: Experiment) -> tuple[Replicates, float]:
    """Compiled and ready to learn; also the seconds that took."""
    start = time.perf_counter()
    replicates = Replicates(experiment)
    replicates.start()
    replicates.run(Leg(1, 1, 1, 0, evaluates=False), lambda _: None)
    return replicates, time.perf_counter() - start


def measure(experiment: Experiment, replicates: Replicates, units: int) -> float:
    """Updates per second over all agents and seeds, the median of three."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        replicates.run(Leg(1, units, units, 0, evaluates=False), lambda _: None)
        times.append(time.perf_counter() - start)
    return experiment.agents * experiment.seeds * units / statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--robot", choices=("halfcheetahs", "hoppers"), default="halfcheetahs")
    parser.add_argument("--simulators", nargs="+", default=["mjx", "mujoco"])
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--hidden", nargs="+", type=int, default=[400, 300])
    parser.add_argument("--units", type=int, default=100, help="updates of each agent, measured")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    machine = describe()
    print(*(f"{name}: {value}" for name, value in machine.items()), sep="\n")
    base = preset(f"{given.robot}-ddpgavg")
    assert isinstance(base.family, RobotFamily)
    learner = replace(
        base.learner,
        hidden=tuple(given.hidden),
        replay=REPLAY,
        learning_starts=LEARNING_STARTS,
    )
    sizes = given.seeds or SEEDS["cpu" if machine["platform"] == "cpu" else "gpu"]
    cases = [(simulator, seeds) for simulator in given.simulators for seeds in sizes]
    experiments = [
        replace(
            base,
            family=replace(base.family, simulator=simulator),
            learner=learner,
            seeds=seeds,
            held_out=1,
        )
        for simulator, seeds in cases
    ]
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor() as pool:  # compiling takes most of the time
        ready = list(pool.map(prepared, experiments))
    for (simulator, seeds), experiment, (replicates, seconds) in zip(
        cases, experiments, ready, strict=True
    ):
        speed = measure(experiment, replicates, given.units)
        row = {
            "robot": given.robot,
            "simulator": simulator,
            "hidden": given.hidden,
            "batch": experiment.learner.batch,
            "agents": experiment.agents,
            "seeds": seeds,
            "updates_per_second": speed,
            "milliseconds_per_update_of_all": 1e3 * experiment.agents * experiment.seeds / speed,
            "compile_seconds": seconds,
        }
        rows.append(row)
        print(
            f"{given.robot} {simulator}: {experiment.agents} agents x "
            f"{seeds:5d} seeds: {speed:12,.0f} updates/s, "
            f"{row['milliseconds_per_update_of_all']:.2f} ms each (compiled in {seconds:.0f} s)",
            flush=True,
        )
    if given.json:
        given.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
