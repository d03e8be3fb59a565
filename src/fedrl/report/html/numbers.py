"""Numbers as people read them."""

from math import ceil, floor, isfinite, log10

import numpy as np

from fedrl.files import Array
from fedrl.report.arms import DIVERGED, Interval

MINUS = "−"
NICE = (1.0, 2.0, 2.5, 5.0, 10.0)
PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most about `most` round numbers from low to high."""
    if not (isfinite(low) and isfinite(high)) or high <= low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** floor(log10(rough))
    step = power * next(nice for nice in NICE if nice * power >= rough * (1 - 1e-9))
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def extremes(values: Array) -> tuple[float, float]:
    """Smallest and largest of those that are finite; (0, 1) if none is."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def short(value: float) -> str:
    """20000 as 20k: for axes, where six digits run into each other."""
    for size, letter in PREFIXES:
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}".replace("-", MINUS)
    # Adding 0 makes -0 one without a sign. Tiny numbers have an exponent with one of its own.
    text = f"{value + 0.0:.4g}"
    return text if "e" in text else text.replace("-", MINUS)


def decimal(value: float) -> str:
    """A return, with a real minus."""
    if not isfinite(value):
        return DIVERGED
    return f"{value:.1f}".replace("-", MINUS)


def as_words(interval: Interval) -> str:
    """A mean and its interval; a single seed has none."""
    mean = decimal(interval.mean)
    return f"{mean} ± {decimal(interval.half)}" if isfinite(interval.half) else mean


def bytes_as_words(count: float) -> str:
    """A number of bytes in the unit that fits."""
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return (
                f"{count / size:.3g} {unit}" if count < 100 * size else f"{count / size:.0f} {unit}"
            )
    return f"{count:.0f} bytes"
