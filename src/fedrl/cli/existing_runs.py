"""The commands about runs: start, continue, report, evaluate, show."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from fedrl.cli.machines import Execution
from fedrl.compilation import use_compilation_cache
from fedrl.counting import count
from fedrl.errors import FedrlError

if TYPE_CHECKING:
    from fedrl.runs.run import Run

Folder = Annotated[Path, tyro.conf.Positional]
# An option that is given again adds to what it was given before.
Thetas = tyro.conf.UseAppendAction[tuple[tuple[float, ...], ...]]


@dataclass(frozen=True, kw_only=True)
class OfRuns:
    """What all commands about runs have in common."""

    allow_code: bool = False
    """Import Python code that the run's settings name as module:Class: of runs you trust only."""


@dataclass(frozen=True)
class OfRun(OfRuns):
    """And those about one."""

    run_dir: Folder
    """The run's folder."""

    def opened(self) -> "Run":
        from fedrl.runs.run import Run

        use_compilation_cache()
        return Run(self.run_dir, allow_code=self.allow_code)


@dataclass(frozen=True)
class Resume(OfRun):
    """Continue a run that was interrupted; the result is the same as if it had not been."""

    execution: Annotated[Execution, tyro.conf.arg(name="")] = field(default_factory=Execution)
    """How to carry it out."""

    def run(self) -> int:
        from fedrl.runs.run_directory import RunDirectory

        directory = RunDirectory.open(self.run_dir, allow_code=self.allow_code)
        return self.execution.carry_out(lambda: [directory])


@dataclass(frozen=True)
class Track(OfRun):
    """Show what a run has recorded in TensorBoard, Weights & Biases or MLflow.

    For runs, finished or not, that were not tracked from the beginning, and those of federations.
    Whatever is there already is not told again. `run` and `resume` do it as they go: --track.
    """

    to: tuple[str, ...]
    """Where: tensorboard, wandb, mlflow (extras of those names)."""

    def run(self) -> int:
        from fedrl.training import track

        track(self.run_dir, self.to, allow_code=self.allow_code)
        return 0


@dataclass(frozen=True)
class Report(OfRuns):
    """Tables and learning curves of one run, or of several side by side."""

    run_dirs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of runs, or of federations over a network."""
    out: Path | None = None
    """Folder for the figures and the table; `figures` in the first run unless given."""
    metric: Literal["return", "discounted_return"] = "return"
    """What to compare; of tables it is always the objective."""
    html: Path | None = None
    """Also write all of it, and more, as one page to this file; it needs no network."""

    def run(self) -> int:
        from fedrl.comparing import report

        report(self.run_dirs, self.out, self.html, self.metric, allow_code=self.allow_code)
        return 0


@dataclass(frozen=True)
class Evaluate(OfRun):
    """Play the final models of a run in environments of your choice."""

    theta: Thetas
    """Environments; for a family with several constants, the numbers of one after the other. One
    that is listed twice is played once."""
    agent: int | None = None
    """Play this agent's own model instead of the averaged one (personalised, or E = inf)."""
    episodes: int = 20
    """Greedy episodes in each environment, for each seed."""

    def run(self) -> int:
        import numpy as np
        from rich.table import Table

        from fedrl.progress import new_console
        from fedrl.report.arms import interval

        run = self.opened()
        thetas = list(dict.fromkeys(grouped(self.theta, len(run.experiment.family.varied))))
        # A single training tells nothing about others, but its episodes differ from each other.
        alone = run.experiment.seeds == 1
        returns = run.evaluate(thetas, agent=self.agent, episodes=self.episodes, each=alone)
        samples = [np.asarray(values[0].T if alone else values) for values in returns]
        names = ", ".join(varied.name for varied in run.experiment.family.varied)
        table = Table(box=None, pad_edge=False)
        for column in (names, "return ± 95 % interval", "discounted"):
            table.add_column(column, justify="right")
        for index, theta in enumerate(thetas):
            table.add_row(
                " ".join(f"{x:g}" for x in theta),
                *(str(interval(values[:, index])) for values in samples),
            )
        console = new_console()
        console.print(table)
        diverged = int((~np.isfinite(np.asarray(returns.undiscounted))).any(1).sum())
        if diverged:
            console.print(f"{diverged} of {run.experiment.seeds} seeds diverged", highlight=False)
        over = " (the intervals: over episodes of this one training)" if alone else ""
        console.print(
            f"{count(run.experiment.seeds, 'seeds')}, "
            f"{count(self.episodes, 'greedy episodes')} each{over}",
            highlight=False,
        )
        return 0


@dataclass(frozen=True)
class Adapt(OfRun):
    """Go on learning in new environments, with what the run's agents have learnt.

    Every seed of the run gets an agent in each environment. The result is a run of its own, below
    the one it comes from: `resume`, `report`, `evaluate` and `show` work on it.
    """

    run_dir: Folder
    """The run's folder: its settings and final models are all that is needed."""
    method: Literal["e-update", "en-update", "phi-update", "n-update", "scratch"]
    """Train only what is private (the embedding), that and the network, nothing, only the network,
    or everything from a random network."""
    theta: Thetas = ()
    """Environments, as for `evaluate`; the run's held-out ones unless given."""
    embedding: Literal["average", "random"] = "average"
    """Begin with the average of the trained embeddings, or with a random one."""
    updates: int | None = None
    """Length of the training, in the run's unit; half of the run's unless given."""
    every: int | None = None
    """Training between two evaluations; a twentieth of it unless given."""
    episodes: int | None = None
    """Greedy episodes of an evaluation; as in the run unless given."""
    embedding_lr: float | None = None
    """Step size of the embedding; as in the run unless given."""
    out: Path | None = None
    """Folder for the new run; `adapted` in the run unless given."""

    def run(self) -> int:
        from fedrl.comparing import compare

        run = self.opened()
        size = len(run.experiment.family.varied)
        thetas = grouped(self.theta, size) if self.theta else None
        about_run = {field.name for field in fields(OfRun)}
        how = {name: x for name, x in vars(self).items() if name not in about_run | {"theta"}}
        adapted = run.adapt(thetas, **how)
        compare(adapted)
        return 0


@dataclass(frozen=True)
class Export(OfRun):
    """Write a run's greedy policy as an ONNX file, for devices without JAX.

    Input `observation` (batch, numbers), output `action`, in the environment's own action space.
    """

    out: Path
    """The file to write."""
    agent: int | None = None
    """An agent with a model of its own, instead of the average."""
    seed: int = 0
    """Which repetition."""

    def run(self) -> int:
        from fedrl.runs.export import export

        run = self.opened()
        path = export(run, self.out, agent=self.agent, seed=self.seed)
        print(f"policy: {path} ({path.stat().st_size:,} bytes)")
        return 0


@dataclass(frozen=True)
class Show(OfRun):
    """Render an episode of a run's policy to a GIF."""

    theta: Thetas
    """The environment."""
    agent: int | None = None
    """Show this agent's own model instead of the averaged one (personalised, or E = inf)."""
    seed: int = 0
    """Which of the run's seeds to show."""
    out: Path | None = None
    """The file; in the run's `figures` unless given."""

    def run(self) -> int:
        from fedrl.cli.show import render_episode

        run = self.opened()
        (theta,) = grouped(self.theta, len(run.experiment.family.varied), most=1)
        path, steps, total = render_episode(run, theta, self.agent, self.seed, self.out)
        print(f"{count(steps, 'steps')}, return {total:g}: {path}")
        return 0


def grouped(
    thetas: tuple[tuple[float, ...], ...], size: int, most: int | None = None
) -> list[tuple[float, ...]]:
    """Numbers from the command line, where --theta may be repeated, as vectors of `size`."""
    counts = [len(numbers) for numbers in thetas]
    too_many = most is not None and sum(counts) > most * size
    if not sum(counts) or any(count % size for count in counts) or too_many:
        many = "" if most is not None else ", or a multiple of that"
        got = " and ".join(map(str, counts)) or "0"
        raise FedrlError(f"--theta takes {count(size, 'numbers')}{many}, got {got}")
    return [tuple(one[i : i + size]) for one in thetas for i in range(0, len(one), size)]
