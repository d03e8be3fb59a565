"""The figures of the tabular experiments."""

from math import isinf
from pathlib import Path

from matplotlib.axes import Axes

from fedrl.papers.jin2022.cell_runs import Measured
from fedrl.papers.jin2022.cells import ALGORITHMS, FAMILIES, Cell
from fedrl.report.figures import BAND, COLOURS, new_figure, save, tidy
from fedrl.report.tables import write_rows

Results = list[tuple[Cell, Measured]]


def draw(target: str, cells: list[Cell], measured: list[Measured], folder: Path) -> list[Path]:
    """Write the figures of a target; the PNG files."""
    results = list(zip(cells, measured, strict=True))
    written = []
    if target == "table1":
        written += _table1(results, folder)
    if target == "table2":
        written += _table2(results, folder)
    if target in ("table2", "figure2"):
        written += _figure2(
            [(cell, ours) for cell, ours in results if cell.algorithm == "QAvg"], folder
        )
    return [path for path in written if path.suffix == ".png"]


def _ours_and_published(ax: Axes, results: Results, positions: list[float]) -> None:
    """A line with error bars for each algorithm; crosses where the published numbers are."""
    for colour, algorithm in zip(COLOURS, ALGORITHMS, strict=False):
        chosen = [(cell, ours) for cell, ours in results if cell.algorithm == algorithm]
        ax.errorbar(
            positions,
            [ours.mean for _, ours in chosen],
            yerr=[BAND * ours.se for _, ours in chosen],
            color=colour,
            marker="o",
            markersize=4,
            capsize=2,
            linewidth=1.2,
            label=algorithm,
        )
        ax.plot(
            positions,
            [cell.published for cell, _ in chosen],
            linestyle="none",
            marker="x",
            markersize=7,
            color=colour,
        )
    ax.plot([], [], linestyle="none", marker="x", color="black", label="published")
    tidy(ax)
    ax.legend(frameon=False)


def _table1(results: Results, folder: Path) -> list[Path]:
    figure = new_figure(9, 3.6)
    for column, family in enumerate(FAMILIES):
        ax = figure.add_subplot(1, 2, column + 1)
        chosen = [(cell, ours) for cell, ours in results if cell.family == family]
        kappas = sorted({cell.kappa for cell, _ in chosen if cell.kappa is not None})
        _ours_and_published(ax, chosen, kappas)
        ax.set_title(family)
        ax.set_xlabel("heterogeneity κ")
        ax.set_ylabel("return in $P_0$" + (" (published scale)" if column == 0 else ""))
        ax.set_xticks(kappas)
    return save(figure, folder, "table1")


def _table2(results: Results, folder: Path) -> list[Path]:
    figure = new_figure(5, 3.6)
    ax = figure.add_subplot()
    periods = list(dict.fromkeys(cell.E for cell, _ in results))
    positions = [float(i) for i in range(len(periods))]
    _ours_and_published(ax, results, positions)
    ax.set_xticks(positions, ["∞" if isinf(E) else f"{E:g}" for E in periods])
    ax.set_xlabel("local updates between communications E")
    ax.set_ylabel("training objective")
    ax.set_title("WindyCliffs")
    return save(figure, folder, "table2")


def _figure2(results: Results, folder: Path) -> list[Path]:
    """QAvg's training objective against iterations for each E."""
    figure = new_figure(5, 3.6)
    ax = figure.add_subplot()
    rows: list[list[object]] = []
    for colour, (cell, ours) in zip(COLOURS, results, strict=False):
        iterations, mean, se = ours.curve
        name = "∞" if isinf(cell.E) else f"{cell.E:g}"
        # A record holds until the next communication.
        ax.step(iterations, mean, where="post", color=colour, linewidth=1.2, label=f"E = {name}")
        ax.fill_between(
            iterations, mean - BAND * se, mean + BAND * se, step="post", color=colour, alpha=0.15
        )
        rows += [
            [f"{cell.E:g}", t, f"{m:.6f}", f"{e:.6f}"]
            for t, m, e in zip(iterations, mean, se, strict=True)
        ]
    # From 0, and most of it in the first iterations: logarithmic above 1.
    ax.set_xscale("symlog", base=2, linthresh=1)
    ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("iterations")
    ax.set_ylabel("training objective")
    ax.set_title("QAvg on WindyCliffs")
    tidy(ax)
    ax.legend(frameon=False)
    write_rows(folder / "figure2.csv", ("E", "iteration", "mean", "se"), rows)
    return save(figure, folder, "figure2")
