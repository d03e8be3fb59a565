"""What a federation leaves on the server's disk: an ordinary run directory, and its status."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedrl.experiment.settings import Experiment
from fedrl.experiment.toml import to_toml
from fedrl.files import Array, kept_name, write_atomically
from fedrl.network.deployment import EXPERIMENT
from fedrl.network.experiments import AnyExperiment
from fedrl.network.messages import Answer, Arrays
from fedrl.network.missed import COST_COLUMNS, COSTS, Missed, read_missed, write_missed
from fedrl.network.server_side import NetworkTraining, Planned, TableTraining
from fedrl.runs import metrics
from fedrl.runs.run_directory import RunDirectory
from fedrl.runs.tracking import tracked
from fedrl.tabular.experiment import TabularExperiment
from fedrl.trackers.tracker import Tracker
from fedrl.trees import named_leaves

TRAINING = "training"


class Record:
    """Metrics, checkpoints and status of one training."""

    def __init__(self, runs: Path, training: NetworkTraining | TableTraining, status: Path) -> None:
        self._training, self._status = training, status
        experiment = training.experiment
        self._directory = _directory(runs, experiment)
        self.path = self._directory.path
        self.experiment = experiment.digest
        # Agents keep a state for each training.
        self.training = kept_name(self.path / TRAINING)
        self._told: dict[str, Any] = {"agents": {}, "rounds": len(training.rounds) - 1}
        self._told |= {"state": "waiting", "run": str(self.path), "bytes": {"total": 0}}
        self._told["seconds"] = {}
        # What everybody knows is not kept as measured (see `experiment.metrics`).
        lockstep = isinstance(experiment, Experiment) and experiment.lockstep
        self._known = {metrics.UPDATES} if lockstep else set()
        self._told["lost"] = [one._asdict() for one in read_missed(self.path)]
        self._told["kept"] = []
        self._tell: Callable[[str], None] = lambda rows: None
        self._tracking = ExitStack()

    @contextmanager
    def tracked(
        self, trackers: Mapping[str, Tracker], log: Callable[[str], None]
    ) -> Iterator[None]:
        """Let trackers look on."""
        directory = self._directory
        with self._tracking as entered:
            entered.enter_context(directory.locked())
            telling = tracked(directory, trackers, say=log, warn=log)
            self._tell = entered.enter_context(telling)
            yield

    @property
    def checkpoints(self) -> Path:
        return self._directory.checkpoints

    @property
    def finished(self) -> bool:
        return self._directory.finished

    def status(self, planned: Planned, present: Mapping[int, object]) -> None:
        """Who is there, and which round it is."""
        seen = {"state": "training", "round": planned.number, "trained": planned.trained}
        seen["done"] = planned.number - 1
        alive = sorted(present)
        if self._told.get("alive") != alive or self._told.get("round") != planned.number:
            self._write(**seen, alive=alive)

    def round(
        self,
        planned: Planned,
        answers: Mapping[int, Answer],
        lost: Mapping[int, str],
        *,
        sent: int,
        received: int,
        seconds: tuple[float, float],
    ) -> None:
        """A round is over."""
        for agent, answer in answers.items():
            told = self._told["agents"].setdefault(str(agent), {})
            told |= {"round": planned.number, **answer.metrics}
        self._lose(planned.number, lost)
        compute = max((a.metrics.get("seconds", 0.0) for a in answers.values()), default=0.0)
        total = self._told["bytes"]["total"] + sent + received
        costs = (planned.number, len(answers), sent, received, sum(seconds), compute, seconds[1])
        self._append(",".join(f"{x:.9g}" for x in costs))
        self._write(
            done=planned.number if planned.E else planned.number - 1,
            bytes={"sent": sent, "received": received, "total": total},
            seconds={
                "round": sum(seconds),
                "longest computation": compute,
                "aggregation": seconds[1],
                "everything else": sum(seconds) - compute - seconds[1],
            },
            epsilon=self._training.epsilon(planned.number if planned.E else planned.number - 1),
        )

    def kept(self, planned: Planned, why: str) -> None:
        """A round leaves the model as it was."""
        self._told["kept"].append({"round": planned.number, "why": why})

    def _lose(self, number: int, lost: Mapping[int, str]) -> None:
        """Keep who missed a round; one that is done again counts once."""
        before = read_missed(self.path)
        missed = [one for one in before if one.round < number]
        missed += [Missed(number, agent, why) for agent, why in sorted(lost.items())]
        if missed != before:
            write_missed(self.path, missed)
        self._told["lost"] = [one._asdict() for one in missed]

    def evaluation(
        self, planned: Planned, answers: Mapping[int, Answer], held_out: dict[str, list[float]]
    ) -> None:
        """Keep what was measured as rows of a run's metrics; theta stays with the agents."""
        start = f"0,{planned.number - 1},{planned.trained}"
        lines = []
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
            rows = "\n".join(lines) + "\n"
            self._directory.save_metrics(planned.trained, rows)
            self._tell(rows)

    def finish(self, model: Arrays) -> None:
        """Write the final model."""
        if isinstance(self._training, NetworkTraining):
            leaves = named_leaves(self._training.model(model))
            arrays: dict[str, Array] = {
                name: np.asarray(jax.device_get(leaf))[None, None] for name, leaf in leaves.items()
            }
        else:
            arrays = dict(model)
        self._directory.finish(arrays)
        # First: who waits for the end stops this process when it is told.
        self._tracking.close()
        self._write(state="finished")

    def _append(self, row: str) -> None:
        """To the costs of rounds; one that is done again after a kill has two rows."""
        file = self.path / COSTS
        before = file.read_bytes() if file.exists() else f"{COST_COLUMNS}\n".encode()
        write_atomically(file, before + f"{row}\n".encode())

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


def _directory(runs: Path, experiment: AnyExperiment) -> RunDirectory:
    runs.mkdir(parents=True, exist_ok=True)
    if isinstance(experiment, Experiment):
        return RunDirectory.create(runs, experiment)
    path = runs / experiment.directory_name
    path.mkdir(exist_ok=True)
    if not (path / EXPERIMENT).exists():
        write_atomically(path / EXPERIMENT, to_toml(experiment).encode())
    return RunDirectory(path, experiment)


def training_of(experiment: AnyExperiment) -> NetworkTraining | TableTraining:
    """The server's side of an experiment."""
    if isinstance(experiment, TabularExperiment):
        return TableTraining(experiment)
    return NetworkTraining(experiment)
