"""MLflow: the server of MLFLOW_TRACKING_URI, or a database beside the runs."""

import os
import time
from collections.abc import Mapping

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from fedrl.trackers.tracker import TrackedRun

KEY = "fedrl.key"


class MlflowTracker:
    """A run of theirs for a run of ours, found again by a tag."""

    def __init__(self) -> None:
        self._client: MlflowClient | None = None
        self._id = ""
        self._kept: set[tuple[str, int]] = set()

    def begin(self, run: TrackedRun) -> str:
        # One database for all runs of a folder: they are there to be compared. Not MLflow's own
        # default, which is another one in each folder that a command is given in.
        local = f"sqlite:///{run.path.resolve().parent / 'mlflow.db'}"
        where = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else local
        self._client = MlflowClient(where)
        self._id = _run_of(self._client, run)
        self._client.update_run(self._id, status="RUNNING")
        self._kept = {
            (name, metric.step)
            for name in self._client.get_run(self._id).data.metrics
            for metric in self._client.get_metric_history(self._id, name)
        }
        return f"mlflow ui --backend-store-uri {where}" if where == local else where

    def log(self, updates: int, values: Mapping[str, float]) -> None:
        assert self._client is not None
        now = int(time.time() * 1000)
        missing = {name: x for name, x in values.items() if (name, updates) not in self._kept}
        metrics = [Metric(name, value, now, updates) for name, value in missing.items()]
        self._client.log_batch(self._id, metrics)
        self._kept |= {(name, updates) for name in missing}

    def finish(self, *, complete: bool) -> None:
        if self._client is not None and self._id:
            self._client.set_terminated(self._id, "FINISHED" if complete else "KILLED")


def _run_of(client: MlflowClient, run: TrackedRun) -> str:
    """The id of what they have of this run, made if there is nothing."""
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedrl")
    known = client.get_experiment_by_name(name)
    experiment: str = known.experiment_id if known else client.create_experiment(name)
    found = client.search_runs([experiment], f"tags.`{KEY}` = '{run.key}'")
    if found:
        begun: str = found[0].info.run_id
    else:
        begun = client.create_run(experiment, tags={KEY: run.key}, run_name=run.name).info.run_id
    # Parameters that are there already may be told again.
    client.log_batch(begun, params=[Param(n, str(x)) for n, x in run.settings.items()])
    return begun
