"""Have three small kernels grown since their costs were last recorded? Fails if one has.

    python -m benchmarks.regression [--record]

Counts from compiled programs are compared with those in `regression.json`, and so is the processor
time of each kernel as a multiple of what NumPy needs for its bare arithmetic, both in a process on
one core. A time that is too long is measured again before it is believed. `--record` makes what is
found now the measure of what comes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

RECORDED = Path(__file__).with_name("regression.json")
RATIO = "time / NumPy's"
"""The only quantity that is measured; all others are counted."""

# What a quantity may be at most, as a multiple of what is recorded. Counts are the same in every
# run: the margin is for changes that are worth a few instructions.
COUNT_MARGIN = 1.05
# In 20 processes on two cores that others kept busy as well, no ratio was more than 10% above their
# median and none 13% below it: half as much time again is noticed, and noise is not.
RATIO_MARGIN = 1.25
# Another JAX compiles other programs, and another processor or NumPy has other ratios (DQN's was
# 1.78 on an older generation of the processor on which it is 0.88): then only what is out of all
# proportion is told from what they change.
OTHER_COUNT_MARGIN, OTHER_RATIO_MARGIN = 2.0, 3.0
# How often a ratio that is too large is measured, and how often one that is recorded.
ATTEMPTS = 3

Costs = dict[str, dict[str, float]]


class Found(NamedTuple):
    """Costs by kernel and quantity, and what they were found on."""

    on: dict[str, str]
    kernels: Costs


class Line(NamedTuple):
    """One quantity of one kernel, before and now."""

    kernel: str
    quantity: str
    recorded: float | None
    now: float
    margin: float

    @property
    def grown(self) -> bool:
        return self.recorded is not None and self.now > self.recorded * self.margin

    @property
    def verdict(self) -> str:
        if self.recorded is None:
            return "not recorded"
        if self.grown:
            return "GREW"
        return "less, record it" if self.now * self.margin < self.recorded else "ok"


def margin(quantity: str, before: dict[str, str], now: dict[str, str]) -> float:
    """What a quantity may be, as a multiple of what it was elsewhere or here."""
    if quantity == RATIO:
        return RATIO_MARGIN if before == now else OTHER_RATIO_MARGIN
    return COUNT_MARGIN if before.get("jax") == now["jax"] else OTHER_COUNT_MARGIN


def compare(recorded: Found, now: Found) -> list[Line]:
    """All quantities that are known now."""
    return [
        Line(
            kernel,
            quantity,
            recorded.kernels.get(kernel, {}).get(quantity),
            value,
            margin(quantity, recorded.on, now.on),
        )
        for kernel, costs in now.kernels.items()
        for quantity, value in costs.items()
    ]


def convinced(recorded: Found, measure: Callable[[], Found]) -> Found:
    """Costs now, with the smallest ratios of up to `ATTEMPTS`, as far as any is too large."""
    now = measure()
    for _ in range(ATTEMPTS - 1):
        grown = [line for line in compare(recorded, now) if line.grown]
        if all(line.quantity != RATIO for line in grown):
            break
        again = measure()
        for kernel, costs in now.kernels.items():
            costs[RATIO] = min(costs[RATIO], again.kernels[kernel][RATIO])
    return now


def typical(measured: list[Found]) -> Found:
    """Medians, to be recorded."""
    first = measured[0]
    kernels = {
        kernel: {
            quantity: round(statistics.median(one.kernels[kernel][quantity] for one in measured), 3)
            for quantity in costs
        }
        for kernel, costs in first.kernels.items()
    }
    return first._replace(kernels=kernels)


def table(lines: list[Line]) -> str:
    """For people."""
    rows = [("kernel", "quantity", "recorded", "now", "margin", "verdict")]
    for line in lines:
        before = "-" if line.recorded is None else f"{line.recorded:,.10g}"
        now = f"{line.now:,.2f}" if line.quantity == RATIO else f"{line.now:,.10g}"
        rows.append((line.kernel, line.quantity, before, now, f"{line.margin:g}x", line.verdict))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = "<<>>><"
    return "\n".join(
        "  ".join(f"{x:{side}{w}}" for x, side, w in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    )


def complaint(lines: list[Line]) -> str:
    """What grew, in words; nothing if nothing did."""
    grown = [line for line in lines if line.grown]
    if not grown:
        return ""
    words = [
        f"{line.kernel}: {line.quantity} from {line.recorded:,.10g} to {line.now:,.10g}"
        + (f" ({line.now / line.recorded:.2f} times)" if line.recorded else "")
        for line in grown
    ]
    return (
        "These grew beyond their margins:\n  "
        + "\n  ".join(words)
        + "\nIf the change is worth it, say so in the commit and record what it costs:"
        + "\n  python -m benchmarks.regression --record"
    )


def measured() -> Found:
    """Costs now, from a process of its own on one core, so that no thread waits for another."""
    single = {"JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    output = subprocess.run(
        [sys.executable, "-m", "benchmarks.regression_measure"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=environment | single,
    ).stdout
    return read(output)


def read(text: str) -> Found:
    found: dict[str, Any] = json.loads(text)
    return Found(found["on"], found["kernels"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--record", action="store_true", help="what is found is right from now on")
    given = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if given.record:
        now = typical([measured() for _ in range(ATTEMPTS)])
        RECORDED.write_text(json.dumps(now._asdict(), indent=2) + "\n")
        print(f"{table(compare(now, now))}\n\n{RECORDED}")
        return
    recorded = read(RECORDED.read_text())
    now = convinced(recorded, measured)
    lines = compare(recorded, now)
    print(table(lines))
    for name, value in now.on.items():
        if recorded.on.get(name) != value:
            print(f"{name}: recorded with {recorded.on.get(name)}, now {value}: wider margins")
    if words := complaint(lines):
        sys.exit(f"\n{words}")


if __name__ == "__main__":
    main()
