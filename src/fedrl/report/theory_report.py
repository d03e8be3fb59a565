"""The report of `fedrl theory`: on the terminal, as CSV, as figures."""

from itertools import groupby
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console
from rich.markup import escape

from fedrl.report.figures import COLOURS, new_figure, save, tidy
from fedrl.report.tables import table, write_rows
from fedrl.theory.statements import Statement
from fedrl.theory.study import GAP_RUNS, ITERATIONS, Study

HOLDS = {
    True: "[green]holds[/green]",
    False: "[red]does not hold[/red]",
    None: "[yellow]not proven[/yellow]",
}


def print_statements(statements: list[Statement], console: Console) -> None:
    """The paper's statements and what decides them."""
    rows = [
        (one.name, HOLDS[one.holds], f"[bold]{escape(one.says)}[/bold]\n{escape(one.evidence)}")
        for one in statements
    ]
    columns = ("statement", "", "what it says, and the evidence")
    console.print(table(columns, rows, left=range(3), title="The paper's statements", box=None))


def measures(study: Study) -> list[tuple[str, str]]:
    """Name and value of everything that is one number."""
    lemmas, best = study.lemmas, study.oracle
    found = "" if best.deterministic_is_exact else " found"
    return [
        ("kappa_1", f"{study.kappa1:.4g}"),
        ("kappa_2, R in [0, 1]", f"{study.kappa2.lower:.4g} .. {study.kappa2.upper:.4g}"),
        ("smoothness L", f"{study.smoothness:.4g}"),
        ("Lemma 1", f"violated by {lemmas.violations_of_lemma1:.0%} of {lemmas.policies} policies"),
        ("largest V_I - mean V", f"{lemmas.worst_violation + 0.0:.4g} (state {lemmas.state})"),
        ("largest |mean V - V_I|", f"{lemmas.largest_difference:.4g}"),
        ("Lemma 2 allows", f"{study.lemma2:.4g}; sharp form {study.lemma2_sharp:.4g}"),
        ("best policy found", f"{best.objective:.6g}"),
        ("no policy is above", f"{best.upper:.6g} (own optima {best.own_optima:.6g})"),
        ("best deterministic", f"{best.deterministic:.6g}{found}"),
        (f"Theorem 3, gap at T = {ITERATIONS}", f"<= {study.objective_bound:.3g}"),
    ]


def print_study(study: Study, title: str, console: Console) -> None:
    """What the theory says about one problem, and what is measured."""
    numbers = table(("", ""), measures(study), left=(0, 1), title=title, box=None)
    numbers.show_header = False
    console.print(numbers)

    title = "Bounds against measurements"
    columns = ["theorem", "E", "at the end", "bound", "bound / measured at least", ""]
    bounds = []
    for curve in study.curves:
        ends = [f"{x:.3g}" for x in (curve.measured[-1], curve.bound[-1], curve.slack)]
        bounds.append([curve.theorem, str(curve.E), *ends, HOLDS[curve.holds]])
    console.print(table(columns, bounds, left=(), title=title, box=None))

    title = "Gap to the best policy found"
    columns = ["mix", *GAP_RUNS, "any policy at most"]
    gaps = []
    for kappa, of_mix in groupby(study.gaps, lambda gap: gap.kappa):
        row = list(of_mix)
        cells = [f"{round(gap.gap, 4) + 0.0:.4f}" for gap in row]
        gaps.append([f"{kappa:g}", *cells, f"{row[0].certificate:.4f} more"])
    console.print(table(columns, gaps, left=(), title=title, box=None))


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
    figures = {"bounds": _bounds_figure(study), "gaps": _gap_figure(study)}
    return [save(figure, folder, name) for name, figure in figures.items()]


def _bounds_figure(study: Study) -> Figure:
    labels = {
        "theorem 2": r"$\|\bar Q_t - Q_I^*\|_\infty$",
        "theorem 3": r"$\min_{\tau < t} \|G(\bar\pi_\tau)\|^2$",
    }
    figure = new_figure(9, 3.6)
    for ax, (theorem, label) in zip(figure.subplots(1, 2), labels.items(), strict=True):
        curves = [curve for curve in study.curves if curve.theorem == theorem]
        for colour, curve in zip(COLOURS, curves, strict=False):
            # From t = 1: a logarithmic axis has no 0.
            shown = curve.t >= 1
            ax.loglog(curve.t[shown], curve.measured[shown], color=colour, label=f"E = {curve.E}")
            ax.loglog(curve.t[shown], curve.bound[shown], "--", color=colour, linewidth=1)
        ax.plot([], [], "--", color="black", linewidth=1, label="bound")
        ax.set(xlabel="local updates t", ylabel=label, title=theorem.capitalize())
        tidy(ax)
        ax.legend(frameon=False)
    return figure


def _gap_figure(study: Study) -> Figure:
    figure = new_figure(5, 3.6)
    ax = figure.add_subplot()
    for colour, algorithm in zip(COLOURS, GAP_RUNS, strict=False):
        chosen = [gap for gap in study.gaps if gap.algorithm == algorithm]
        kappas, gaps = [g.kappa for g in chosen], [g.gap for g in chosen]
        ax.plot(kappas, gaps, "o-", color=colour, label=algorithm)
        at_most = [g.gap + g.certificate for g in chosen]
        ax.fill_between(kappas, gaps, at_most, color=colour, alpha=0.12, linewidth=0)
    ax.plot([], [], color="black", alpha=0.2, linewidth=6, label="up to the upper bound")
    ax.set(
        xlabel="mix κ: environments κ $P_k$ + (1 - κ) mean", ylabel="gap to the best single policy"
    )
    tidy(ax)
    ax.legend(frameon=False)
    return figure
