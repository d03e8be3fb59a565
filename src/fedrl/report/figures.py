"""The look of our figures, and how they are written."""

import io
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedrl.files import write_atomically

# Readable in print and for colour-blind readers (Okabe and Ito), in the order we use them.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
BAND = 1.65  # standard errors, as in the paper's figures


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


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """As PNG and PDF; the PNG comes first."""
    written = []
    for kind in ("png", "pdf"):
        buffer = io.BytesIO()
        # No creation date: the same results give the same file.
        metadata = {"CreationDate": None} if kind == "pdf" else None
        figure.savefig(buffer, format=kind, dpi=200, metadata=metadata)
        path = folder / f"{name}.{kind}"
        write_atomically(path, buffer.getvalue())
        written.append(path)
    return written
