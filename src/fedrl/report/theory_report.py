"""The report of `fedrl theory`: on the terminal, as CSV, as figures."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedrl.report.csv_file import write_rows
from fedrl.report.figures import COLOURS, new_figure, save, tidy
from fedrl.theory.statements import Statement
from fedrl.theory.study import GAP_RUNS, ITERATIONS, PERIODS, Study

HOLDS = {
    True: "[green]holds[/green]",
    False: "[red]does not hold[/red]",
    None: "[yellow]not proven[/yellow]",
}


def print_statements(statements: list[Statement], console: Console) -> None:
    """The paper's statements and what decides them."""
    table = Table(title="The paper's statements", title_justify="left", box=None, padding=(0, 1))
    for column in ("statement", "", "what it says, and the evidence"):
        table.add_column(column)
    for statement in statements:
        text = f"[bold]{escape(statement.says)}[/bold]\n{escape(statement.evidence)}"
        table.add_row(statement.name, HOLDS[statement.holds], text)
    console.print(table)


def measures(study: Study) -> list[tuple[str, str]]:
    """Name and value of everything that is one number."""
    lemmas, best = study.lemmas, study.oracle
    return [
        ("kappa_1", f"{study.kappa1:.4g}"),
        ("kappa_2, R in [0, 1]", f"{study.kappa2.lower:.4g} .. {study.kappa2.upper:.4g}"),
        ("smoothness L", f"{study.smoothness:.4g}"),
        ("Lemma 1", f"violated by {lemmas.violations_of_lemma1:.0%} of {lemmas.policies} policies"),
        ("largest V_I - mean V", f"{lemmas.worst_violation + 0.0:.4g} (state {lemmas.state})"),
        ("largest |mean V - V_I|", f"{lemmas.largest_difference:.4g}"),
        (
            "Lemma 2 allows",
            f"{study.lemma2:.4g}; sharp form {study.lemma2_sharp:.4g}",
        ),
        ("best policy found", f"{best.objective:.6g}"),
        ("no policy is above", f"{best.upper:.6g} (own optima {best.own_optima:.6g})"),
        (
            "best deterministic",
            f"{best.deterministic:.6g}" + ("" if best.deterministic_is_exact else " found"),
        ),
        (f"Theorem 3, gap at T = {ITERATIONS}", f"<= {study.objective_bound:.3g}"),
    ]


def print_study(study: Study, title: str, console: Console) -> None:
    """What the theory says about one problem, and what is measured."""
    numbers = Table(title=title, title_justify="left", box=None, padding=(0, 1), show_header=False)
    for name, value in measures(study):
        numbers.add_row(name, value)
    console.print(numbers)

    bounds = Table(title="Bounds against measurements", title_justify="left", box=None)
    for column in ("theorem", "E", "at the end", "bound", "bound / measured at least", ""):
        bounds.add_column(column, justify="right")
    for curve in study.curves:
        ends = (f"{curve.measured[-1]:.3g}", f"{curve.bound[-1]:.3g}", f"{curve.slack:.3g}")
        bounds.add_row(curve.theorem, str(curve.E), *ends, HOLDS[curve.holds])
    console.print(bounds)

    gaps = Table(title="Gap to the best policy found", title_justify="left", box=None)
    for column in ("mix", *GAP_RUNS, "any policy at most"):
        gaps.add_column(column, justify="right")
    for kappa in dict.fromkeys(gap.kappa for gap in study.gaps):
        row = [gap for gap in study.gaps if gap.kappa == kappa]
        cells = (f"{round(gap.gap, 4) + 0.0:.4f}" for gap in row)
        gaps.add_row(f"{kappa:g}", *cells, f"{row[0].certificate:.4f} more")
    console.print(gaps)


def write_study(study: Study, statements: list[Statement], folder: Path) -> list[Path]:
    """CSV files and figures; returns the PNG files."""
    write_rows(folder / "statements.csv", Statement._fields, statements)
    write_rows(folder / "measures.csv", ("name", "value"), measures(study))
    write_rows(
        folder / "bounds.csv",
        ("theorem", "E", "t", "measured", "bound"),
        (
            (curve.theorem, curve.E, t, f"{measured:.9g}", f"{bound:.9g}")
            for curve in study.curves
            for t, measured, bound in zip(curve.t, curve.measured, curve.bound, strict=True)
        ),
    )
    write_rows(
        folder / "gaps.csv",
        ("kappa", "algorithm", "objective", "gap", "certificate"),
        ((g.kappa, g.algorithm, g.objective, g.gap, g.certificate) for g in study.gaps),
    )
    written = _bounds_figure(study, folder) + _gap_figure(study, folder)
    return [path for path in written if path.suffix == ".png"]


def _bounds_figure(study: Study, folder: Path) -> list[Path]:
    figure = new_figure(9, 3.6)
    labels = {
        "theorem 2": r"$\|\bar Q_t - Q_I^*\|_\infty$",
        "theorem 3": r"$\min_{\tau < t} \|G(\bar\pi_\tau)\|^2$",
    }
    for column, (theorem, label) in enumerate(labels.items()):
        ax = figure.add_subplot(1, 2, column + 1)
        for colour, E in zip(COLOURS, PERIODS, strict=False):
            curve = next(c for c in study.curves if (c.theorem, c.E) == (theorem, E))
            # From t = 1: a logarithmic axis has no 0.
            shown = curve.t >= 1
            ax.plot(curve.t[shown], curve.measured[shown], color=colour, label=f"E = {E}")
            ax.plot(curve.t[shown], curve.bound[shown], color=colour, linestyle="--", linewidth=1)
        ax.plot([], [], color="black", linestyle="--", linewidth=1, label="bound")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("local updates t")
        ax.set_ylabel(label)
        ax.set_title(theorem.capitalize())
        tidy(ax)
        ax.legend(frameon=False)
    return save(figure, folder, "bounds")


def _gap_figure(study: Study, folder: Path) -> list[Path]:
    figure = new_figure(5, 3.6)
    ax = figure.add_subplot()
    for colour, algorithm in zip(COLOURS, GAP_RUNS, strict=False):
        chosen = [gap for gap in study.gaps if gap.algorithm == algorithm]
        kappas, gaps = [g.kappa for g in chosen], [g.gap for g in chosen]
        ax.plot(kappas, gaps, "o-", color=colour, label=algorithm)
        at_most = [g.gap + g.certificate for g in chosen]
        ax.fill_between(kappas, gaps, at_most, color=colour, alpha=0.12, linewidth=0)
    ax.plot([], [], color="black", alpha=0.2, linewidth=6, label="up to the upper bound")
    ax.set_xlabel("mix κ: environments κ $P_k$ + (1 - κ) mean")
    ax.set_ylabel("gap to the best single policy")
    tidy(ax)
    ax.legend(frameon=False)
    return save(figure, folder, "gaps")
