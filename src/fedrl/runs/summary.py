"""An evaluation in a few numbers: means over seeds, with their standard errors."""

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby
from math import sqrt
from statistics import fmean

from fedrl.runs.metrics import AVERAGE, COLUMNS, HELD_OUT, LEARNING, TRAIN

OWN = "own"
ALL_PAIRS = {TRAIN: "agents-train", HELD_OUT: "agents-held-out"}

Row = Mapping[str, str]


def evaluations(text: str) -> Iterator[tuple[int, dict[str, float]]]:
    """All evaluations in lines of metrics, without the header, as (updates, values)."""
    rows = csv.DictReader(text.splitlines(), COLUMNS)
    for updates, group in groupby(rows, lambda row: int(row["updates"])):
        yield updates, _values(list(group))


def _values(rows: list[Row]) -> dict[str, float]:
    """Means by split and metric, and the number of communications."""
    of_seeds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    # With one model for all, that is what everybody has in its own environment, too.
    shared = not any(_own(row) for row in rows)
    for row in rows:
        for split in _splits(row, shared):
            of_seeds[f"{split}/{row['metric']}"][row["seed"]].append(float(row["value"]))
    values = {"round": float(rows[0]["round"])}
    for name, seeds in sorted(of_seeds.items()):
        means = [fmean(of_seed) for of_seed in seeds.values()]
        values[name] = mean = fmean(means)
        if len(means) > 1:
            # `statistics.stdev` refuses what a diverged training yields: infinity.
            variance = sum((x - mean) ** 2 for x in means) / (len(means) - 1)
            values[f"{name}_stderr"] = sqrt(variance / len(means))
    return values


def _splits(row: Row, shared: bool) -> Iterator[str]:
    """Where a number counts."""
    split = row["split"]
    if split == LEARNING or row["agent"] == AVERAGE:
        yield split
        if shared and split == TRAIN:
            yield OWN
        return
    yield ALL_PAIRS[split]
    if _own(row):
        yield OWN


def _own(row: Row) -> bool:
    """Whether it is about an agent's own model in its own environment."""
    return row["split"] == TRAIN and row["agent"] == row["environment"]
