"""The commands and their arguments. Heavy imports wait until a command runs."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import tyro

from fedrl.errors import FedrlError


@dataclass(frozen=True)
class Reproduce:
    """Reproduce a table or figure of Jin et al. (2022), or test its four empirical claims.

    Work that is already in the folder is not done again: an interrupted command continues where it
    was. The exit status is 1 if a number is off by more than 3 combined standard errors.
    """

    target: Annotated[Literal["table1", "table2", "figure2", "claims"], tyro.conf.Positional]
    """What to reproduce."""
    seeds: int | None = None
    """Independent repetitions; 16000 as in the paper unless --quick (claims: 32 or 16)."""
    quick: bool = False
    """300 seeds instead of 16000 (claims: a few short runs, to see what comes out)."""
    out: Path | None = None
    """Folder for the results; `results/TARGET-SEEDS-seeds` unless given (`results/claims`)."""
    seed: int | None = None
    """Root of all random numbers; 0 unless given (claims: 3, which no setting was chosen on)."""
    piece: int | None = None
    """Tables and figure: seeds between two saves; does not change the results."""
    family: tuple[str, ...] = ()
    """Claims: families to test them on; all unless given."""
    agents: int | None = None
    """Claims: agents; 5 unless given (10 on wiredcartpoles)."""
    full: bool = False
    """Claims: robots at full size also without an accelerator (days on a small machine)."""

    def run(self) -> int:
        claims = self.target == "claims"
        about_others = ("piece",) if claims else ("family", "agents", "full")
        for field in fields(self):
            if field.name in about_others and getattr(self, field.name) != field.default:
                raise FedrlError(f"--{field.name} says nothing about {self.target}: leave it out")
        return self._claims() if claims else self._cells()

    def _claims(self) -> int:
        from fedrl.compilation import use_compilation_cache
        from fedrl.papers.jin2022.scoreboard import reproduce_claims

        use_compilation_cache()
        reproduce_claims(
            self.family,
            quick=self.quick,
            full=self.full,
            agents=self.agents,
            seeds=self.seeds,
            root=self.seed,
            out=self.out,
        )
        return 0

    def _cells(self) -> int:
        from fedrl.papers.jin2022.cells import SEEDS
        from fedrl.papers.jin2022.reproduce import QUICK_SEEDS, reproduce

        if self.quick and self.seeds is not None:
            raise FedrlError("--quick and --seeds exclude each other: give one of them")
        seeds = self.seeds if self.seeds is not None else QUICK_SEEDS if self.quick else SEEDS
        agrees = reproduce(
            self.target, seeds=seeds, out=self.out, seed=self.seed or 0, piece=self.piece
        )
        return 0 if agrees else 1


@dataclass(frozen=True)
class Theory:
    """Measure how different environments are, what the paper's theorems promise, and what is so.

    Checks every statement of the paper on the instance that decides it, then studies one problem.
    """

    family: str | None = None
    """Family to draw the problem from (`fedrl list` names them); random-mdps unless given."""
    matrices: Path | None = None
    """Your own problem: an .npz file with P (n, S, A, S), R (S, A), gamma and maybe d0 (S,)."""
    out: Path | None = None
    """Folder for CSV files and figures; none are written unless given."""
    seed: int = 0
    """Root of all random numbers."""

    def run(self) -> int:
        from fedrl.cli.theory_command import report
        from fedrl.progress import new_console

        report(self.family, self.matrices, self.out, self.seed, new_console())
        return 0
