"""The compiled programs of an experiment: a leg of training, then an evaluation, for many seeds.

On a CPU every seed is a call of its own, spread over the cores; its arithmetic does not depend on
how many others there are. On an accelerator the seeds of a device are one vectorised call.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.evaluate import Returns, greedy_returns
from fedrl.experiment.files import Array
from fedrl.experiment.settings import Experiment
from fedrl.federation.agent import Seen, nothing_seen, stacked
from fedrl.federation.blocks import worker_devices
from fedrl.federation.local_engine import Federation
from fedrl.keys import Purpose, replicate_key


class Record(NamedTuple):
    """What is known after a leg, for each seed."""

    returns: Returns
    """(models, environments): training environments first, then the held-out ones. The average is
    model 0; without communication the agents' own models follow."""
    seen: Seen
    """What each agent met while learning since the record before."""


class Leg(NamedTuple):
    """A stretch of training between two evaluations."""

    rounds: int
    E: int
    trained: int
    """How far the training is afterwards, in the experiment's unit."""
    communications: int


def plan(experiment: Experiment) -> Iterator[Leg]:
    """The legs of an experiment. The first one is empty: it evaluates the untrained model."""
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


@dataclass(frozen=True)
class Programs:
    """The functions of one replicate that are compiled."""

    experiment: Experiment

    def thetas(self, replicate: jax.Array) -> jax.Array:
        """Training environments, then held-out ones; the first few do not depend on how many."""
        experiment = self.experiment
        _, training = experiment.engine.environments(replicate)
        key = replicate_key(experiment.seed, replicate, Purpose.HELD_OUT)
        return jnp.concatenate([training, experiment.family.sample(key, experiment.held_out)])

    def models(self, federation: Federation) -> Any:
        """The average, and without communication also each agent's own; models first."""
        experiment = self.experiment
        params = federation.agents.learned.params
        average = jax.tree.map(lambda leaf: leaf[None], experiment.aggregator.apply(params))
        if experiment.communicates:
            return average
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), average, params)

    def leg(
        self,
        federation: Federation,
        replicate: jax.Array,
        rounds: jax.Array,
        E: jax.Array,
        trained: jax.Array,
    ) -> tuple[Federation, Record, Any]:
        """Train, evaluate, and start the agents' sums anew; also the models that were evaluated."""
        experiment = self.experiment
        federation = experiment.engine.advance(federation, replicate, rounds, E)
        key = replicate_key(experiment.seed, replicate, Purpose.EVALUATION)
        models = self.models(federation)
        returns = greedy_returns(
            experiment.family,
            experiment.learner.policy,
            models,
            self.thetas(replicate),
            jax.random.fold_in(key, trained),
            episodes=experiment.evaluation.episodes,
            gamma=experiment.learner.gamma,
        )
        agents = federation.agents
        afresh = agents._replace(seen=stacked(nothing_seen(), experiment.agents))
        return federation._replace(agents=afresh), Record(returns, agents.seen), models

    def one_by_one(
        self, state: Federation, seeds: jax.Array, *leg: jax.Array
    ) -> tuple[Federation, Record, Any]:
        """`leg` for one seed after the other."""
        result: tuple[Federation, Record, Any] = jax.lax.map(
            lambda one: self.leg(*one, *leg), (state, seeds)
        )
        return result

    def side_by_side(
        self, state: Federation, seeds: jax.Array, *leg: jax.Array
    ) -> tuple[Federation, Record, Any]:
        """`leg` for all seeds at once."""
        if not self.experiment.engine.lockstep:
            return jax.vmap(lambda one, seed: self.leg(one, seed, *leg))(state, seeds)
        # All seeds are equally far: with one clock for all, memories are written in place.
        clock = jax.tree.map(lambda leaf: leaf[0], state.clock)
        return jax.vmap(
            lambda agents, rows, seed: self.leg(Federation(agents, rows, clock), seed, *leg)
        )(state.agents, state.rows, seeds)


class Replicates:
    """The states of all seeds of an experiment, in groups that run side by side."""

    def __init__(self, experiment: Experiment, vectorised: bool | None = None) -> None:
        programs = Programs(experiment)
        self._devices = worker_devices()
        if vectorised is None:
            vectorised = self._devices[0].platform != "cpu"
        seeds = np.arange(experiment.seeds, dtype=np.int32)
        groups = min(len(self._devices), len(seeds)) if vectorised else len(seeds)
        self._groups = np.array_split(seeds, groups)
        self._states: list[Any] = []
        self._latest: dict[int, Any] = {}
        self._compiled = False
        # One seed after the other in the cache of a core; all at once on an accelerator.
        over_seeds = programs.side_by_side if vectorised else programs.one_by_one
        self._init = jax.jit(jax.vmap(experiment.engine.init))
        self._leg = jax.jit(over_seeds, donate_argnums=0)
        self._models = jax.jit(jax.vmap(programs.models))
        self.thetas: Array = np.asarray(jax.jit(jax.vmap(programs.thetas))(seeds))
        """(seeds, environments, varied constants)."""

    def start(self) -> None:
        """Untrained agents."""
        self._states = [self._init(self._put(seeds, i)) for i, seeds in enumerate(self._groups)]

    def run(self, leg: Leg, done: Callable[[int], None]) -> Record:
        """Take all seeds through a leg; `done` hears how many, group by group."""
        numbers = tuple(np.int32(x) for x in (leg.rounds, leg.E, leg.trained))

        def work(group: int) -> Record:
            seeds = self._put(self._groups[group], group)
            self._states[group], record, self._latest[group] = self._leg(
                self._states[group], seeds, *numbers
            )
            host: Record = jax.device_get(record)
            return host

        records: list[Record] = []
        # The first one alone: it compiles for all.
        alone = 0 if self._compiled else 1
        self._compiled = True
        pool = ThreadPoolExecutor(len(self._devices), thread_name_prefix="fedrl-leg")
        try:
            for batch in (range(alone), range(alone, len(self._groups))):
                for group, record in zip(batch, pool.map(work, batch), strict=True):
                    records.append(record)
                    done(len(self._groups[group]))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        joined: Record = _joined(records)
        return joined

    def export(self) -> list[Array]:
        """Every number of every state, seeds first."""
        state = _joined([jax.device_get(state) for state in self._states])
        return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]

    def restore(self, leaves: list[Array]) -> None:
        """Go on from what `export` gave."""
        shapes = jax.eval_shape(self._init, self._groups[0])
        state = jax.tree.unflatten(jax.tree.structure(shapes), leaves)
        self._states = [
            jax.tree.map(lambda leaf, s=seeds, i=i: self._put(leaf[s], i), state)
            for i, seeds in enumerate(self._groups)
        ]

    def matches(self, leaves: list[Array]) -> bool:
        """Whether these could be what `export` gave for this experiment."""
        shapes = jax.tree.leaves(jax.eval_shape(self._init, self._groups[0]))
        seeds = sum(len(group) for group in self._groups)
        wanted = [((seeds, *shape.shape[1:]), shape.dtype) for shape in shapes]
        return wanted == [(leaf.shape, leaf.dtype) for leaf in leaves]

    def models(self) -> Any:
        """Parameters of the models that are evaluated: (seeds, models, ...)."""
        if not self._latest:  # restored after the last leg
            self._latest = {i: self._models(state) for i, state in enumerate(self._states)}
        return _joined([jax.device_get(self._latest[i]) for i in range(len(self._groups))])

    def _put(self, leaf: Any, group: int) -> Any:
        return jax.device_put(leaf, self._devices[group % len(self._devices)])


def _joined(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *trees)
