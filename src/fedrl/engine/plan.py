"""What a run does one after the other: stretches of training, evaluations between some of them.

A stretch ends where a run can be interrupted, tells how far it is, and may save its state. Where
stretches begin and end changes nothing else.
"""

from collections.abc import Iterator
from typing import NamedTuple

from fedrl.engine.layout import weights
from fedrl.engine.local_work import BLOCK
from fedrl.experiment.settings import Experiment

# Weights of a network times batch times agents times units, in a stretch of one seed: some seconds
# on a core.
STRETCH = 1e10
# What an environment step on the host adds, in weights times batch.
STEP = 4e5
# Units in a stretch, however many agents there are: random numbers are drawn for blocks of units,
# and shorter ones would draw some for nothing.
SHORTEST = BLOCK


class Leg(NamedTuple):
    """A stretch of training, and perhaps an evaluation."""

    rounds: int
    E: int
    trained: int
    """How far the training is afterwards, in the experiment's unit."""
    communications: int
    communicates: bool = True
    """Whether each of its rounds ends with a communication."""
    evaluates: bool = True


def plan(experiment: Experiment) -> Iterator[Leg]:
    """The legs of an experiment. The first one is empty: it evaluates the untrained model."""
    longest = stretch(experiment)
    if experiment.learner.trains == "nothing":
        yield from (leg._replace(rounds=0, E=0) for leg in _evaluations(experiment))
        return
    for leg in _evaluations(experiment):
        yield from _split(leg, longest, experiment.communicates)


def _evaluations(experiment: Experiment) -> Iterator[Leg]:
    """Legs from one evaluation to the next."""
    yield Leg(0, 0, 0, 0)
    trained = rounds = 0
    every, total = experiment.evaluation.every, experiment.updates
    if not experiment.communicates:
        while trained < total:
            length = min(every, total - trained)
            trained += length
            yield Leg(1, length, trained, 0)
        return
    E = int(experiment.E)
    while total - trained >= E:
        # To the first communication at or after the next multiple of `every`.
        goal = min((trained // every + 1) * every, total)
        count = min(-(-(goal - trained) // E), (total - trained) // E)
        trained, rounds = trained + count * E, rounds + count
        yield Leg(count, E, trained, rounds)
    if trained < total:
        yield Leg(1, total - trained, total, rounds + 1)


def _split(leg: Leg, longest: int, communicates: bool) -> Iterator[Leg]:
    """The same in legs of at most `longest` units; an experiment may never communicate."""
    before = leg.trained - leg.rounds * leg.E
    rounds_before = leg.communications - leg.rounds if communicates else 0
    if longest < leg.E:
        for number in range(leg.rounds):
            begin = before + number * leg.E
            rounds = rounds_before + number
            pieces = -(-leg.E // longest)
            ends = [leg.E * (i + 1) // pieces for i in range(pieces)]
            for i, end in enumerate(ends):
                last = end == leg.E
                yield Leg(
                    rounds=1,
                    E=end - (ends[i - 1] if i else 0),
                    trained=begin + end,
                    communications=rounds + (last and communicates),
                    communicates=last,
                    evaluates=last and number == leg.rounds - 1,
                )
        return
    at_once = longest // leg.E if leg.E else 1
    done = 0
    while done + at_once < leg.rounds:
        done += at_once
        yield leg._replace(
            rounds=at_once,
            trained=before + done * leg.E,
            communications=rounds_before + done if communicates else 0,
            evaluates=False,
        )
    yield leg._replace(rounds=leg.rounds - done)


def stretch(experiment: Experiment) -> int:
    """Units that one seed works on for a few seconds."""
    family, learner = experiment.family, experiment.learner
    of_unit = weights(experiment) * learner.samples + STEP * learner.update_every
    if experiment.unit == "episodes":
        return max(int(STRETCH / (of_unit * family.time_limit * experiment.agents)), 1)
    return max(int(STRETCH / (of_unit * experiment.agents)), SHORTEST)
