"""How many steps of robots per second: MuJoCo on the host and MJX on the device, physics alone.

A step is one of the environment: 5 of HalfCheetah's physics, 4 of Hopper's. Each robot has a body
of its own; all go on with the same torque.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.machine import describe
from fedrl.families import HalfCheetahs, Hoppers
from fedrl.families.robots import RobotFamily

TORQUE = 0.3
BODIES = 8  # different ones; compiling many more takes longer than the measurement


def measure(family: RobotFamily, robots: int, steps: int) -> dict[str, Any]:
    """Steps per second of all robots together, the median of three."""
    theta = jnp.tile(family.sample(jax.random.key(0), BODIES), (-(-robots // BODIES), 1))[:robots]
    constants = jax.jit(jax.vmap(family.constants))(theta)
    states = jax.vmap(family.reset)(jax.random.split(jax.random.key(1), robots))
    actions = jnp.full((robots, family.actions), TORQUE)

    @jax.jit
    def play(states: Any, constants: Any, steps: int) -> Any:
        step = jax.vmap(family.step)
        return jax.lax.fori_loop(0, steps, lambda _, s: step(s, actions, constants)[0], states)

    start = time.perf_counter()
    states = play(states, constants, 20).block_until_ready()
    compiled = time.perf_counter() - start
    times = []
    for _ in range(3):
        start = time.perf_counter()
        play(states, constants, steps).block_until_ready()
        times.append(time.perf_counter() - start)
    seconds = statistics.median(times) / steps
    return {
        "robot": family.name,
        "simulator": family.simulator,
        "robots": robots,
        "steps_per_second": robots / seconds,
        "milliseconds_per_step_of_all": 1e3 * seconds,
        "compile_seconds": compiled,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--robots", nargs="+", type=int, default=[5, 80, 640])
    parser.add_argument("--simulators", nargs="+", default=["mujoco", "mjx"])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    machine = describe()
    print(*(f"{name}: {value}" for name, value in machine.items()), sep="\n")
    rows = []
    for family in (HalfCheetahs(), Hoppers()):
        for simulator in given.simulators:
            for robots in given.robots:
                row = measure(replace(family, simulator=simulator), robots, given.steps)
                rows.append(row)
                print(
                    f"{row['robot']} {simulator}: {robots:5d} robots: "
                    f"{row['steps_per_second']:10,.0f} steps/s, "
                    f"{row['milliseconds_per_step_of_all']:.2f} ms for all "
                    f"(compiled in {row['compile_seconds']:.0f} s)",
                    flush=True,
                )
    if given.json:
        given.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
