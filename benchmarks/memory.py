"""What the settings of an agent's memory cost and bring: bytes, speed, returns.

`speed` trains CartPoles with all settings in turns, in one process. `returns` trains the preset
cartpoles-dqnavg to its end with each, with as many rows and then with as many bytes. `ring` adds a
transition of a HalfCheetah's size and recalls a batch, in a large memory.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

import fedrl
from benchmarks.machine import describe
from fedrl.engine.plan import Leg
from fedrl.engine.single_device import Replicates
from fedrl.experiment.presets import preset
from fedrl.experiment.settings import Evaluation, Experiment
from fedrl.learners import replay
from fedrl.learners.replay import Memory, Transition

SETTINGS = {
    "as it is": Memory(),
    "float16": Memory(dtype="float16"),
    "bfloat16": Memory(dtype="bfloat16"),
}
# Of one agent, in `returns`: 2,000 rows as they are.
BYTES = 88_000
UNITS = 1000
AGENTS, CAPACITY, BATCH, STEPS = 5, 100_000, 64, 2000


def with_memory(experiment: Experiment, memory: Memory, rows: int | None = None) -> Experiment:
    rows = experiment.learner.replay if rows is None else rows
    return replace(experiment, learner=replace(experiment.learner, memory=memory, replay=rows))


def in_turns(programs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Seconds of every program; each is called once before."""
    for program in programs.values():
        program()
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(repeats):
        for name, program in programs.items():
            start = time.perf_counter()
            program()
            times[name].append(time.perf_counter() - start)
    return times


def speed(repeats: int) -> dict[str, Any]:
    """Steps per second of all agents of one seed, and the time of each against `as it is`."""
    experiment = replace(preset("cartpoles-dqnavg"), seeds=1, held_out=0, E=100)

    def program(memory: Memory) -> Callable[[], Any]:
        replicates = Replicates(with_memory(experiment, memory))
        replicates.start()
        leg = Leg(UNITS // 100, 100, UNITS, UNITS // 100, evaluates=False)
        return lambda: replicates.run(leg, lambda _: None)

    times = in_turns({name: program(memory) for name, memory in SETTINGS.items()}, repeats)
    return compared(times, experiment.agents * UNITS)


def ring(repeats: int) -> dict[str, Any]:
    """The same for the memory alone."""
    sizes = (17, 6)

    def program(memory: Memory) -> Callable[[], Any]:
        # Given back to be written in, as an engine's are.
        state = [jnp.stack([memory.empty(CAPACITY, *sizes)] * AGENTS)]
        run = jax.jit(lambda rows: _stored_and_recalled(memory, rows, *sizes), donate_argnums=0)

        def once() -> None:
            state[0], total = run(state[0])
            total.block_until_ready()

        return once

    times = in_turns({name: program(memory) for name, memory in SETTINGS.items()}, repeats)
    return compared(times, AGENTS * STEPS)


def _stored_and_recalled(
    memory: Memory, rows: jax.Array, size: int, actions: int
) -> tuple[jax.Array, jax.Array]:
    recall: Callable[..., Any] = jax.vmap(
        lambda rows, u, t: memory.transitions(replay.sample(rows, u, t), size), (0, 0, None)
    )

    def step(t: jax.Array, carry: Any) -> Any:
        rows, total = carry
        u = jax.random.uniform(jax.random.fold_in(jax.random.key(0), t), (AGENTS, BATCH))
        batch = recall(rows, u, t)
        seen = batch.reward.sum() + batch.observation.sum() + batch.next_observation.sum()
        # What is stored depends on what was read, as in an agent that learns and then acts.
        now = jnp.full((AGENTS, size), t, jnp.float32) + 0 * seen
        action, reward = jnp.zeros((AGENTS, actions)), jnp.ones(AGENTS)
        made = Transition(now, action, reward, now + 1, jnp.zeros(AGENTS, bool))
        rows = jax.vmap(replay.store, in_axes=(0, 0, None))(rows, jax.vmap(memory.row)(made), t)
        return rows, total + seen

    begin = 2 * CAPACITY  # the ring is full
    last: tuple[jax.Array, jax.Array] = jax.lax.fori_loop(
        begin, begin + STEPS, step, (rows, jnp.float32(0))
    )
    return last


def compared(times: dict[str, list[float]], steps: int) -> dict[str, Any]:
    first = times["as it is"]
    return {
        name: {
            "steps_per_second": steps / statistics.median(seconds),
            # Of the same turn, because a machine is not always equally fast.
            "speed": statistics.median(a / b for a, b in zip(first, seconds, strict=True)),
        }
        for name, seconds in times.items()
    }


def returns(seeds: int, updates: int, same: str) -> dict[str, Any]:
    """Mean return with a 95 % interval, at the end and over the whole training."""
    plain = replace(
        preset("cartpoles-dqnavg"),
        seeds=seeds,
        updates=updates,
        evaluation=Evaluation(every=1000, episodes=5),
    )
    found = {}
    for name, memory in SETTINGS.items():
        size = memory.row_bytes(*plain.family.remembered)
        rows = BYTES // size if same == "bytes" else plain.learner.replay
        experiment = with_memory(plain, memory, rows)
        with tempfile.TemporaryDirectory() as folder:
            metrics = fedrl.train(experiment, out=Path(folder), progress=False).metrics()
        shown = metrics.query("metric == 'return' and agent == 'average' and updates > 0")
        by_seed = shown.groupby(["seed", "updates"])["value"].mean().unstack()
        found[name] = {
            "rows": rows,
            "bytes": rows * size,
            "end": interval(by_seed[updates].to_numpy()),
            "whole": interval(by_seed.mean(axis=1).to_numpy()),
        }
        print(same, name, found[name], flush=True)
    return found


def interval(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Mean, and half the length of its 95 % interval."""
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * scipy.stats.sem(values)
    return float(values.mean()), float(half)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("speed", "ring", "returns"))
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--updates", type=int, default=20_000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results: dict[str, Any] = {"machine": describe(), "what": given.what}
    if given.what == "returns":
        for same in ("rows", "bytes"):
            results[f"same {same}"] = returns(given.seeds, given.updates, same)
    else:
        results["settings"] = (speed if given.what == "speed" else ring)(given.repeats)
    print(json.dumps(results, indent=2))
    if given.out:
        given.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
