"""Measurements in long format: one row for each number."""

from collections.abc import Iterator, Sequence

from fedrl.engine.plan import Leg
from fedrl.engine.programs import Record
from fedrl.experiment.settings import Experiment
from fedrl.files import Array

HEADER = "seed,round,updates,agent,environment,theta,split,metric,value\n"
COLUMNS = tuple(HEADER.strip().split(","))
DTYPES = {"seed": "int64", "round": "int64", "updates": "int64", "agent": "str", "value": "float64"}
AVERAGE = "average"
TRAIN, HELD_OUT, LEARNING = "train", "held-out", "learning"
RETURN, DISCOUNTED = "return", "discounted_return"
LOSS, EXPLORED, UPDATES, CLOCK = "loss", "explored_return", "updates", "clock"
DIVERGED = "diverged"


def rows(
    experiment: Experiment,
    leg: Leg,
    record: Record | None,
    thetas: Array,
    diverged: Sequence[tuple[int, int, int]] = (),
) -> str:
    """The record of a leg as lines of CSV, in a fixed order.

    `diverged`: (seed, agent, update) of those that first met what is not finite in this leg.
    """
    places = [(TRAIN, i) for i in range(experiment.agents)]
    places += [(HELD_OUT, j) for j in range(experiment.held_out)]
    lines: list[str] = []
    for seed in range(experiment.seeds):
        names = [" ".join(f"{x:.9g}" for x in theta) for theta in thetas[seed]]
        start = f"{seed},{leg.communications},{leg.trained}"
        for agent, index, metric, value in _played(record, seed) if record else ():
            split, environment = places[index]
            lines.append(
                f"{start},{agent},{environment},{names[index]},{split},{metric},{value:.9g}"
            )
        learning = list(_learning(experiment, record, seed)) if record else []
        learning += [(agent, DIVERGED, update) for s, agent, update in diverged if s == seed]
        for agent_index, metric, value in learning:
            lines.append(
                f"{start},{agent_index},{agent_index},{names[agent_index]},{LEARNING},{metric},"
                f"{value:.9g}"
            )
    return "".join(f"{line}\n" for line in lines)


def _played(record: Record, seed: int) -> Iterator[tuple[str, int, str, float]]:
    """(who, in which environment, what, how much) of every greedy return."""
    both = (RETURN, DISCOUNTED)
    if record.returns is not None:
        for model in range(record.returns.undiscounted.shape[1]):
            agent = AVERAGE if model == 0 else str(model - 1)
            for metric, values in zip(both, record.returns, strict=True):
                for index, value in enumerate(values[seed, model].tolist()):
                    yield agent, index, metric, value
    if record.own is not None:
        for metric, values in zip(both, record.own, strict=True):
            for index, value in enumerate(values[seed].tolist()):
                yield str(index), index, metric, value


def _learning(
    experiment: Experiment, record: Record, seed: int
) -> Iterator[tuple[int, str, float]]:
    """Means over what each agent met since the record before; nothing where it met nothing."""
    seen = record.seen
    for agent in range(seen.loss.shape[1]):
        if record.elapsed is not None:
            yield agent, CLOCK, float(record.elapsed[seed])
        if not experiment.lockstep:  # otherwise all agents have as many, and all know
            yield agent, UPDATES, float(seen.updates[seed, agent])
        for metric, total, count in (
            (LOSS, seen.loss, seen.updates),
            (EXPLORED, seen.collected, seen.episodes),
        ):
            if count[seed, agent]:
                yield agent, metric, float(total[seed, agent]) / int(count[seed, agent])


def headline(record: Record, experiment: Experiment) -> str:
    """Mean returns, for a line of progress: the averaged model's, and the agents' own ones'."""
    said = []
    if record.returns is not None:
        returns = record.returns.undiscounted[:, 0]
        said.append(f"{returns[:, : experiment.agents].mean():.1f} in training")
        if experiment.held_out:
            said.append(f"{returns[:, experiment.agents :].mean():.1f} held out")
    if record.own is not None:
        said.append(f"{record.own.undiscounted.mean():.1f} in their own environments")
    return f"return {', '.join(said)}"
