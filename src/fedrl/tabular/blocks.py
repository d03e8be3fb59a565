"""Many replicates: in blocks that fit the cache, on every core and every device.

The size of a block follows from the size of the problem and the kind of device alone, and the last
block is filled up. A replicate therefore goes through the same arithmetic however many others are
run, on however many devices: on one kind of device its result is the same to the last bit.
"""

import queue
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax

from fedrl.devices import worker_devices

Block = TypeVar("Block")
Result = TypeVar("Result")

# Bytes of transition probabilities in a block: half the level-2 cache of a common core, as far as
# they are most of it; small problems are bounded by the largest block.
CPU_BLOCK_BYTES = 400 * 1024
CPU_LARGEST_BLOCK = 64
# A GPU wants many lanes; bounded so that a block and its temporaries fit a small card.
GPU_BLOCK_BYTES = 1 << 29
GPU_LARGEST_BLOCK = 8192
# Records are written rarely and need not fit a cache, but long runs must not fill the memory.
RECORD_BYTES = 1 << 30
# Blocks are whole vectors wide, so that no replicate lands in a scalar remainder loop.
VECTOR = 8


def block_size(platform: str, *, problem_bytes: int, record_bytes: int) -> int:
    """Replicates in a block, from the bytes that one needs for its problem and its records.

    One, if a single problem already fills the cache.
    """
    budget, largest = (
        (CPU_BLOCK_BYTES, CPU_LARGEST_BLOCK)
        if platform == "cpu"
        else (GPU_BLOCK_BYTES, GPU_LARGEST_BLOCK)
    )
    size = min(largest, budget // problem_bytes, RECORD_BYTES // record_bytes)
    if problem_bytes > budget or record_bytes * VECTOR > RECORD_BYTES:
        return 1
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
