"""DDPGAvg: ours against the ways to do it in PyTorch, side by side, interleaved and repeated.

All do the same work (see `ddpg_peers`): 5 agents, one step of a robot and one update at a time,
actors and critics averaged every 100 updates. Ours includes what a run does besides: one
evaluation in 25 environments (after fewer updates than the preset does, so it counts for more),
metrics, a checkpoint. Peers get both cores, as two processes, one with 3 agents and one with 2.
Nobody's start-up or compilation is counted. `products` is what the matrix products of the updates
would allow if there were nothing else.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import fedrl
from benchmarks.ddpg_peers import common, products
from benchmarks.dqn import Stopwatch
from benchmarks.machine import describe
from fedrl.experiment.driver import carry_out
from fedrl.experiment.run_directory import RunDirectory
from fedrl.experiment.settings import Experiment
from fedrl.learners.ddpg import DDPG

AGENTS, E = 5, 100
SEEDS = (1, 2)
# Gymnasium's name of the robot, and our preset.
ROBOTS = {
    "halfcheetah": ("HalfCheetah-v5", "halfcheetahs-ddpgavg"),
    "hopper": ("Hopper-v5", "hoppers-ddpgavg"),
}
# (hidden layers, batch, updates of each of our agents)
ROWS = (((400, 300), 64, 5000), ((400, 300), 128, 3000), ((64, 64), 64, 20_000))
PEERS = ("sb3", "loop", "bare")


def ours(preset: str, hidden: tuple[int, int], batch: int, updates: int, seeds: int) -> float:
    """Updates per second, over all agents and seeds, of a whole run."""
    learner = DDPG(
        hidden=hidden,
        gamma=common.GAMMA,
        batch=batch,
        replay=common.CAPACITY,
        learning_starts=common.LEARNING_STARTS,
        actor_lr=common.LEARNING_RATE,
        critic_lr=common.LEARNING_RATE,
        tau=common.TAU,
        sigma=common.SIGMA,
    )
    base: Experiment = fedrl.preset(preset)
    experiment = replace(
        base,
        name="bench",
        learner=learner,
        agents=AGENTS,
        E=E,
        updates=updates,
        evaluation=replace(base.evaluation, every=updates),
        seeds=seeds,
    )
    with tempfile.TemporaryDirectory() as folder:
        watch = Stopwatch()
        carry_out(RunDirectory.create(Path(folder), experiment), watch)
        return AGENTS * seeds * updates * watch.share_per_second()


def peer(
    python: str, name: str, robot: str, hidden: tuple[int, int], batch: int, seconds: float
) -> dict[str, Any]:
    """What a peer reports, in processes of its own."""
    command = [python, "-m", "benchmarks.ddpg_peers", name, "--robot", robot]
    command += ["--hidden", ",".join(map(str, hidden)), "--batch", str(batch)]
    command += ["--agents", str(AGENTS), "--E", str(E), "--seconds", str(seconds)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    record: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return record


def table(rates: dict[str, list[float]], operations: int) -> list[str]:
    """A line for each, with what ours is to the others."""
    medians = {name: statistics.median(values) for name, values in rates.items()}
    most = max(value for name, value in medians.items() if name.startswith("products"))
    lines = []
    for name, values in rates.items():
        line = f"  {name:20s} {medians[name]:9,.0f}  ({min(values):,.0f} to {max(values):,.0f})"
        if name.startswith("products"):
            line += f"  {medians[name] * operations / 1e9:.0f} GFLOP/s"
        else:
            line += f"  {medians[name] / most:4.0%} of products"
        if name.startswith("ours"):
            line += "".join(
                f"  {medians[name] / medians[p]:5.1f}x {p}" for p in PEERS if p in rates
            )
        lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers-python", help="interpreter that has torch, SB3 and MuJoCo")
    parser.add_argument("--robot", choices=ROBOTS, default="halfcheetah")
    parser.add_argument("--rows", nargs="+", type=int, default=list(range(len(ROWS))))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each peer, each time")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    robot, preset = ROBOTS[given.robot]
    machine = describe()
    print(*(f"{name}: {value}" for name, value in machine.items()), sep="\n")
    versions: dict[str, str] = {}
    record: list[dict[str, Any]] = []
    for hidden, batch, updates in (ROWS[row] for row in given.rows):
        rates: dict[str, list[float]] = {}
        for _ in range(given.repeats):
            for seeds in SEEDS:
                rate = ours(preset, hidden, batch, updates, seeds)
                rates.setdefault(f"ours x {seeds} seeds", []).append(rate)
            for seeds in SEEDS:
                rate = products.rate(
                    robot, hidden, batch, agents=AGENTS, seeds=seeds, seconds=given.seconds / 3
                )
                rates.setdefault(f"products x {seeds} seeds", []).append(rate)
            for name in PEERS if given.peers_python else ():
                reported = peer(given.peers_python, name, robot, hidden, batch, given.seconds)
                rates.setdefault(name, []).append(reported["updates_per_second"])
                versions |= reported["versions"]
        medians = {name: statistics.median(values) for name, values in rates.items()}
        record.append({"hidden": hidden, "batch": batch, "rates": rates, "medians": medians})
        print(f"\n{robot}, {hidden[0]}-{hidden[1]}, batch {batch}: updates/s (spread)")
        lines = table(rates, products.operations(robot, hidden, batch))
        print(*lines, sep="\n", flush=True)
    if given.json:
        found = {"machine": machine, "peers": versions, "robot": robot, "rows": record}
        given.json.write_text(json.dumps(found, indent=2) + "\n")
        print(f"\n{given.json}")


if __name__ == "__main__":
    main()
