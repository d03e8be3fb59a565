"""An experiment, told to somebody who has not seen its settings."""

from fedrl.counting import count
from fedrl.experiment.settings import Experiment
from fedrl.network.missed import missed_in_words, read_missed
from fedrl.report.arms import OWN
from fedrl.runs.metrics import HELD_OUT, TRAIN
from fedrl.runs.run import Run
from fedrl.runs.run_directory import START
from fedrl.strategies.aggregators import Mean
from fedrl.strategies.private import Private

PLACES = {
    TRAIN: "training environments",
    HELD_OUT: "held-out environments",
    OWN: "agents’ own environments",
}
"""Where models are evaluated, in words."""


def told(run: Run) -> list[str]:
    """Sentences about a run; the last one says how far it is, if it is not finished."""
    experiment = run.experiment
    sentences = [
        *_environments(experiment),
        *_beginning(run),
        _communication(experiment),
        *_private(experiment),
        _evaluation(experiment),
    ]
    sentences += missed_by_agents(run)
    if not run.finished:
        sentences.append(_how_far(run))
    return sentences


def missed_by_agents(run: Run) -> list[str]:
    """Sentences about agents of a federation whose answers rounds did without."""
    words = missed_in_words(read_missed(run.path), run.experiment.rounds)
    return [f"{one[0].upper()}{one[1:]}." for one in words]


def _environments(experiment: Experiment) -> list[str]:
    varied = "; ".join(
        f"{one.name} ({one.what}) from {one.low:g} to {one.high:g}"
        for one in experiment.family.varied
    )
    learner = experiment.learner.name.upper()
    where = getattr(experiment.family, "environment", experiment.family.name)
    return [
        f"{count(experiment.agents, 'agents')} with {learner}, each in an environment of its own "
        f"from the family {where}.",
        f"The environments differ in {varied}.",
    ]


def _beginning(run: Run) -> list[str]:
    if not (run.path / START).exists():
        return []
    trained = {
        "everything": "all parameters",
        "private": "only what is private",
        "shared": "only what is shared",
        "nothing": "nothing",
    }[run.experiment.learner.trains]
    return [f"They begin with given parameters, of other agents or random, and train {trained}."]


def _communication(experiment: Experiment) -> str:
    length = f"{count(experiment.updates, experiment.unit)} each"
    if not experiment.communicates:
        return f"They learn for {length} and never communicate (E = ∞)."
    who = (
        f"{experiment.participants} of them, drawn anew each time,"
        if experiment.participants < experiment.agents
        else "they"
    )
    aggregator = experiment.aggregator
    how = {
        "mean": "average",
        "median": "take the median of",
        "trimmed-mean": "take the trimmed mean of",
        "krum": "choose, by Krum, among",
        "private": "average, clipped and with noise,",
    }.get(aggregator.name, f"aggregate ({aggregator.name})")
    if isinstance(aggregator, Mean) and aggregator.weights:
        how = "take the weighted average of"
    if isinstance(aggregator, Private) and not aggregator.noise:
        how = "average, clipped,"
    E = int(experiment.E)
    often = f"every {count(E, experiment.unit)}" if E > 1 else f"every {experiment.unit[:-1]}"
    return (
        f"They learn for {length}; {often} {who} {how} their networks (E = {E}), "
        f"{count(experiment.rounds, 'times')} in all."
    )


def _private(experiment: Experiment) -> list[str]:
    personal = experiment.learner.personal
    parts = [
        f"an embedding of {count(personal.embedding, 'numbers')}" if personal.embedding else "",
        "the output layer" if personal.head else "",
        "the normalisation of observations" if personal.normalisation else "",
    ]
    kept = [part for part in parts if part]
    return [f"Each agent keeps to itself: {', '.join(kept)}."] if kept else []


def _evaluation(experiment: Experiment) -> str:
    evaluation = experiment.evaluation
    where = (
        "each agent’s model in its own environment"
        if evaluation.where == "own"
        else "in every training environment"
        + (
            f" and in {count(experiment.held_out, 'held-out environments')} that nobody trains in"
            if experiment.held_out
            else ""
        )
    )
    repeated = (
        f"All of this with {experiment.seeds} seeds, each with environments and random numbers of "
        "its own."
        if experiment.seeds > 1
        else "There is a single seed."
    )
    return (
        f"Every {count(evaluation.every, experiment.unit)} the models play "
        f"{count(evaluation.episodes, 'greedy episodes')} {where}. {repeated}"
    )


def _how_far(run: Run) -> str:
    done, whole = int(run.metrics()["updates"].max()), run.experiment.updates
    return (
        f"This run is not finished: {done:,} of {whole:,} {run.experiment.unit} are done and shown."
    )
