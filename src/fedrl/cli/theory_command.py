"""`fedrl theory`: the problem in, the report out."""

import hashlib
import zipfile
from pathlib import Path

import numpy as np
from rich.console import Console

from fedrl import __version__
from fedrl.counting import count
from fedrl.errors import FedrlError, unknown_name
from fedrl.report.tables import say_where
from fedrl.report.theory_report import print_statements, print_study, write_study
from fedrl.runs.pieces import Pieces
from fedrl.tabular.families import FAMILIES
from fedrl.theory import Problem, checked
from fedrl.theory.statements import all_statements
from fedrl.theory.study import study


def problem_of_file(path: Path) -> Problem:
    """P, R, gamma and, if it is there, d0 from an .npz file."""
    wanted = "an .npz file with arrays P (n, S, A, S), R (S, A), gamma and, if not uniform, d0 (S,)"
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            if not hasattr(arrays, "files"):
                raise FedrlError(f"--matrices {path} holds a single array: make it {wanted}")
            missing = [name for name in ("P", "R", "gamma") if name not in arrays.files]
            if missing:
                raise FedrlError(f"--matrices {path} has no {', '.join(missing)}: make it {wanted}")
            gamma = arrays["gamma"]
            if gamma.size != 1:
                raise FedrlError(f"gamma in {path} must be one number, got shape {gamma.shape}")
            d0 = arrays["d0"] if "d0" in arrays.files else None
            return checked(arrays["P"], arrays["R"], float(gamma.reshape(())), d0)
    except OSError as error:
        raise FedrlError(
            f"--matrices {path} cannot be read ({error.strerror}): name {wanted}"
        ) from None
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, FedrlError):
            raise
        raise FedrlError(f"--matrices {path} cannot be read as such: name {wanted}") from None


def report(
    family: str | None, matrices: Path | None, out: Path | None, seed: int, console: Console
) -> None:
    """Check every statement of the paper, then study one problem."""
    if family is not None and matrices is not None:
        raise FedrlError("--family and --matrices exclude each other: give one of them")
    if matrices is not None:
        problem, title = problem_of_file(matrices), str(matrices)
        source = hashlib.sha256(matrices.read_bytes()).hexdigest()
    else:
        source = family or "random-mdps"
        if source not in FAMILIES:
            raise unknown_name("family", source, FAMILIES)
        task, title = FAMILIES[source]().task(seed=seed), f"{source}, seed {seed}"
        problem = checked(task.P[0], task.R[0], task.gamma, task.d0)
    settings = {"studies": source, "seed": seed, "fedrl": __version__}
    folder = None if out is None else Pieces.open(out, settings).path
    with console.status("statements") as status:
        statements = all_statements()
        found = study(problem, seed=seed, step=status.update)
    figures = [] if folder is None else write_study(found, statements, folder)
    print_statements(statements, console)
    agents, states, actions, _ = problem.P.shape
    sizes = ((agents, "environments"), (states, "states"), (actions, "actions"))
    size = ", ".join([*(count(*one) for one in sizes), f"gamma {problem.gamma:g}"])
    print_study(found, f"{title}: {size}", console)
    if folder is not None:
        say_where(figures, folder, console)
