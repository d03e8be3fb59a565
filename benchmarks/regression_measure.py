"""What a kernel costs: counts from the compiled program, and its time beside NumPy's.

Counts are the same in every run, however busy the machine and whatever its processor. A loop's body
is counted once, as the compiler does not know how often it is run. Time is that of the processor
and not of the clock on the wall, and taken in turns with NumPy's.
"""

import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np

from benchmarks.machine import describe
from benchmarks.regression import RATIO
from benchmarks.regression_kernels import KERNELS, Kernel

PAIRS = 100


# What takes no time of its own, or stands for what is counted inside of it.
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional"}
# Computations that are run as they stand; those of fusions and reductions are part of a kernel.
CALLED = re.compile(r"(?:body|condition|true_computation|false_computation)=%?([\w.-]+)")
BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")
# A tuple's type has parentheses and comments of its own, and ends before the last word.
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.-]+ = (\(.*?\)|\S+) ([a-z][\w-]*)\(")
SHAPE = re.compile(r"^([a-z]+)(\d*)\[([\d,]*)\]")


def counts(compiled: jax.stages.Compiled) -> dict[str, float]:
    """What is known of a compiled program before it runs."""
    cost = compiled.cost_analysis()
    memory = compiled.memory_analysis()
    assert cost is not None
    assert memory is not None
    kernels = list(instructions(compiled.as_text() or ""))
    return {
        "operations": cost["flops"],
        "bytes read and written": cost["bytes accessed"],
        "kernels": len(kernels),
        "bytes copied": sum(size(shape) for name, shape in kernels if name == "copy"),
        "temporary bytes": memory.temp_size_in_bytes,
    }


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Name and shape of everything that a program runs one by one, from its text."""
    computations: dict[str, list[str]] = {}
    waiting: list[str] = []
    for line in text.splitlines():
        if found := COMPUTATION.match(line):
            body = computations.setdefault(found[2], [])
            waiting += [found[2]] if found[1] else []
        elif computations:
            body.append(line)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for line in computations[name]:
            waiting += CALLED.findall(line)
            for branches in BRANCHES.findall(line):
                waiting += re.findall(r"[\w.-]+", branches)
            if (found := INSTRUCTION.match(line)) and found[2] not in FREE:
                yield found[2], found[1]


def size(shape: str) -> int:
    """Bytes of an array, from its type in a program's text."""
    found = SHAPE.match(shape)
    if found is None:  # a tuple or a token
        return 0
    bits = int(found[2] or 8)  # pred
    numbers = [int(number) for number in found[3].split(",") if number]
    return int(np.prod(numbers, dtype=np.int64)) * bits // 8


def ratio(
    ours: Callable[[], object],
    bare: Callable[[], object],
    *,
    pairs: int = PAIRS,
    clock: Callable[[], float] = time.process_time,
) -> float:
    """The median over pairs, one run of each at a time: what disturbs disturbs both."""

    def seconds(work: Callable[[], object]) -> float:
        begun = clock()
        work()
        return clock() - begun

    for work in (ours, bare):  # the first time is like no other
        work()
    return statistics.median(seconds(ours) / seconds(bare) for _ in range(pairs))


def measure(kernel: Kernel) -> dict[str, float]:
    """Every quantity of a kernel."""
    return counts(kernel.compiled) | {RATIO: ratio(kernel, kernel.bare)}


def main() -> None:
    machine = describe()
    found = {
        "on": {name: machine[name] for name in ("jax", "numpy", "processor")},
        "kernels": {name: measure(make()) for name, make in KERNELS.items()},
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
