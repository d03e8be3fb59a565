"""What a server knows of its training from round to round; a checkpoint has all of it."""

from typing import Any, NamedTuple

import jax
import numpy as np

from fedrl.files import Array
from fedrl.network.server_side import ServerSide
from fedrl.strategies.corrections import Broadcast
from fedrl.strategies.strategy import ServerState


class Underway(NamedTuple):
    """Asynchronous rounds: the instruction that each agent works on; agents first."""

    round: Array
    """Its number: that of the first round which can use the answer."""
    received: Broadcast
    """The model in it."""
    evaluate: Array
    """Whether it asks for an evaluation."""
    evaluated: Array
    """The latest round that began with an evaluation the agent was asked for; 0: none."""


class Progress(NamedTuple):
    """Where a training is."""

    server: ServerState
    counted: Array
    """The last round that used each agent's offer; 0: none yet."""
    underway: Any = ()
    """`Underway`; nothing where the server waits for all agents of a round."""


def begun(side: ServerSide) -> Progress:
    """Before the first round."""
    server, n = side.begin(), side.agents
    progress = Progress(server, np.zeros(n, np.int64))
    if not side.experiment.timing.arrivals:
        return progress
    received = jax.tree.map(lambda leaf: np.stack([leaf] * n), server.sent)
    nothing = np.zeros(n, np.int64)
    underway = Underway(nothing, received, np.zeros(n, bool), nothing)
    return assigned(progress._replace(underway=underway), side, range(n), 1)


def assigned(
    progress: Progress, side: ServerSide, agents: Any, number: int, answered: Any = ()
) -> Progress:
    """Agents are to begin with the model of round `number`, some having answered what they had."""
    which, under = np.array(list(agents), int), progress.underway
    due = max(
        (one.number for one in side.rounds if one.evaluate and one.number <= number), default=0
    )
    owed = under.evaluate & ~np.isin(np.arange(side.agents), list(answered))

    def put(all: Array, new: Any) -> Array:
        after = all.copy()
        after[which] = new
        return after

    underway = Underway(
        round=put(under.round, number),
        received=jax.tree.map(put, under.received, progress.server.sent),
        evaluate=put(under.evaluate, (owed | (under.evaluated < due))[which]),
        evaluated=put(under.evaluated, due),
    )
    return progress._replace(underway=underway)
