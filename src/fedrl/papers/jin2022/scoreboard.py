"""`fedrl reproduce claims`: run what is missing, test the four claims, print what was found."""

from itertools import groupby
from pathlib import Path

import jax
from rich.box import SIMPLE
from rich.console import Console

from fedrl.counting import count
from fedrl.engine.footprint import refuse_what_does_not_fit
from fedrl.errors import FedrlError
from fedrl.papers.jin2022.claim_figures import draw
from fedrl.papers.jin2022.claims import (
    CLAIMS,
    MARGIN,
    Effect,
    Measured,
    effects,
    measured,
    of_claim,
)
from fedrl.papers.jin2022.studies import BASES, METHODS, Size, Study, study
from fedrl.papers.jin2022.verdicts import Outcome, Verdict
from fedrl.progress import new_console
from fedrl.report.tables import say_where, table, write_rows
from fedrl.runs.adaptation import Adaptation, experiment_of
from fedrl.runs.launch import begin, go_on
from fedrl.runs.run import Run

COLOURS: dict[Outcome | Verdict, str] = {
    "supported": "green",
    "better": "green",
    "contradicted": "red",
    "worse": "red",
    "no advantage": "magenta",
    "equivalent": "magenta",
    "undecided": "yellow",
}
COLUMNS = (
    *("claim", "family", "comparison", "effect", "half_interval", "margin"),
    *("p_better", "p_worse", "p_equivalent", "outcome", "verdict"),
    *("seeds", "root", "agents", "updates", "E", "size"),
)
RULE = f"""\
A difference of less than {MARGIN:.0%} of what there is to learn, the margin, counts as none.
better: the interval lies above +margin; worse: below -margin; equivalent: between the two.
supported: all comparisons of the claim are better. Otherwise, after Holm's correction for their
number, contradicted: one is worse; no advantage: one is equivalent."""
LESS = {
    "reduced": "REDUCED: fewer seeds and shorter training than the full study (that needs an "
    "accelerator, or --full and patience)",
    "quick": "QUICK: too few seeds and too short a training to decide anything",
}


def reproduce_claims(
    families: tuple[str, ...] = (),
    *,
    quick: bool = False,
    full: bool = False,
    agents: int | None = None,
    seeds: int | None = None,
    root: int | None = None,
    out: Path | None = None,
    console: Console | None = None,
) -> list[Effect]:
    """Test the claims on these families (all, unless given); what is there is not run again."""
    console = console or new_console()
    if quick and full:
        raise FedrlError("--quick and --full exclude each other: give one of them")
    if seeds is not None and seeds < 2:
        raise FedrlError(f"--seeds must be at least 2, got {seeds}: one says nothing about others")
    on_cpu = jax.local_devices()[0].platform == "cpu"
    studies = []
    for family in families or tuple(BASES):
        robots = family in BASES and BASES[family].family.continuous
        size: Size = "quick" if quick else "reduced" if robots and on_cpu and not full else "full"
        studies.append(study(family, size, agents, seeds, root))
    folder = out or Path("results") / ("claims-quick" if quick else "claims")
    for one in studies:  # before anything is begun
        for experiment in one.runs:
            refuse_what_does_not_fit(experiment)
    found = [_run(one, number, studies, folder, console) for number, one in enumerate(studies)]
    everything = [effect for one in found for effect in effects(one)]
    _write(everything, found, folder)
    _print(everything, found, console)
    say_where(draw(found, folder), folder, console)
    return everything


def _run(one: Study, number: int, studies: list[Study], folder: Path, console: Console) -> Measured:
    """Take all runs of a study to their ends."""
    per_study = len(one.runs) + len(METHODS)
    total = per_study * len(studies)

    def announce(index: int) -> None:
        position = number * per_study + index + 1
        console.print(f"run {position} of {total} ({one.family}, {one.size})", highlight=False)

    runs = []
    for index, directory in enumerate(begin(one.runs, folder / "runs")):
        announce(index)
        go_on(directory, console)
        runs.append(Run(directory.path))
    adapted = {}
    for index, method in enumerate(METHODS, len(one.runs)):
        announce(index)
        adapted[method] = runs[-1].adapt(method=method, progress=not console.quiet)
    return measured(one, runs, adapted)


def _write(everything: list[Effect], found: list[Measured], folder: Path) -> None:
    """The scoreboard as CSV."""
    studies = {one.study.family: one.study for one in found}
    verdicts = {of: of_claim(rows) for of, rows in _claims(everything)}
    rows: list[list[object]] = []
    for one in everything:
        study = studies[one.family]
        plain = study.plain
        numbers = (one.size.mean, one.size.half, one.margin, *one.p)
        found_out = (one.outcome, verdicts[one.claim, one.family])
        budget = (one.seeds, plain.seed, plain.agents, plain.updates, f"{plain.E:g}", study.size)
        shown = (f"{x:.6g}" for x in numbers)
        rows.append([one.claim, one.family, one.what, *shown, *found_out, *budget])
    write_rows(folder / "scoreboard.csv", COLUMNS, rows)


def _print(everything: list[Effect], found: list[Measured], console: Console) -> None:
    title = "The paper's claims: effect on the return ± 95 % interval over seeds"
    columns = ("", "effect", "seeds", "verdict")
    board = table(columns, (), left=(0, 3), title=title, box=SIMPLE, padding=(0, 1, 0, 0))
    for (claim, family), rows in _claims(everything):
        board.add_row(f"[bold]{claim} on {family}[/]", "", "", f"[bold]{_shown(of_claim(rows))}[/]")
        for row in rows:
            board.add_row(f"  {row.what}", str(row.size), str(row.seeds), _shown(row.outcome))
        board.add_section()
    console.print(board)
    for claim, what in CLAIMS.items():
        console.print(f"{claim}: {what}.", highlight=False)
    console.print(RULE, highlight=False)
    for one in found:
        plain, personal = one.study.plain, one.personal.experiment
        adapting = experiment_of(Adaptation(), personal, plain.held_out)
        console.print(
            f"{one.study.family} ({one.study.size}): {count(plain.agents, 'agents')}, "
            f"{count(plain.held_out, 'held-out environments')}, {count(plain.seeds, 'seeds')} of "
            f"root {plain.seed}, {count(plain.updates, plain.unit)}, E = {plain.E:g}, networks "
            f"{'-'.join(map(str, plain.learner.hidden))}, embedding "
            f"{personal.learner.personal.embedding}; adaptation {adapting.updates:,}; "
            f"margin {MARGIN * one.range:.3g}",
            highlight=False,
        )
        if one.study.size in LESS:
            console.print(f"  {LESS[one.study.size]}", highlight=False)


def _claims(everything: list[Effect]) -> list[tuple[tuple[str, str], list[Effect]]]:
    """The comparisons of each claim on each family."""
    order = sorted(everything, key=lambda effect: effect.claim)
    groups = groupby(order, lambda effect: (effect.claim, effect.family))
    return [(of, list(rows)) for of, rows in groups]


def _shown(verdict: Outcome | Verdict) -> str:
    return f"[{COLOURS[verdict]}]{verdict}[/]"
