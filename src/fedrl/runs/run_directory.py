"""The folder of a run: what was asked, what was measured, where it is, what came out.

experiment.toml   the settings
start.npz         where the agents begin, if not from nothing: their environments and parameters
about.json        versions and device of the process that started it; what environments look like
SHA256SUMS        checksums of what is not to change: `sha256sum --check SHA256SUMS`
metrics/          a file for each evaluation; when the run is finished, one `metrics.csv` instead
checkpoints/      the state of everything
seconds.txt       how long it took so far, up to the latest checkpoint
models.npz        the final parameters; its presence says that the run is finished
trackers/         what trackers keep on this machine, if there are any
"""

import json
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedrl.engine.client import shape_of_models
from fedrl.engine.programs import Start
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.experiment.toml import to_table, to_toml
from fedrl.files import (
    Array,
    Arrays,
    as_npz,
    checksum,
    locked,
    read_arrays,
    read_text,
    refuse_links,
    write_arrays,
    write_atomically,
)
from fedrl.runs import metrics
from fedrl.runs.about import DECISIVE, about, changes, promises_bits
from fedrl.runs.stored import Looks, stored_experiment
from fedrl.trees import named_leaves

EXPERIMENT, ABOUT, METRICS, MODELS = "experiment.toml", "about.json", "metrics.csv", "models.npz"
START, THETAS, SECONDS = "start.npz", "thetas", "seconds.txt"
SUMS, SUM = "SHA256SUMS", re.compile(r"([0-9a-f]{64})  (\S+)")
# Weights & Biases links its logs to a cache of its own.
LINKED_LOGS = "trackers/wandb"
ENVIRONMENTS = "environments"


class RunDirectory:
    """One run on disk. Make one with `create` or `open`."""

    def __init__(self, path: Path, experiment: Any) -> None:
        """Of an experiment; federations also keep those on tables like this."""
        refuse_links(path, tolerated=LINKED_LOGS)
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
            ours = (ABOUT, START, SUMS)
            if any(file.name[0] != "." and file.name not in ours for file in path.iterdir()):
                raise FedrlError(f"{path} is not empty and not a run of ours: move it away")
            began = {"experiment": experiment.digest, "start": _digest(begins)}
            looks = to_table(Looks.of(experiment.family))
            written = {**began, ENVIRONMENTS: looks, **about()}
            write_atomically(path / ABOUT, (json.dumps(written, indent=2) + "\n").encode())
            settings = to_toml(experiment).encode()
            sums = {EXPERIMENT: sha256(settings).hexdigest()}
            if begins:
                write_arrays(path / START, begins)
                sums[START] = checksum(path / START)
            _write_sums(path, sums)
            # Last: a folder with this file is a run.
            write_atomically(path / EXPERIMENT, settings)
        except (FileExistsError, NotADirectoryError):
            raise FedrlError(f"{path} cannot be a folder, a file is in the way") from None
        except OSError as error:
            raise FedrlError(
                f"{path} cannot be written ({error.strerror}): name another folder with --out"
            ) from None
        return cls(path, experiment)

    @classmethod
    def open(cls, path: Path, *, allow_code: bool = False) -> "RunDirectory":
        """The run in a folder.

        `allow_code`: import modules that its settings name as `module:Class`.
        """
        file = path / EXPERIMENT
        if path.is_file():
            raise FedrlError(
                f"{path} is a file, not the folder of a run: `fedrl run {path}` runs an experiment "
                "from a TOML file, and says where its folder is"
            )
        if not file.is_file():
            hint = "" if path.is_dir() else " (there is no such folder)"
            raise FedrlError(f"{path} is not a run: it has no {EXPERIMENT}{hint}")
        directory = cls(path, None)
        directory.verify(EXPERIMENT)
        looks = directory.about().get(ENVIRONMENTS)
        text = read_text(file)
        directory.experiment = stored_experiment(text, str(file), looks, allow_code=allow_code)
        return directory

    def start(self) -> Start | None:
        """Where its agents begin, if not from nothing."""
        if not (self.path / START).exists():
            return None
        stored = read_arrays(self.path / START)
        shapes = shape_of_models(self.experiment)
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

    def refuse_if_changed(self, warn: Callable[[str], None]) -> None:
        """Going on is only right with the settings, and their meaning, of the beginning."""
        then = self.about()
        if not {"experiment", "start", "versions"} <= then.keys():
            raise FedrlError(
                f"{self.path / ABOUT} is missing or damaged, and says with which versions this run "
                "began: put it back, or move the folder away and begin anew"
            )
        stored = read_arrays(self.path / START) if (self.path / START).exists() else {}
        if then["experiment"] != self.experiment.digest:
            raise self._edited()
        if then["start"] != _digest(stored):
            raise FedrlError(
                f"{self.path / START}, where the agents of this run began, is missing or was "
                "changed: adapt the run it comes from again"
            )
        now = about()
        changed = changes(then, now)
        decisive = [name for name in DECISIVE if name in changed]
        if decisive and promises_bits(then, now):
            words = " and ".join(f"{name} {changed[name][0]}" for name in decisive)
            here = " and ".join(f"{name} {changed[name][1]}" for name in decisive)
            raise FedrlError(
                f"{self.path} began with {words}, and here is {here}, which need not give the same "
                "bits: install what it began with, or move the folder away and begin anew"
            )
        for name, (before, after) in changed.items():
            warn(f"{name} is {after} now and was {before} when this run began")

    def _edited(self) -> FedrlError:
        file = self.path / EXPERIMENT
        return FedrlError(
            f"{file} is not what this run began with (it was edited, or is from another version of "
            f"fedrl): undo that, or `fedrl run {file}` begins a new run with it"
        )

    def sums(self) -> dict[str, str]:
        """Checksums by file; none in runs of early versions of fedrl."""
        file = self.path / SUMS
        if not file.exists():
            return {}
        found = [SUM.fullmatch(line) for line in read_text(file).splitlines()]
        sums = {line[2]: line[1] for line in found if line}
        needed = {EXPERIMENT, METRICS, MODELS} if self.finished else {EXPERIMENT}
        if None in found or not needed <= sums.keys():
            raise FedrlError(f"{file} is damaged: take the run from a backup")
        return sums

    def verify(self, name: str) -> None:
        """Refuse a file that is not as it was written."""
        expected, file = self.sums().get(name), self.path / name
        if expected is None or (file.exists() and checksum(file) == expected):
            return
        if name == EXPERIMENT:
            raise self._edited()
        raise FedrlError(
            f"{file} is missing, damaged or edited (its checksum is not that in {SUMS}): take it "
            "from a backup, or move the run's folder away and run it again"
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

    def add_metrics(self, trained: int, text: str) -> str:
        """Add rows to those of an evaluation; the ones that are new, which may be none."""
        file = self.path / "metrics" / f"{trained:010d}.csv"
        before = _lines(file) if file.exists() else ""
        known = set(before.splitlines())
        new = "".join(f"{line}\n" for line in text.splitlines() if line not in known)
        self.save_metrics(trained, before + new)
        return new

    def metrics_text(self) -> str:
        """All rows so far."""
        whole = self.path / METRICS
        self.verify(METRICS)
        files = [whole] if whole.exists() else sorted((self.path / "metrics").glob("[0-9]*.csv"))
        texts = [_lines(file) for file in files]
        return "".join(texts if whole.exists() else [metrics.HEADER, *texts])

    def metrics_rows(self) -> str:
        """The same without the header."""
        return self.metrics_text().removeprefix(metrics.HEADER)

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
        text = self.metrics_text().encode()
        write_atomically(self.path / METRICS, text)
        shutil.rmtree(self.path / "metrics", ignore_errors=True)
        content = as_npz(models)
        sums = self.sums() or {EXPERIMENT: checksum(self.path / EXPERIMENT)}
        sums |= {METRICS: sha256(text).hexdigest(), MODELS: sha256(content).hexdigest()}
        _write_sums(self.path, sums)
        write_atomically(self.path / MODELS, content)

    def about(self) -> dict[str, Any]:
        """Versions and device of the process that started it; empty where they are not known."""
        try:
            written = json.loads((self.path / ABOUT).read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return written if isinstance(written, dict) else {}

    def models(self) -> Arrays:
        """The final parameters by name."""
        if not self.finished:
            raise FedrlError(f"{self.path} is not finished: `fedrl resume {self.path}` goes on")
        self.verify(MODELS)
        models = read_arrays(self.path / MODELS)
        expected = named_leaves(shape_of_models(self.experiment))
        fits = models.keys() == expected.keys() and all(
            _fits(models[name], leaf, self.experiment.seeds) for name, leaf in expected.items()
        )
        if not fits:
            raise FedrlError(
                f"{self.path / MODELS} is damaged: its arrays are not those of this experiment"
            )
        return models


def _fits(stored: Array, leaf: jax.ShapeDtypeStruct, seeds: int) -> bool:
    """Whether stored models, seeds first, are what the experiment makes.

    Of agents in a federation over a network, the server has the average only.
    """
    models, *shape = leaf.shape
    allowed = [(seeds, one, *shape) for one in (1, models)]
    return stored.dtype == leaf.dtype and stored.shape in allowed


def _lines(file: Path) -> str:
    """A text that ends where a line does."""
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError:
        text = ""
    if not text.endswith("\n"):
        raise FedrlError(f"{file} is damaged: take it from a backup, or begin the run anew")
    return text


def _write_sums(folder: Path, sums: dict[str, str]) -> None:
    """In the format of `sha256sum`."""
    lines = "".join(f"{sums[name]}  {name}\n" for name in sums)
    write_atomically(folder / SUMS, lines.encode())


def _digest(*described: Any) -> str:
    """A short name for settings and numbers."""
    digest = sha256()
    for one in described:
        for part in [one] if isinstance(one, str) else one.values():
            digest.update(part.encode() if isinstance(part, str) else np.asarray(part).tobytes())
    return digest.hexdigest()[:8]
