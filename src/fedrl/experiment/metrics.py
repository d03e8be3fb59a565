"""Measurements in long format: one row for each number."""

from collections.abc import Iterator

from fedrl.experiment.files import Array
from fedrl.experiment.legs import Record
from fedrl.experiment.plan import Leg
from fedrl.experiment.settings import Experiment

COLUMNS = (
    "seed",
    "round",
    "updates",
    "agent",
    "environment",
    "theta",
    "split",
    "metric",
    "value",
)
AVERAGE = "average"
TRAIN, HELD_OUT, LEARNING = "train", "held-out", "learning"
RETURN, DISCOUNTED = "return", "discounted_return"
LOSS, EXPLORED, UPDATES = "loss", "explored_return", "updates"


def header() -> str:
    """The first line of a file of metrics."""
    return ",".join(COLUMNS) + "\n"


def rows(experiment: Experiment, leg: Leg, record: Record, thetas: Array) -> str:
    """The record of a leg as lines of CSV, in a fixed order."""
    places = [(TRAIN, i) for i in range(experiment.agents)]
    places += [(HELD_OUT, j) for j in range(experiment.held_out)]
    lines: list[str] = []
    for seed in range(experiment.seeds):
        names = [" ".join(f"{x:.9g}" for x in theta) for theta in thetas[seed]]
        start = f"{seed},{leg.communications},{leg.trained}"
        for model in range(record.returns.undiscounted.shape[1]):
            agent = AVERAGE if model == 0 else str(model - 1)
            for metric, values in (
                (RETURN, record.returns.undiscounted[seed, model]),
                (DISCOUNTED, record.returns.discounted[seed, model]),
            ):
                lines += [
                    f"{start},{agent},{index},{theta},{split},{metric},{value:.9g}"
                    for (split, index), theta, value in zip(
                        places, names, values.tolist(), strict=True
                    )
                ]
        for agent_index, metric, value in _learning(experiment, record, seed):
            lines.append(
                f"{start},{agent_index},{agent_index},{names[agent_index]},{LEARNING},{metric},"
                f"{value:.9g}"
            )
    return "\n".join(lines) + "\n"


def _learning(
    experiment: Experiment, record: Record, seed: int
) -> Iterator[tuple[int, str, float]]:
    """Means over what each agent met since the record before; nothing where it met nothing."""
    seen = record.seen
    for agent in range(seen.loss.shape[1]):
        if experiment.unit == "episodes":  # otherwise all agents have as many, and all know
            yield agent, UPDATES, float(seen.updates[seed, agent])
        for metric, total, count in (
            (LOSS, seen.loss, seen.updates),
            (EXPLORED, seen.collected, seen.episodes),
        ):
            if count[seed, agent]:
                yield agent, metric, float(total[seed, agent]) / int(count[seed, agent])


def headline(record: Record, experiment: Experiment) -> str:
    """Mean returns of the averaged model, for a line of progress."""
    returns = record.returns.undiscounted[:, 0]
    train, held_out = returns[:, : experiment.agents], returns[:, experiment.agents :]
    return f"return {train.mean():.1f} in training, {held_out.mean():.1f} held out"
