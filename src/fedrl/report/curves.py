"""Learning curves: return against training, the mean over seeds and a band of standard errors."""

from collections.abc import Sequence
from math import inf

import numpy as np
from matplotlib.axes import Axes

from fedrl.files import Array
from fedrl.report.arms import Arm
from fedrl.report.figures import BAND, COLOURS, tidy

# When there are more arms than colours.
LINES = ("-", "--", ":")
COLUMNS = ("arm", "split", "updates", "seed")


def mean_and_band(arm: Arm, split: str) -> tuple[Array, Array]:
    """The curve of an arm, and how far its band reaches: infinitely far for a single seed."""
    curve = arm.curves[split]
    seeds, evaluations = curve.shape
    spread = curve.std(0, ddof=1) if seeds > 1 else np.full(evaluations, inf)
    return curve.mean(0), BAND * spread / seeds**0.5


def draw_curves(ax: Axes, arms: Sequence[Arm], split: str) -> None:
    """One line for each arm."""
    from matplotlib.ticker import EngFormatter

    for number, arm in enumerate(arms):
        colour = COLOURS[number % len(COLOURS)]
        line = LINES[number // len(COLOURS) % len(LINES)]
        mean, band = mean_and_band(arm, split)
        ax.plot(arm.updates, mean, color=colour, linestyle=line, linewidth=1.3, label=arm.shown)
        if len(arm.curves[split]) > 1:
            ax.fill_between(arm.updates, mean - band, mean + band, color=colour, alpha=0.15)
    ax.set_xlabel(f"{arms[0].experiment.unit} of each agent")
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))  # 20k: six digits run into each other
    tidy(ax)


def rows(arms: Sequence[Arm], splits: Sequence[str]) -> list[list[object]]:
    """The numbers behind the curves, a row for each."""
    return [
        [arm.label, split, int(updates), seed, f"{value:.6g}"]
        for arm in arms
        for split in splits
        for column, updates in enumerate(arm.updates)
        for seed, value in enumerate(arm.curves[split][:, column])
    ]
