"""The look of our figures, how they are written, and learning curves."""

import io
from collections.abc import Sequence
from math import inf
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from fedrl.files import Array, write_atomically
from fedrl.report.arms import Arm, along

# Readable in print and for colour-blind readers (Okabe and Ito), in the order we use them.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# When there are more arms than colours.
LINES = ("-", "--", ":")
BAND = 1.65  # standard errors, as in the paper's figures
COLUMNS = ("arm", "split", "updates", "seed")


def new_figure(width: float, height: float) -> Figure:
    """A figure of its own, without pyplot: nothing global, no display needed."""
    return Figure(figsize=(width, height), layout="constrained")


def panels(
    width: float, height: float, titles: Sequence[str], y_label: str
) -> tuple[Figure, list[Axes]]:
    """A figure of charts beside each other that share what is upwards."""
    figure = new_figure(width, height)
    axes = list(figure.subplots(1, len(titles), sharey=True, squeeze=False)[0])
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title)
        ax.tick_params(labelleft=True)
    axes[0].set_ylabel(y_label)
    return figure, axes


def tidy(ax: Axes) -> None:
    """Only the lines that carry meaning."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, linewidth=0.6)


def save(figure: Figure, folder: Path, name: str) -> Path:
    """As PNG, whose path is returned, and as PDF beside it."""
    # No creation date: the same results give the same file.
    for kind, metadata in (("png", None), ("pdf", {"CreationDate": None})):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, dpi=200, metadata=metadata)
        write_atomically(folder / f"{name}.{kind}", buffer.getvalue())
    return folder / f"{name}.png"


def mean_and_band(arm: Arm, split: str) -> tuple[Array, Array]:
    """The curve of an arm, and how far its band reaches: infinitely far for a single seed."""
    curve = arm.curves[split]
    seeds, evaluations = curve.shape
    spread = curve.std(0, ddof=1) if seeds > 1 else np.full(evaluations, inf)
    return curve.mean(0), BAND * spread / seeds**0.5


def draw_curves(ax: Axes, arms: Sequence[Arm], split: str) -> None:
    """Return against training: for each arm the mean over seeds, and a band of standard errors."""
    label, places = along(arms)
    for number, (arm, x) in enumerate(zip(arms, places, strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        line = LINES[number // len(COLOURS) % len(LINES)]
        mean, band = mean_and_band(arm, split)
        ax.plot(x, mean, color=colour, linestyle=line, linewidth=1.3, label=arm.shown)
        if len(arm.curves[split]) > 1:
            ax.fill_between(x, mean - band, mean + band, color=colour, alpha=0.15)
    ax.set_xlabel(label)
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
