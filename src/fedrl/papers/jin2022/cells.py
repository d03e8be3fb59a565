"""Every cell of Tables 1 and 2: the settings that gave it, and the number that was published."""

import csv
from dataclasses import dataclass
from importlib.resources import files
from math import inf, isinf
from typing import Literal

import numpy as np

from fedrl.tabular.families import RandomMDPs, TabularFamily, WindyCliffs
from fedrl.tabular.learners import ProjPAvg, QAvg, SoftPAvg, TabularLearner
from fedrl.tabular.problems import Floats
from fedrl.tabular.replicates import Schedule

TableName = Literal["table1", "table2"]

AGENTS = 5
SEEDS = 16_000
FAMILIES: dict[str, TabularFamily] = {"RandomMDPs": RandomMDPs(), "WindyCliffs": WindyCliffs()}
ALGORITHMS: dict[str, TabularLearner] = {
    "QAvg": QAvg(),
    "SoftPAvg": SoftPAvg(),
    "ProjPAvg": ProjPAvg(),
}

# (lr, decay, iterations) of the released experiments.
SETTINGS: dict[tuple[str, str, str], tuple[float, float, int]] = {
    ("table1", "RandomMDPs", "QAvg"): (1e-2, 0.95, 128),
    ("table1", "RandomMDPs", "SoftPAvg"): (5e-2, 0.9, 512),
    ("table1", "RandomMDPs", "ProjPAvg"): (1e-2, 0.9, 960),
    ("table1", "WindyCliffs", "QAvg"): (1e-3, 0.1, 640),
    ("table1", "WindyCliffs", "SoftPAvg"): (1e-1, 0.4, 192),
    ("table1", "WindyCliffs", "ProjPAvg"): (1e-2, 0.5, 64),
    ("table2", "WindyCliffs", "QAvg"): (1e-3, 0.1, 640),
    ("table2", "WindyCliffs", "SoftPAvg"): (1e-1, 0.4, 192),
    ("table2", "WindyCliffs", "ProjPAvg"): (1e-2, 0.9, 1024),
}


@dataclass(frozen=True)
class Cell:
    """One number of a table."""

    table: TableName
    """The table it stands in."""
    family: str
    """Environments, by the paper's name."""
    algorithm: str
    """Algorithm, by the paper's name."""
    E: float
    """Local updates between two communications."""
    kappa: float | None
    """Heterogeneity in Table 1; None: independent environments."""
    published: float
    """The published mean."""
    published_se: float
    """Its published standard error, rounded to 0.01."""

    @property
    def slug(self) -> str:
        """A name for files."""
        varied = f"E{self.E:g}" if self.kappa is None else f"kappa{self.kappa:g}"
        return f"{self.family}-{self.algorithm}-{varied}"

    @property
    def labels(self) -> dict[str, str]:
        """What tells it from others: the columns of the published table, in their order."""
        names = {"family": self.family, "algorithm": self.algorithm}
        E = {"E": f"{self.E:g}"}
        return E | names if self.kappa is None else {"kappa": str(self.kappa)} | names | E

    @property
    def learner(self) -> TabularLearner:
        return ALGORITHMS[self.algorithm]

    @property
    def environments(self) -> TabularFamily:
        return FAMILIES[self.family]

    @property
    def schedule(self) -> Schedule:
        lr, decay, iterations = SETTINGS[self.table, self.family, self.algorithm]
        return Schedule(np.full(iterations, lr), self.E, decay)

    def published_scale(self, objective: Floats) -> Floats:
        """RandomMDPs are published as ten times what is above the return of reward 1/2."""
        if self.family == "RandomMDPs":
            return 10.0 * (objective - 0.5 / (1.0 - self.environments.gamma))
        return objective

    def described(self) -> dict[str, str | float | None]:
        """Everything that decides the number, for `settings.json`."""
        lr, decay, iterations = SETTINGS[self.table, self.family, self.algorithm]
        return {
            "environments": repr(self.environments),
            "algorithm": repr(self.learner),
            "agents": AGENTS,
            "kappa": self.kappa,
            "E": "inf" if isinf(self.E) else self.E,
            "lr": lr,
            "decay": decay,
            "iterations": iterations,
        }


def _read(table: TableName) -> list[Cell]:
    text = (files("fedrl.papers.jin2022") / f"published/{table}.csv").read_text()
    return [
        Cell(
            table=table,
            family=row["family"],
            algorithm=row["algorithm"],
            E=inf if row["E"] == "inf" else int(row["E"]),
            kappa=float(row["kappa"]) if table == "table1" else None,
            published=float(row["mean"]),
            published_se=float(row["se"]),
        )
        for row in csv.DictReader(text.splitlines())
    ]


TABLE1 = _read("table1")
TABLE2 = _read("table2")
FIGURE2 = [cell for cell in TABLE2 if cell.algorithm == "QAvg"]

TARGETS: dict[str, list[Cell]] = {"table1": TABLE1, "table2": TABLE2, "figure2": FIGURE2}
"""What can be reproduced, and the cells it is made of."""
