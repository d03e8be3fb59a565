"""The command line."""

import argparse
import json
import platform
from importlib import metadata

from benchmarks.dqn_peers import __doc__ as description
from benchmarks.dqn_peers.common import WARM_UP, Work, need
from benchmarks.dqn_peers.processes import measure

PACKAGES = {
    "sb3": ["torch", "stable-baselines3", "gymnasium", "numpy"],
    "loop": ["torch", "gymnasium", "numpy"],
    "stacked": ["torch", "numpy"],
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peer", choices=PACKAGES)
    parser.add_argument("--hidden", default="128", help="units of the hidden layers, as in 64,64")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--agents", type=int, default=5)
    parser.add_argument("--E", type=int, default=100, help="updates between averagings")
    parser.add_argument("--steps", type=int, default=3000, help="of each agent, warm-up included")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, help="2; stacked: 1")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--eager", action="store_true", help="stacked: without torch.compile")
    parser.add_argument("--huber", action="store_true", help="sb3: with its own loss")
    given = parser.parse_args()
    if given.steps <= WARM_UP:
        parser.error(f"--steps must be more than the {WARM_UP} of the warm-up")
    for package in PACKAGES[given.peer]:
        need(package.replace("-", "_"))
    work = Work(
        hidden=tuple(int(units) for units in given.hidden.split(",")),
        batch=given.batch,
        agents=given.agents,
        E=given.E,
        steps=given.steps,
        seed=given.seed,
        processes=given.processes or (1 if given.peer == "stacked" else 2),
        threads=given.threads,
        compiled=given.peer == "stacked" and not given.eager,
        huber=given.peer == "sb3" and given.huber,
    )
    measured = measure(given.peer, work)
    versions = {package: metadata.version(package) for package in PACKAGES[given.peer]}
    record = {
        "peer": given.peer,
        "hidden": list(work.hidden),
        "batch": work.batch,
        "agents": work.agents,
        "E": work.E,
        "processes": work.processes,
        "threads": work.threads,
        "compile": work.compiled,
        "loss": "huber" if work.huber else "mse",
        "steps_per_agent": work.steps,
        "timed_updates_per_agent": measured.updates,
        "seconds": round(measured.seconds, 3),
        "updates_per_second": round(work.agents * measured.updates / measured.seconds, 1),
        "mean_return_last": measured.mean_return_last,
        "versions": {"python": platform.python_version(), **versions},
    }
    print(json.dumps(record))


if __name__ == "__main__":
    main()
