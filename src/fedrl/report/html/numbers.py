"""Numbers as people read them."""

from math import isfinite

import numpy as np
from matplotlib.ticker import MaxNLocator

from fedrl.files import Array
from fedrl.report.arms import DIVERGED, Interval

MINUS = "−"
PREFIXES = {"G": 1e9, "M": 1e6, "k": 1e3}


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most about `most` round numbers from low to high."""
    if not (isfinite(low) and isfinite(high)) or high <= low:
        return [low]
    around = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    little = (high - low) * 1e-9
    return [float(x) for x in around if low - little <= x <= high + little]


def extremes(values: Array) -> tuple[float, float]:
    """Smallest and largest of those that are finite; (0, 1) if none is."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def short(value: float) -> str:
    """20000 as 20k: for axes, where six digits run into each other."""
    number, prefix = _scaled(value)
    # Adding 0 makes -0 one without a sign. Tiny numbers have an exponent with one of its own.
    text = f"{number + 0.0:.4g}{prefix}"
    return text if "e" in text else text.replace("-", MINUS)


def decimal(value: float) -> str:
    """A return, with a real minus."""
    return f"{value:.1f}".replace("-", MINUS) if isfinite(value) else DIVERGED


def as_words(interval: Interval) -> str:
    """A mean and its interval; a single seed has none."""
    return str(interval).replace("-", MINUS)


def bytes_as_words(count: float) -> str:
    """A number of bytes in the unit that fits."""
    number, prefix = _scaled(count)
    digits = f"{number:.3g}" if prefix and number < 100 else f"{number:.0f}"
    return f"{digits} {f'{prefix}B' if prefix else 'bytes'}"


def _scaled(value: float) -> tuple[float, str]:
    """A number in the largest unit that it has one of."""
    fitting = ((value / size, x) for x, size in PREFIXES.items() if abs(value) >= size)
    return next(fitting, (value, ""))
