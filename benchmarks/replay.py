"""Our ring of packed rows against flashbax's item buffer: add one transition, sample a batch.

5 agents (vmapped), 10,000 transitions, CartPole's sizes. Needs `pip install flashbax`.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.machine import describe
from fedrl.learners import replay
from fedrl.learners.replay import Memory

AGENTS, CAPACITY, STEPS = 5, 10_000, 2000


def transition(t: jax.Array) -> replay.Transition:
    """Something that depends on t and on nothing else."""
    x = jnp.full(4, t, jnp.float32)
    return replay.Transition(x, t % 2, jnp.float32(1), x + 1, t % 7 == 0)


def ours(batch: int) -> Callable[[jax.Array], Any]:
    def run(key: jax.Array) -> jax.Array:
        rows = jnp.stack([Memory().empty(CAPACITY, 4, 1)] * AGENTS)

        def step(t: jax.Array, carry: Any) -> Any:
            rows, total = carry
            u = jax.random.uniform(jax.random.fold_in(key, t), (AGENTS, batch))
            picked = jax.vmap(replay.sample, in_axes=(0, 0, None))(rows, u, t + 1)
            # What is stored depends on what was read, as in an agent that learns and then acts.
            row = replay.pack(transition(t)) + 0.0 * picked[:, 0]
            rows = jax.vmap(replay.store, in_axes=(0, 0, None))(rows, row, t + 1)
            return rows, total + picked.sum()

        total: jax.Array = jax.lax.fori_loop(0, STEPS, step, (rows, jnp.float32(0)))[1]
        return total

    return jax.jit(run)


def flashbax(batch: int) -> Callable[[jax.Array], Any]:
    import flashbax as fbx

    buffer = fbx.make_item_buffer(
        max_length=CAPACITY, min_length=1, sample_batch_size=batch, add_batches=False
    )

    def run(key: jax.Array) -> jax.Array:
        one = transition(jnp.int32(0))._replace(terminated=jnp.bool_(False))
        state = jax.vmap(lambda _: buffer.init(one))(jnp.arange(AGENTS))
        state = jax.vmap(lambda s: buffer.add(s, one))(state)

        def step(t: jax.Array, carry: Any) -> Any:
            state, total = carry
            keys = jax.random.split(jax.random.fold_in(key, t), AGENTS)
            picked = jax.vmap(buffer.sample)(state, keys).experience
            new = transition(t)
            new = jax.vmap(lambda p: new._replace(observation=new.observation + 0.0 * p[0]))(
                picked.observation
            )
            state = jax.vmap(buffer.add)(state, new)
            return state, total + picked.observation.sum() + picked.next_observation.sum()

        total: jax.Array = jax.lax.fori_loop(0, STEPS, step, (state, jnp.float32(0)))[1]
        return total

    return jax.jit(run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    print(*(f"{name}: {value}" for name, value in describe().items()), sep="\n")
    for batch in (16, 64, 128):
        programs = {"ours": ours(batch), "flashbax": flashbax(batch)}
        times: dict[str, list[float]] = {name: [] for name in programs}
        for program in programs.values():
            program(jax.random.key(0)).block_until_ready()
        for _ in range(repeats):
            for name, program in programs.items():
                start = time.perf_counter()
                program(jax.random.key(1)).block_until_ready()
                times[name].append((time.perf_counter() - start) / STEPS * 1e6)
        line = ", ".join(
            f"{name} {statistics.median(values):.1f} us ({min(values):.1f} to {max(values):.1f})"
            for name, values in times.items()
        )
        print(f"batch {batch}: a step of {AGENTS} agents: {line}")


if __name__ == "__main__":
    main()
