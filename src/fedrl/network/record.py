"""What a federation leaves on the server's disk: an ordinary run directory, and its status."""

import csv
import io
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from fedrl.counting import round_name
from fedrl.files import Arrays, kept_name, write_atomically
from fedrl.network.exchange import Exchange
from fedrl.network.messages import Answer
from fedrl.network.server_side import Planned, ServerSide
from fedrl.runs import metrics
from fedrl.runs.tracking import tracked
from fedrl.trackers.tracker import Tracker

TRAINING = "training"
# What rounds cost, and who missed them.
MISSED, COSTS = "missed.csv", "communication.csv"
COST_COLUMNS = "round,answers,bytes_sent,bytes_received,seconds,longest_computation,aggregation"


class Missed(NamedTuple):
    """An agent whose answer a round did without."""

    round: int
    agent: int
    why: str


class Record:
    """Metrics, checkpoints and status of one training."""

    def __init__(self, runs: Path, side: ServerSide, status: Path) -> None:
        self._side, self._status = side, status
        self.directory = side.directory(runs)
        self.path = self.directory.path
        # Agents keep a state for each training.
        self.training = kept_name(self.path / TRAINING)
        # What everybody knows is not kept as measured (see `experiment.metrics`).
        self._known = {metrics.UPDATES} if side.experiment.lockstep else set()
        self._told: dict[str, Any] = {
            **{"state": "waiting", "run": str(self.path), "rounds": len(side.rounds) - 1},
            **{"agents": {}, "bytes": {"total": 0}, "seconds": {}, "kept": []},
            "lost": [one._asdict() for one in read_missed(self.path)],
        }
        self._tell: Callable[[str], None] = lambda rows: None
        self._tracking = ExitStack()

    @contextmanager
    def tracked(
        self, trackers: Mapping[str, Tracker], log: Callable[[str], None]
    ) -> Iterator[None]:
        """Let trackers look on."""
        with self._tracking as entered:
            entered.enter_context(self.directory.locked())
            telling = tracked(self.directory, trackers, say=log, warn=log)
            self._tell = entered.enter_context(telling)
            yield

    def status(self, planned: Planned, present: Mapping[int, object]) -> None:
        """Who is there, and which round it is."""
        number, alive = planned.number, sorted(present)
        if (self._told.get("alive"), self._told.get("round")) != (alive, number):
            seen = {"round": number, "trained": planned.trained, "done": number - 1}
            self._write(state="training", alive=alive, **seen)

    def round(
        self,
        planned: Planned,
        answers: Mapping[int, Answer],
        exchange: Exchange,
        waiting: float,
        aggregation: float,
    ) -> None:
        """A round is over: what was exchanged, and the seconds of its parts."""
        for agent, answer in answers.items():
            told = self._told["agents"].setdefault(str(agent), {})
            told |= {"round": planned.number, **answer.metrics}
        # Of a round that is done again after a kill, those who missed it now.
        before = read_missed(self.path)
        missed = [one for one in before if one.round < planned.number]
        missed += [Missed(planned.number, *lost) for lost in sorted(exchange.lost.items())]
        if missed != before:
            write_missed(self.path, missed)
        sent, received, whole = exchange.sent, exchange.received, waiting + aggregation
        compute = max((a.metrics.get("seconds", 0.0) for a in answers.values()), default=0.0)
        costs = (planned.number, len(answers), sent, received, whole, compute, aggregation)
        # A round that is done again after a kill has two rows.
        file, row = self.path / COSTS, ",".join(f"{x:.9g}" for x in costs)
        known = file.read_bytes() if file.exists() else f"{COST_COLUMNS}\n".encode()
        write_atomically(file, known + f"{row}\n".encode())
        done = planned.number if planned.E else planned.number - 1
        total = self._told["bytes"]["total"] + sent + received
        self._write(
            done=done,
            lost=[one._asdict() for one in missed],
            bytes={"sent": sent, "received": received, "total": total},
            seconds={
                "round": whole,
                "longest computation": compute,
                "aggregation": aggregation,
                "everything else": waiting - compute,
            },
            epsilon=self._side.epsilon(done),
        )

    def kept(self, planned: Planned, why: str) -> None:
        """A round leaves the model as it was."""
        self._told["kept"].append({"round": planned.number, "why": why})

    def evaluation(
        self,
        planned: Planned,
        answers: Mapping[int, Answer],
        held_out: dict[str, list[float]],
        *,
        more: bool = False,
    ) -> None:
        """Keep what was measured as rows of a run's metrics; theta stays with the agents.

        `more`: in addition to what is known of the same evaluation.
        """
        start, lines = f"0,{planned.number - 1},{planned.trained}", []
        for agent, answer in sorted(answers.items()):
            for name, value in answer.metrics.items():
                who, split, metric = _place(name, agent)
                if who is not None and metric not in self._known:
                    lines.append(f"{start},{who},{agent},,{split},{metric},{value:.9g}")
        for name, values in held_out.items():
            for number, value in enumerate(values):
                place = f"{metrics.AVERAGE},{number},,{metrics.HELD_OUT}"
                lines.append(f"{start},{place},{name},{value:.9g}")
        if lines:
            rows = "".join(f"{line}\n" for line in lines)
            if more:
                rows = self.directory.add_metrics(planned.trained, rows)
            else:
                self.directory.save_metrics(planned.trained, rows)
            self._tell(rows)

    def finish(self, models: Arrays) -> None:
        """Write the final model."""
        self.directory.finish(models)
        # First: who waits for the end stops this process when it is told.
        self._tracking.close()
        self._write(state="finished")

    def failed(self, why: str) -> None:
        """Say that it ended, and why."""
        self._write(state="failed", why=why)

    def _write(self, **told: Any) -> None:
        self._told |= told
        now = datetime.now(UTC).isoformat(timespec="seconds")
        content = json.dumps(self._told | {"at": now, "time": time.time()}, indent=2)
        write_atomically(self._status, (content + "\n").encode())


def _place(name: str, agent: int) -> tuple[str | None, str, str]:
    """(whose model, split, metric) of a number that an agent has told."""
    if name in ("return", "discounted_return", "objective"):
        return metrics.AVERAGE, metrics.TRAIN, name
    if name.startswith("own_"):
        return str(agent), metrics.TRAIN, name.removeprefix("own_")
    if name in (metrics.LOSS, metrics.EXPLORED, metrics.UPDATES):
        return str(agent), metrics.LEARNING, name
    return None, "", ""


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
