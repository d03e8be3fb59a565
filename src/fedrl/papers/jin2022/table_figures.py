"""The figures of the tabular experiments."""

from collections.abc import Sequence
from math import isinf
from pathlib import Path

from matplotlib.axes import Axes

from fedrl.papers.jin2022.cell_runs import Measured
from fedrl.papers.jin2022.cells import ALGORITHMS, FAMILIES, Cell
from fedrl.report.figures import BAND, COLOURS, new_figure, save, tidy
from fedrl.report.tables import write_rows

Results = Sequence[tuple[Cell, Measured]]


def draw(target: str, results: Results, folder: Path) -> list[Path]:
    """Write the figures of a target; the PNG files."""
    if target == "table1":
        return [_table1(results, folder)]
    tables = [_table2(results, folder)] if target == "table2" else []
    of_qavg = [(cell, ours) for cell, ours in results if cell.algorithm == "QAvg"]
    return [*tables, _figure2(of_qavg, folder)]


def _ours_and_published(ax: Axes, results: Results, positions: Sequence[float]) -> None:
    """A line with error bars for each algorithm; crosses where the published numbers are."""
    for colour, algorithm in zip(COLOURS, ALGORITHMS, strict=False):
        chosen = [(cell, ours) for cell, ours in results if cell.algorithm == algorithm]
        means, bands = [ours.mean for _, ours in chosen], [BAND * ours.se for _, ours in chosen]
        ax.errorbar(
            positions,
            means,
            bands,
            fmt="o-",
            ms=4,
            capsize=2,
            lw=1.2,
            color=colour,
            label=algorithm,
        )
        ax.plot(positions, [cell.published for cell, _ in chosen], "x", markersize=7, color=colour)
    ax.plot([], [], "x", color="black", label="published")
    tidy(ax)
    ax.legend(frameon=False)


def _table1(results: Results, folder: Path) -> Path:
    figure = new_figure(9, 3.6)
    labels = ("return in $P_0$ (published scale)", "return in $P_0$")
    for ax, family, label in zip(figure.subplots(1, 2), FAMILIES, labels, strict=True):
        chosen = [(cell, ours) for cell, ours in results if cell.family == family]
        kappas = sorted({cell.kappa for cell, _ in chosen if cell.kappa is not None})
        _ours_and_published(ax, chosen, kappas)
        ax.set(title=family, xlabel="heterogeneity κ", ylabel=label, xticks=kappas)
    return save(figure, folder, "table1")


def _table2(results: Results, folder: Path) -> Path:
    figure = new_figure(5, 3.6)
    ax = figure.add_subplot()
    periods = list(dict.fromkeys(cell.E for cell, _ in results))
    positions = range(len(periods))
    _ours_and_published(ax, results, positions)
    ax.set_xticks(positions, map(_shown, periods))
    x_label = "local updates between communications E"
    ax.set(title="WindyCliffs", xlabel=x_label, ylabel="training objective")
    return save(figure, folder, "table2")


def _figure2(results: Results, folder: Path) -> Path:
    """QAvg's training objective against iterations for each E."""
    figure = new_figure(5, 3.6)
    ax = figure.add_subplot()
    rows = []
    for colour, (cell, ours) in zip(COLOURS, results, strict=False):
        t, mean, se = ours.curve
        # A record holds until the next communication.
        ax.step(t, mean, where="post", color=colour, linewidth=1.2, label=f"E = {_shown(cell.E)}")
        low, high = mean - BAND * se, mean + BAND * se
        ax.fill_between(t, low, high, step="post", color=colour, alpha=0.15)
        points = zip(*ours.curve, strict=True)
        rows += [(f"{cell.E:g}", t, f"{mean:.6f}", f"{se:.6f}") for t, mean, se in points]
    # From 0, and most of it in the first iterations: logarithmic above 1.
    ax.set_xscale("symlog", base=2, linthresh=1)
    ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(title="QAvg on WindyCliffs", xlabel="iterations", ylabel="training objective")
    tidy(ax)
    ax.legend(frameon=False)
    write_rows(folder / "figure2.csv", ("E", "iteration", "mean", "se"), rows)
    return save(figure, folder, "figure2")


def _shown(E: float) -> str:
    return "∞" if isinf(E) else f"{E:g}"
