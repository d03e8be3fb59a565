"""The command line."""

import argparse
import json
import platform
from importlib import metadata

from benchmarks.peers import __doc__ as description
from benchmarks.peers.ddpg import common as ddpg
from benchmarks.peers.dqn import common as dqn
from benchmarks.peers.group import Work, need
from benchmarks.peers.processes import measure

# What each peer is made of.
PACKAGES = {
    "dqn.sb3": ["torch", "stable-baselines3", "gymnasium", "numpy"],
    "dqn.loop": ["torch", "gymnasium", "numpy"],
    "dqn.stacked": ["torch", "numpy"],
    "dqn.purejax": ["jax", "optax", "numpy"],
    "dqn.rejax": ["rejax", "jax", "flax", "gymnax", "optax", "numpy"],
    "ddpg.sb3": ["torch", "stable-baselines3", "gymnasium", "mujoco", "numpy"],
    "ddpg.loop": ["torch", "gymnasium", "mujoco", "numpy"],
    "ddpg.stacked": ["torch", "gymnasium", "mujoco", "numpy"],
    "ddpg.bare": ["torch", "numpy"],
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("algorithm", choices=("dqn", "ddpg"))
    parser.add_argument("peer", help="sb3, loop, stacked; dqn: purejax, rejax; ddpg: bare")
    parser.add_argument("--hidden", default="64,64", help="units of the hidden layers")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--agents", type=int, default=5)
    parser.add_argument("--E", type=int, default=100, help="updates between averagings")
    parser.add_argument("--seconds", type=float, default=4.0, help="after the warm-up")
    parser.add_argument("--robot", choices=ddpg.ROBOTS, default="HalfCheetah-v5")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--eager", action="store_true", help="stacked: without torch.compile")
    parser.add_argument("--huber", action="store_true", help="dqn sb3: with its own loss")
    given = parser.parse_args()
    name = f"{given.algorithm}.{given.peer}"
    if name not in PACKAGES:
        parser.error(f"there is no {given.peer} for {given.algorithm}")
    for package in PACKAGES[name]:
        need(package.replace("-", "_"))
    work = Work(
        hidden=tuple(int(units) for units in given.hidden.split(",")),
        batch=given.batch,
        agents=given.agents,
        E=given.E,
        learning_starts={"dqn": dqn, "ddpg": ddpg}[given.algorithm].LEARNING_STARTS,
        seconds=given.seconds,
        processes=given.processes,
        threads=given.threads,
        seed=given.seed,
        robot=given.robot if given.algorithm == "ddpg" else "",
        compiled=not given.eager,
        huber=given.huber,
    )
    measured = measure(name, work)
    versions = {package: metadata.version(package) for package in PACKAGES[name]}
    record = {
        "value": work.agents * measured.updates / measured.seconds,
        "mean_return_last": measured.mean_return_last,
        "timed_updates_per_agent": measured.updates,
        "versions": {"python": platform.python_version(), **versions},
    }
    print(json.dumps(record))


if __name__ == "__main__":
    main()
