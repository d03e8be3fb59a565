"""The folder of a run: what was asked, what was measured, where it is, what came out.

experiment.toml   the settings
start.npz         where the agents begin, if not from nothing: their environments and parameters
about.json        versions and device of the process that started it; what environments look like
metrics/          a file for each evaluation; when the run is finished, one `metrics.csv` instead
checkpoints/      the state of everything
seconds.txt       how long it took so far, up to the latest checkpoint
models.npz        the final parameters; its presence says that the run is finished
trackers/         what trackers keep on this machine, if there are any
"""

import json
import shutil
from contextlib import AbstractContextManager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedrl.errors import FedrlError
from fedrl.experiment import metrics
from fedrl.experiment.files import (
    Arrays,
    locked,
    read_arrays,
    write_arrays,
    write_atomically,
)
from fedrl.experiment.programs import Programs, Start
from fedrl.experiment.settings import Experiment
from fedrl.experiment.stored import Looks, stored_experiment
from fedrl.experiment.toml import to_table, to_toml

EXPERIMENT, ABOUT, METRICS, MODELS = "experiment.toml", "about.json", "metrics.csv", "models.npz"
START, THETAS, SECONDS = "start.npz", "thetas", "seconds.txt"
ENVIRONMENTS = "environments"


class RunDirectory:
    """One run on disk. Make one with `create` or `open`."""

    def __init__(self, path: Path, experiment: Any) -> None:
        """Of an experiment; federations also keep those on tables like this."""
        self.path, self.experiment = path, experiment

    @classmethod
    def create(
        cls, runs: Path, experiment: Experiment, start: Start | None = None
    ) -> "RunDirectory":
        """The folder of this experiment below `runs`, new or as an earlier process left it."""
        path = runs / experiment.directory_name
        begins = {} if start is None else {THETAS: start.thetas, **named_leaves(start.params)}
        if start is not None:
            path = runs / f"{experiment.name}-{_digest(experiment.digest, begins)}"
        try:
            path.mkdir(parents=True, exist_ok=True)
            if (path / EXPERIMENT).exists():
                found = cls.open(path)
                if found.experiment.digest != experiment.digest:
                    raise FedrlError(f"{path} holds another experiment: move it away")
                return cls(path, experiment)
            ours = (ABOUT, START)
            if any(file.name[0] != "." and file.name not in ours for file in path.iterdir()):
                raise FedrlError(f"{path} is not empty and not a run of ours: move it away")
            began = {"experiment": experiment.digest, "start": _digest(begins)}
            looks = to_table(Looks.of(experiment.family))
            written = {**began, ENVIRONMENTS: looks, **about()}
            write_atomically(path / ABOUT, (json.dumps(written, indent=2) + "\n").encode())
            if begins:
                write_arrays(path / START, begins)
            # Last: a folder with this file is a run.
            write_atomically(path / EXPERIMENT, to_toml(experiment).encode())
        except (FileExistsError, NotADirectoryError):
            raise FedrlError(f"{path} cannot be a folder, a file is in the way") from None
        except OSError as error:
            raise FedrlError(
                f"{path} cannot be written ({error.strerror}): name another folder with --out"
            ) from None
        return cls(path, experiment)

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """The run in a folder."""
        file = path / EXPERIMENT
        if not file.is_file():
            hint = "" if path.is_dir() else " (there is no such folder)"
            raise FedrlError(f"{path} is not a run: it has no {EXPERIMENT}{hint}")
        looks = cls(path, None).about().get(ENVIRONMENTS)
        return cls(path, stored_experiment(file.read_text("utf-8"), str(file), looks))

    def start(self) -> Start | None:
        """Where its agents begin, if not from nothing."""
        if not (self.path / START).exists():
            return None
        stored = read_arrays(self.path / START)
        shapes = Programs(self.experiment).shape_of_models()
        leaves = [stored[name] for name in named_leaves(shapes)]
        return Start(stored[THETAS], jax.tree.unflatten(jax.tree.structure(shapes), leaves))

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def finished(self) -> bool:
        return (self.path / MODELS).exists()

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes out."""
        return locked(self.path)

    def refuse_if_changed(self) -> None:
        """Going on is only right with the settings, and their meaning, of the beginning."""
        about = self.about()
        known = {"experiment", "start"} <= about.keys()
        begun_with, start = (about["experiment"], about["start"]) if known else (None, None)
        stored = read_arrays(self.path / START) if (self.path / START).exists() else {}
        if begun_with == self.experiment.digest and start != _digest(stored):
            raise FedrlError(
                f"{self.path / START}, where the agents of this run began, is missing or was "
                "changed: adapt the run it comes from again"
            )
        if begun_with != self.experiment.digest:
            file = self.path / EXPERIMENT
            raise FedrlError(
                f"{file} is not what this run began with (it was edited, or is from another "
                f"version of fedrl): `fedrl run {file}` begins a new run with it"
            )

    def begin(self) -> None:
        """Forget the measurements of a run that begins anew."""
        (self.path / SECONDS).unlink(missing_ok=True)
        shutil.rmtree(self.path / "metrics", ignore_errors=True)

    def sweep(self) -> None:
        """Remove what a kill in the middle of writing has left."""
        for file in self.path.rglob(".*.*.*"):
            if file.is_file():
                file.unlink(missing_ok=True)

    def save_metrics(self, trained: int, text: str) -> None:
        """Keep the rows of an evaluation; the same one again writes the same."""
        folder = self.path / "metrics"
        folder.mkdir(exist_ok=True)
        write_atomically(folder / f"{trained:010d}.csv", text.encode())

    def metrics_text(self) -> str:
        """All rows so far."""
        whole = self.path / METRICS
        if whole.exists():
            return whole.read_text("utf-8")
        files = sorted((self.path / "metrics").glob("[0-9]*.csv"))
        return metrics.header() + "".join(file.read_text("utf-8") for file in files)

    def metrics_rows(self) -> str:
        """The same without the header."""
        return self.metrics_text().removeprefix(metrics.header())

    @property
    def seconds(self) -> float | None:
        """How long it took on its machine, all processes and seeds together, if that is known."""
        try:
            return float((self.path / SECONDS).read_text("utf-8"))
        except (OSError, ValueError):
            return None

    def spend(self, seconds: float) -> None:
        """So much longer it took."""
        write_atomically(self.path / SECONDS, f"{(self.seconds or 0) + seconds:.3f}\n".encode())

    def finish(self, models: Arrays) -> None:
        """Write what a finished run consists of. Safe to be killed in and done again."""
        write_atomically(self.path / METRICS, self.metrics_text().encode())
        shutil.rmtree(self.path / "metrics", ignore_errors=True)
        write_arrays(self.path / MODELS, models)

    def about(self) -> dict[str, Any]:
        """Versions and device of the process that started it; empty where they are not known."""
        try:
            written = json.loads((self.path / ABOUT).read_bytes())
        except (OSError, ValueError):
            return {}
        return written if isinstance(written, dict) else {}

    def models(self) -> Arrays:
        """The final parameters by name."""
        if not self.finished:
            raise FedrlError(f"{self.path} is not finished: `fedrl resume {self.path}` goes on")
        return read_arrays(self.path / MODELS)


def _digest(*described: Any) -> str:
    """A short name for settings and numbers."""
    digest = sha256()
    for one in described:
        for part in [one] if isinstance(one, str) else one.values():
            digest.update(part.encode() if isinstance(part, str) else np.asarray(part).tobytes())
    return digest.hexdigest()[:8]


def named_leaves(tree: Any) -> dict[str, Any]:
    """The leaves of a tree under the names of their places, in the order of the tree."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def about() -> dict[str, Any]:
    """Versions and device of this process."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    devices = jax.local_devices()
    versions = {"python": platform.python_version()}
    for name in ("fedrl", "jax", "jaxlib", "numpy", "equinox", "optax", "mujoco", "mujoco-mjx"):
        with suppress(PackageNotFoundError):  # extras
            versions[name] = version(name)
    return {
        "versions": versions,
        "device": devices[0].device_kind,
        "platform": devices[0].platform,
        "devices": len(devices),
        "machine": platform.machine(),
    }
