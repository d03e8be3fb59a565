"""What trackers have, read by their own means, and what they should have, by pandas."""

import json
import time
from pathlib import Path

import pandas as pd
from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto.wandb_internal_pb2 import Record

NAMES = ("tensorboard", "wandb", "mlflow")


def in_tensorboard(run: Path):
    """Every number that it shows, as (name, step, value)."""
    return in_event_file(run / "trackers" / "tensorboard")


def in_event_file(path: Path):
    """The same for a file, or a folder of them."""
    shown = EventAccumulator(str(path), {"scalars": 0}).Reload()
    return [(n, x.step, x.value) for n in shown.Tags()["scalars"] for x in shown.Scalars(n)]


def in_wandb(run: Path):
    """Every number in its files, of which its process may still be writing the latest."""
    files = sorted((run / "trackers" / "wandb").glob("*run-*/run-*.wandb"))
    until = time.monotonic() + 10
    while not any(record.HasField("exit") for record in wandb_records(files[-1])):
        assert time.monotonic() < until
        time.sleep(0.02)
    return [
        (name, record.history.step.num, json.loads(item.value_json))
        for file in files
        for record in wandb_records(file)
        for item in record.history.item
        for name in item.nested_key
        if not name.startswith("_")
    ]


def wandb_records(file: Path):
    """Records that fit into a block of 32 KiB, which ours do."""
    content = file.read_bytes()
    assert len(content) < 2**15
    place = 7
    while place < len(content):
        length = int.from_bytes(content[place + 4 : place + 6], "little")
        yield Record.FromString(content[place + 7 : place + 7 + length])
        place += 7 + length


def mlflow_runs(run: Path):
    """Its client, and what it has of the run."""
    client = MlflowClient(f"sqlite:///{run.parent / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("fedrl")
    key = (run / "trackers" / "key").read_text()
    runs = client.search_runs([experiment.experiment_id])
    found = [one for one in runs if one.data.tags["fedrl.key"] == key]
    assert {one.info.run_name for one in found} <= {run.name}
    return client, found


def in_mlflow(run: Path):
    """Every number that its client tells."""
    client, (found,) = mlflow_runs(run)
    names = found.data.metrics
    return [
        (x.key, x.step, x.value)
        for name in names
        for x in client.get_metric_history(found.info.run_id, name)
    ]


READERS = dict(zip(NAMES, (in_tensorboard, in_wandb, in_mlflow), strict=True))


def recorded(run: Path):
    """What metrics.csv says: {(name, step): value}."""
    frame = pd.read_csv(run / "metrics.csv", dtype={"agent": str, "environment": str})
    mean = frame["agent"] == "average"
    splits = {
        "train": frame[mean & (frame["split"] == "train")],
        "held-out": frame[mean & (frame["split"] == "held-out")],
        "agents-train": frame[~mean & (frame["split"] == "train")],
        "agents-held-out": frame[~mean & (frame["split"] == "held-out")],
        "learning": frame[frame["split"] == "learning"],
    }
    local = splits["agents-train"]
    own = local[local["agent"] == local["environment"]]
    splits["own"] = splits["train"] if own.empty else own
    expected = {("round", u): r for u, r in frame.groupby("updates")["round"].first().items()}
    for split, part in splits.items():
        of_seeds = part.groupby(["metric", "updates", "seed"])["value"].mean()
        over_seeds = of_seeds.groupby(level=["metric", "updates"])
        for (metric, updates), value in over_seeds.mean().items():
            expected[f"{split}/{metric}", updates] = value
        for (metric, updates), value in over_seeds.sem().dropna().items():
            expected[f"{split}/{metric}_stderr", updates] = value
    return expected
