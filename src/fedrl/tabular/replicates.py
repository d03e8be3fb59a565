"""Federated runs of many replicates: in blocks that fit the cache, on every core and device.

The size of a block follows from the size of the problem and the kind of device alone, and the last
block is filled up. A replicate therefore goes through the same arithmetic however many others are
run, on however many devices: on one kind of device its result is the same to the last bit.
"""

import queue
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from math import isinf
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedrl.devices import worker_devices
from fedrl.errors import FedrlError
from fedrl.keys import Purpose, numbered, replicate_keys
from fedrl.launches import wide_vectors
from fedrl.strategies.strategy import PLAIN, Strategy
from fedrl.tabular.exact.lanes import to_every_agent, to_lanes
from fedrl.tabular.exact.mdp import MDPs, stored
from fedrl.tabular.exact.sparsity import Sparsity, sparsity_of
from fedrl.tabular.learners import TabularLearner
from fedrl.tabular.problems import Floats, Source
from fedrl.tabular.rounds import Plan, Trained, train

Block = TypeVar("Block")
Result = TypeVar("Result")

# Bytes of transition probabilities in a block, and its replicates: half the level-2 cache of a
# common core, as far as they are most of it; small problems are bounded by the largest block.
CPU_BLOCK = 400 * 1024, 64
# A GPU wants many lanes; bounded so that a block and its temporaries fit a small card.
GPU_BLOCK = 1 << 29, 8192
# Records are written rarely and need not fit a cache, but long runs must not fill the memory.
RECORD_BYTES = 1 << 30
# Blocks are whole vectors wide, so that no replicate lands in a scalar remainder loop.
VECTOR = 8


@dataclass(frozen=True)
class Schedule:
    """How often to communicate and how far to step."""

    lr: Floats
    """Step size of each local update, (iterations,)."""
    E: float
    """Local updates between two communications; `inf`: never."""
    decay: float | None = None
    """Factor on the step size when a round brings less than 0.1 %; None: never."""
    most_rounds: int | None = None
    """Stop after so many rounds; None: when the iterations are done."""

    @property
    def iterations(self) -> int:
        return len(self.lr)

    @property
    def updates_per_round(self) -> int:
        # Without communication every local update is a round: the average is only looked at.
        return 1 if isinf(self.E) else min(int(self.E), self.iterations)

    @property
    def rounds(self) -> int:
        needed = -(-self.iterations // self.updates_per_round)
        return needed if self.most_rounds is None else min(needed, self.most_rounds)

    @property
    def recorded_at(self) -> NDArray[np.int64]:
        """Local updates done at each entry of a record."""
        return np.minimum(np.arange(self.rounds + 1) * self.updates_per_round, self.iterations)

    def plan(self) -> Plan:
        return Plan(
            lr=jnp.asarray(self.lr, jnp.float64),
            decay=jnp.asarray(1.0 if self.decay is None else self.decay, jnp.float64),
            local_updates=jnp.asarray(self.updates_per_round, jnp.int64),
            rounds=jnp.asarray(self.rounds, jnp.int64),
            communicate=jnp.asarray(not isinf(self.E)),
        )


@partial(jax.jit, static_argnames="sparsity")
def lay_out(
    P: jax.Array, R: jax.Array, d0: jax.Array, gamma: jax.Array, *, sparsity: Sparsity | None
) -> MDPs:
    """The MDPs of a block, lane-last."""
    count = P.shape[1]
    rewards = to_every_agent(jnp.moveaxis(R, 0, -1), count)
    starts = to_every_agent(d0.T, count)
    return MDPs(to_lanes(stored(P, sparsity)), rewards, starts, gamma, sparsity)


@partial(jax.jit, static_argnums=(0, 1, 2))
def draw_tables(
    learner: TabularLearner, states: int, actions: int, seed: jax.Array, replicates: jax.Array
) -> jax.Array:
    """The learner's initial tables, (replicates, S, A)."""
    draw = partial(learner.init, states=states, actions=actions)
    return jax.vmap(draw)(replicate_keys(seed, replicates, Purpose.TABLE))


@partial(jax.jit, static_argnums=0)
def lane_keys(agents: int, seed: jax.Array, replicates: jax.Array) -> jax.Array:
    """A key for each agent of each replicate, as lanes are numbered."""
    of_replicates = replicate_keys(seed, replicates, Purpose.AGENTS)
    return jax.vmap(lambda key: numbered(key, agents), out_axes=1)(of_replicates).reshape(-1)


@cache
def _compiled(platform: str) -> Callable[..., Trained]:
    static = ("learner", "strategy", "agents", "with_baseline")
    return jax.jit(train, static_argnames=static, compiler_options=wide_vectors(platform))


def run_replicates(
    learner: TabularLearner,
    source: Source,
    schedule: Schedule,
    strategy: Strategy = PLAIN,
    *,
    gamma: float,
    seed: int,
    with_baseline: bool = False,
) -> Trained:
    """Run every replicate of a source; arrays of NumPy, replicates first."""
    agents, states, actions = source.size
    support = source.support if learner.exact else None
    sparsity = None if support is None else sparsity_of(support)
    in_lanes = partial(lay_out, sparsity=sparsity)
    platform = jax.local_devices()[0].platform
    # A cache has to hold what is worked on, an accelerator's memory also what it is made of.
    held = sparsity if platform == "cpu" else None
    successors = states if held is None else held.next_states.shape[-1]
    problem_bytes = 8 * agents * states * actions * successors
    size = block_size(platform, problem_bytes, record_bytes=8 * 3 * (schedule.iterations + 1))
    with jax.enable_x64(True):
        plan = schedule.plan()

    def run_block(start: int, device: jax.Device) -> Trained:
        # The 64-bit switch and the default device are both local to the thread.
        with jax.enable_x64(True), jax.default_device(device):
            P, R, d0, held_out, init = jax.device_put(source.block(start, size), device)
            numbers = jnp.arange(start, start + size, dtype=jnp.uint32) + source.first
            root, discount = jnp.uint32(seed), jnp.float64(gamma)
            if init is None:
                init = draw_tables(learner, states, actions, root, numbers)
            trained = _compiled(device.platform)(
                learner,
                strategy,
                agents,
                plan,
                in_lanes(P, R, d0, discount),
                None if held_out is None else in_lanes(held_out, R, d0, discount),
                jnp.moveaxis(init, 0, -1),
                lane_keys(agents, root, numbers),
                replicate_keys(root, numbers, Purpose.NOISE),
                with_baseline=with_baseline,
            )
            return _replicates_first(trained, source.replicates - start, len(schedule.recorded_at))

    blocks = map_blocks(run_block, range(0, source.replicates, size))
    trained: Trained = jax.tree.map(lambda *parts: np.concatenate(parts), *blocks)
    _refuse_diverged(trained, schedule, source.first)
    return trained


def _replicates_first(trained: Trained, replicates: int, records: int) -> Trained:
    """Drop what filled the block up and the records past the last round."""
    table, policy, *record = jax.tree.map(
        lambda x: np.moveaxis(np.asarray(x)[..., :replicates], -1, 0), trained
    )
    return Trained(table, policy, *jax.tree.map(lambda x: x[:, :records], record))


def _refuse_diverged(trained: Trained, schedule: Schedule, first: int) -> None:
    """Refuse what is not finite: greedy policies look well whatever their tables hold."""
    good = np.isfinite(trained.objective)
    if trained.evaluation is not None:
        good &= np.isfinite(trained.evaluation)
    diverged = ~(np.isfinite(trained.table).all((1, 2)) & good.all(1))
    if diverged.any():
        number = int(np.argmax(diverged))
        late = schedule.recorded_at[~good[number]].min(initial=schedule.iterations)
        raise FedrlError(
            f"learning has diverged: the table or the objective of replicate "
            f"{first + number} is not a finite number after {late} local updates "
            f"({diverged.sum()} of {len(diverged)} replicates have diverged): lower lr"
        )


def block_size(platform: str, problem_bytes: int, record_bytes: int) -> int:
    """Replicates in a block, from the bytes that one needs for its problem and its records.

    One, if a single problem already fills the cache.
    """
    budget, largest = CPU_BLOCK if platform == "cpu" else GPU_BLOCK
    if problem_bytes > budget or record_bytes * VECTOR > RECORD_BYTES:
        return 1
    size = min(largest, budget // problem_bytes, RECORD_BYTES // record_bytes)
    return max(VECTOR, size // VECTOR * VECTOR)


def map_blocks(
    work: Callable[[Block, jax.Device], Result], blocks: Iterable[Block]
) -> list[Result]:
    """`work(block, device)` for every block, in order, on all workers.

    JAX compiles a program that several threads ask for at the same time once. An interrupt or an
    error waits for the blocks under way, no others.
    """
    devices = worker_devices()
    free: queue.SimpleQueue[jax.Device] = queue.SimpleQueue()
    for device in devices:
        free.put(device)

    def on_free_device(block: Block) -> Result:
        device = free.get()
        try:
            return work(block, device)
        finally:
            free.put(device)

    pool = ThreadPoolExecutor(len(devices), thread_name_prefix="fedrl-block")
    try:
        return list(pool.map(on_free_device, blocks))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
