"""The command line."""

import argparse
import json
import platform
from importlib import metadata

from benchmarks.ddpg_peers import __doc__ as description
from benchmarks.ddpg_peers.common import ROBOTS, Work, need
from benchmarks.ddpg_peers.processes import measure

PACKAGES = {
    "sb3": ["torch", "stable-baselines3", "gymnasium", "mujoco", "numpy"],
    "loop": ["torch", "gymnasium", "mujoco", "numpy"],
    "bare": ["torch", "numpy"],
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peer", choices=PACKAGES)
    parser.add_argument("--robot", choices=ROBOTS, default="HalfCheetah-v5")
    parser.add_argument("--hidden", default="400,300", help="units of the two hidden layers")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--agents", type=int, default=5, help="bare: one for each process")
    parser.add_argument("--E", type=int, default=100, help="updates between averagings")
    parser.add_argument("--seconds", type=float, default=15.0, help="after the warm-up")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    given = parser.parse_args()
    hidden = tuple(int(units) for units in given.hidden.split(","))
    if len(hidden) != 2:
        parser.error("--hidden must be two numbers")
    for package in PACKAGES[given.peer]:
        need(package.replace("-", "_"))
    work = Work(
        robot=given.robot,
        hidden=hidden,
        batch=given.batch,
        agents=given.processes if given.peer == "bare" else given.agents,
        E=given.E,
        seconds=given.seconds,
        seed=given.seed,
        processes=given.processes,
        threads=given.threads,
    )
    measured = measure(given.peer, work)
    versions = {package: metadata.version(package) for package in PACKAGES[given.peer]}
    record = {
        "peer": given.peer,
        "robot": work.robot,
        "hidden": list(work.hidden),
        "batch": work.batch,
        "agents": work.agents,
        "E": work.E,
        "processes": work.processes,
        "threads": work.threads,
        "timed_updates_per_agent": measured.updates,
        "seconds": round(measured.seconds, 3),
        "updates_per_second": round(work.agents * measured.updates / measured.seconds, 1),
        "mean_return_last": measured.mean_return_last,
        "versions": {"python": platform.python_version(), **versions},
    }
    print(json.dumps(record))


if __name__ == "__main__":
    main()
