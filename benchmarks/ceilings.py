"""What this machine can do at most: matrix products, and memory by where the numbers live.

    python -m benchmarks.ceilings

Bandwidth is STREAM's sum, a = b + c, with a thread for each core and arrays of its own: 12 bytes
for each float32. Small arrays stay in a core's cache and large ones do not.
"""

import argparse
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.machine import versions
from fedrl.devices import available_cores

PRODUCTS = 512, 1536
# Bytes of the three arrays of a core together.
SIZES = tuple(3 << n for n in (17, 19, 21, 23, 25))


def seconds(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def product(dtype: type, size: int, repeats: int = 5) -> float:
    """Operations per second of a matrix product on all cores, NumPy's or XLA's, best of a few."""
    x: Any = np.random.default_rng(0).random((size, size)).astype(dtype)
    with jax.enable_x64(True):
        ours, on_device = jax.jit(lambda x: x @ x), jnp.asarray(x)
        ways: tuple[Callable[[], Any], ...] = (
            lambda: x @ x,
            lambda: ours(on_device).block_until_ready(),
        )
        for work in ways:  # the first time compiles
            work()
        return 2 * size**3 / min(seconds(work) for work in ways for _ in range(repeats))


def bandwidth(size: int, repeats: int = 5, moved: int = 1 << 29) -> float:
    """Bytes per second that all cores together read and write, the best of a few."""
    cores = available_cores()
    arrays = [np.ones((3, size // 12), np.float32) for _ in range(cores)]
    times = max(1, moved // size)

    def one(own: Any) -> None:
        a, b, c = own
        for _ in range(times):
            np.add(b, c, out=a)

    def all_at_once() -> None:
        threads = [threading.Thread(target=one, args=(own,)) for own in arrays]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return cores * size * times / min(seconds(all_at_once) for _ in range(repeats))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    record = {
        "float32": max(product(np.float32, size, repeats) for size in PRODUCTS),
        "float64": max(product(np.float64, size, repeats) for size in PRODUCTS),
        "bandwidth": [[size, bandwidth(size, repeats)] for size in SIZES],
        "versions": versions(),
    }
    print(json.dumps(record))


if __name__ == "__main__":
    main()
