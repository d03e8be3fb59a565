"""What a run does one after the other: stretches of training, evaluations between some of them.

A stretch ends where a run can be interrupted, tells how far it is, and may save its state. Where
stretches begin and end changes nothing else.
"""

from collections.abc import Iterator
from itertools import pairwise, product
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
            yield Leg(1, length, trained, 0, communicates=False)
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

    def communications(rounds: int) -> int:
        return leg.communications - leg.rounds + rounds if communicates else 0

    if longest < leg.E:
        pieces = -(-leg.E // longest)
        cuts = [leg.E * i // pieces for i in range(pieces + 1)]
        for rounds, (begin, end) in product(range(leg.rounds), pairwise(cuts)):
            last = end == leg.E
            yield Leg(
                rounds=1,
                E=end - begin,
                trained=before + rounds * leg.E + end,
                communications=communications(rounds + last),
                communicates=last and communicates,
                evaluates=last and rounds == leg.rounds - 1,
            )
        return
    at_once, left = longest // leg.E if leg.E else 1, leg.rounds
    while left > at_once:
        left -= at_once
        done = leg.rounds - left
        yield leg._replace(
            rounds=at_once,
            trained=before + done * leg.E,
            communications=communications(done),
            evaluates=False,
        )
    yield leg._replace(rounds=left)


def stretch(experiment: Experiment) -> int:
    """Units that one seed works on for a few seconds."""
    family, learner = experiment.family, experiment.learner
    of_unit = weights(experiment) * learner.samples + STEP * learner.update_every
    if experiment.unit == "episodes":
        return max(int(STRETCH / (of_unit * family.time_limit * experiment.agents)), 1)
    return max(int(STRETCH / (of_unit * experiment.agents)), SHORTEST)
