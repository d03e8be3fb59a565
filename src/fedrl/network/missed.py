"""What the server keeps beside a run's measurements: what rounds cost, and who missed them."""

import csv
import io
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from fedrl.counting import round_name
from fedrl.files import write_atomically

MISSED, COSTS = "missed.csv", "communication.csv"
COST_COLUMNS = "round,answers,bytes_sent,bytes_received,seconds,longest_computation,aggregation"


class Missed(NamedTuple):
    """An agent whose answer a round did without."""

    round: int
    agent: int
    why: str


def read_missed(run: Path) -> list[Missed]:
    """What a run directory says; nothing in those of one process."""
    try:
        text = (run / MISSED).read_text("utf-8")
    except FileNotFoundError:
        return []
    rows = csv.DictReader(io.StringIO(text))
    return [Missed(int(row["round"]), int(row["agent"]), row["why"]) for row in rows]


def write_missed(run: Path, missed: Iterable[Missed]) -> None:
    """Write all of them."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([Missed._fields, *missed])
    write_atomically(run / MISSED, text.getvalue().encode())


def missed_in_words(missed: Sequence[Missed], rounds: int) -> list[str]:
    """A sentence for each agent and reason: `agent 1 missed rounds 2-5, 9 (it has gone)`."""
    by_agent = sorted(missed, key=lambda one: (one.agent, one.why, one.round))
    return [
        f"agent {agent} missed {rounds_in_words([one.round for one in group], rounds)} ({why})"
        for (agent, why), group in groupby(by_agent, lambda one: (one.agent, one.why))
    ]


def rounds_in_words(numbers: Sequence[int], rounds: int) -> str:
    """`rounds 2-5, 9 and the last evaluation`, from ascending numbers."""
    trained = [number for number in numbers if number <= rounds]
    # Neighbours differ from their places by the same number.
    spans = [
        [number for _, number in span]
        for _, span in groupby(enumerate(trained), lambda pair: pair[1] - pair[0])
    ]
    words = ", ".join(f"{s[0]}-{s[-1]}" if len(s) > 1 else f"{s[0]}" for s in spans)
    parts = [f"round{'s' if len(trained) > 1 else ''} {words}"] if trained else []
    if len(trained) < len(numbers):
        parts.append(round_name(numbers[-1], rounds))
    return " and ".join(parts)
