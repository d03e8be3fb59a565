"""DQNAvg: ours against the ways to do it in PyTorch, side by side, interleaved and repeated.

All do the same work (see `dqn_peers`): 5 agents on CartPoles of different lengths, one environment
step and one update at a time, averaged every 100 updates. Ours includes what a run does besides:
evaluation in 25 environments, metrics, checkpoints. Peers get both cores. Nobody's start-up or
compilation is counted.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from fedrl.experiment.driver import carry_out
from fedrl.experiment.run_directory import RunDirectory
from fedrl.experiment.settings import Evaluation, Experiment
from fedrl.families.cartpoles import CartPoles
from fedrl.learners.dqn import DQN
from fedrl.progress import Silence

AGENTS, E = 5, 100
# (hidden layers, batch, updates of each of our agents, of each peer's agents)
ROWS = (((128,), 16, 20_000, 2500), ((64, 64), 64, 5000, 2000), ((128, 128), 128, 2000, 1200))
# How each peer is run, and how much longer than the slowest, to be timed over seconds.
PEERS: dict[str, tuple[list[str], int]] = {
    "sb3": (["sb3"], 1),
    "loop": (["loop"], 1),
    "stacked": (["stacked", "--threads", "2"], 5),
    "stacked, 2 processes": (["stacked", "--processes", "2", "--threads", "1"], 5),
}


class Stopwatch(Silence):
    """Starts when a seed has trained for a leg, that is when all is compiled."""

    started = 0.0
    left = 1.0
    """Share of the work that is done while the clock runs."""

    def begin(self, total: float, done: float) -> None:
        self._total, self._done = total, done

    def advance(self, amount: float) -> None:
        self._done += amount
        # The first evaluation, of the untrained model, counts 1.
        if self._done > 1.5 and not self.started:
            self.started, self.left = time.perf_counter(), 1 - self._done / self._total

    def share_per_second(self) -> float:
        return self.left / (time.perf_counter() - self.started)


def ours(hidden: tuple[int, ...], batch: int, updates: int, seeds: int) -> float:
    """Updates per second, over all agents and seeds, of a whole run."""
    learner = DQN(
        hidden=hidden,
        batch=batch,
        replay=10_000,
        learning_starts=100,
        target_every=10,
        exploration="linear",
        epsilon_updates=1000,
    )
    experiment = Experiment(
        name="bench",
        family=CartPoles(),
        learner=learner,
        agents=AGENTS,
        E=E,
        updates=updates,
        seeds=seeds,
        evaluation=Evaluation(every=1000),
    )
    with tempfile.TemporaryDirectory() as folder:
        watch = Stopwatch()
        carry_out(RunDirectory.create(Path(folder), experiment), watch)
        return AGENTS * seeds * updates * watch.share_per_second()


def peer(python: str, name: str, hidden: tuple[int, ...], batch: int, steps: int) -> float:
    """Updates per second of a peer, in a process of its own."""
    arguments, longer = PEERS[name]
    command = [python, "-m", "benchmarks.dqn_peers", *arguments, "--batch", str(batch)]
    command += ["--hidden", ",".join(map(str, hidden)), "--steps", str(steps * longer)]
    command += ["--agents", str(AGENTS), "--E", str(E)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    record = json.loads(output.strip().splitlines()[-1])
    return float(record["updates_per_second"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers-python", help="interpreter that has torch and stable-baselines3")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    machine = describe()
    print(*(f"{name}: {value}" for name, value in machine.items()), sep="\n")
    record: list[dict[str, Any]] = []
    for hidden, batch, updates, peer_steps in ROWS:
        rates: dict[str, list[float]] = {}
        for _ in range(given.repeats):
            for seeds in (1, 8):
                rate = ours(hidden, batch, updates, seeds)
                rates.setdefault(f"ours x {seeds} seeds", []).append(rate)
            for name in PEERS if given.peers_python else ():
                rate = peer(given.peers_python, name, hidden, batch, peer_steps)
                rates.setdefault(name, []).append(rate)
        medians = {name: statistics.median(values) for name, values in rates.items()}
        record.append({"hidden": hidden, "batch": batch, "rates": rates, "medians": medians})
        print(f"\n4-{'-'.join(map(str, hidden))}-2, batch {batch}: updates/s (spread)")
        for name, values in rates.items():
            line = f"  {name:20s} {medians[name]:9,.0f}  ({min(values):,.0f} to {max(values):,.0f})"
            if name not in PEERS and given.peers_python:
                line += "".join(f"  {medians[name] / medians[p]:6.1f}x {p}" for p in PEERS)
            print(line, flush=True)
    if given.json:
        given.json.write_text(json.dumps({"machine": machine, "rows": record}, indent=2) + "\n")
        print(f"\n{given.json}")


if __name__ == "__main__":
    main()
