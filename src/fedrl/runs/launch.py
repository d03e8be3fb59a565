"""From a description to a finished run directory, telling how it goes."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from fedrl.counting import count
from fedrl.engine.divergence import OnDivergence
from fedrl.engine.footprint import refuse_what_does_not_fit
from fedrl.engine.layout import refuse_unless_everybody_takes_part
from fedrl.engine.programs import Start
from fedrl.experiment.settings import Experiment
from fedrl.progress import RunProgress, Silence
from fedrl.runs.driver import carry_out
from fedrl.runs.run_directory import RunDirectory
from fedrl.trackers.tracker import Tracker


def begin(
    experiments: list[Experiment], out: Path, start: Start | None = None, wave: int | None = None
) -> list[RunDirectory]:
    """Their folders; none is made if one of them cannot be carried out here."""
    for experiment in experiments:
        refuse_unless_everybody_takes_part(experiment, wave)
        experiment.family.check()
        experiment.aggregator.promise(experiment.rounds)
        refuse_what_does_not_fit(experiment)
    return [RunDirectory.create(out, experiment, start) for experiment in experiments]


def in_words(experiment: Experiment) -> str:
    """What is about to be done, for people."""
    E = f"E = {int(experiment.E)}" if experiment.communicates else "no communication"
    learner = experiment.learner
    rows = experiment.agents * experiment.seeds * learner.replay
    megabytes = rows * learner.row_bytes(*experiment.family.remembered) / 1e6
    if experiment.participants < experiment.agents:
        E += f" with {count(experiment.participants, 'agents')} at a time"
    size = f"{count(experiment.agents, 'agents')} x {count(experiment.seeds, 'seeds')}"
    words = (
        f"{experiment.name}: {size}, {count(experiment.updates, experiment.unit)} each, {E}; "
        f"replay {megabytes:,.0f} MB"
    )
    promised = experiment.aggregator.promise(experiment.rounds)
    return f"{words}; {promised}" if promised else words


def go_on(
    directory: RunDirectory,
    console: Console,
    trackers: Mapping[str, Tracker] | None = None,
    wave: int | None = None,
    on_divergence: OnDivergence = "stop",
) -> None:
    """Take a run to its end, telling how it goes."""
    if console.quiet:
        carry_out(directory, Silence(), trackers, wave, on_divergence)
        return
    with RunProgress(directory.path.name, console) as progress:
        if not directory.finished:
            progress.say(in_words(directory.experiment))
            progress.say(f"results: {directory.path}")
        carry_out(directory, progress, trackers, wave, on_divergence)
