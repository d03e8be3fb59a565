"""The compiled programs of an experiment, for many seeds: a leg of training, an evaluation.

On a CPU every seed is a call of its own, spread over the cores; its arithmetic does not depend on
how many others there are. On an accelerator the seeds of a device are one vectorised call.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.evaluate import Returns, greedy_returns
from fedrl.experiment.files import Array
from fedrl.experiment.plan import Leg
from fedrl.experiment.settings import Experiment
from fedrl.federation.agent import Seen, nothing_seen, stacked
from fedrl.federation.aggregate import mean
from fedrl.federation.blocks import worker_devices
from fedrl.federation.local_engine import Environments, Federation
from fedrl.keys import Purpose, replicate_key


class Record(NamedTuple):
    """What is known after a leg, for each seed."""

    returns: Returns | None
    """(models, environments): training environments first, then the held-out ones. The average is
    model 0; without communication the agents' own models follow. None where only each agent's own
    environment counts."""
    own: Returns | None
    """(agents,): each agent's own model in its own environment, where `returns` has no such."""
    seen: Seen
    """What each agent met while learning since the record before."""


class Start(NamedTuple):
    """Where agents begin that do not begin from nothing; seeds first."""

    thetas: Array
    """(seeds, agents, varied constants): their environments."""
    params: Any
    """Each leaf (seeds, agents, ...)."""


@dataclass(frozen=True)
class Programs:
    """The functions of one replicate that are compiled."""

    experiment: Experiment

    def thetas(self, replicate: jax.Array) -> jax.Array:
        """Training environments, then held-out ones; the first few do not depend on how many."""
        experiment = self.experiment
        training = experiment.engine.thetas(replicate)
        key = replicate_key(experiment.seed, replicate, Purpose.HELD_OUT)
        return jnp.concatenate([training, experiment.family.sample(key, experiment.held_out)])

    def init(self, replicate: jax.Array, theta: jax.Array, params: Any = None) -> Federation:
        """Agents that are about to learn, from `params` if there are any."""
        engine = self.experiment.engine
        if params is None:
            params = engine.first_params(replicate)
        return engine.init(params, self._environments(replicate, theta))

    def models(self, federation: Federation) -> Any:
        """The average, and where they have any also each agent's own; models first."""
        experiment = self.experiment
        params = federation.agents.learned.params
        # After a communication the shared leaves are equal, and this is the server's model. What is
        # private is averaged too, to begin with in a new environment; no agent gets it.
        average = jax.tree.map(lambda leaf: leaf[None], mean(params))
        if not experiment.has_own_models:
            return average
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), average, params)

    def shape_of_models(self) -> Any:
        """What `models` gives for one replicate, without numbers."""
        number = jnp.int32(0)
        theta = jax.eval_shape(self.thetas, number)
        return jax.eval_shape(lambda *given: self.models(self.init(*given)), number, theta)

    def _environments(self, replicate: jax.Array, theta: jax.Array) -> Environments:
        return self.experiment.engine.environments(replicate, theta[: self.experiment.agents])

    def train(
        self,
        federation: Federation,
        replicate: jax.Array,
        theta: jax.Array,
        rounds: jax.Array,
        E: jax.Array,
        *,
        communicates: bool,
    ) -> Federation:
        """Rounds of E units; `communicates` says whether each one ends with a communication."""
        engine = replace(self.experiment.engine, communicates=communicates)
        return engine.advance(federation, self._environments(replicate, theta), rounds, E)

    def evaluate(
        self, federation: Federation, replicate: jax.Array, theta: jax.Array, trained: jax.Array
    ) -> tuple[Federation, Record, Any]:
        """Evaluate, and start the agents' sums anew; also the models that were evaluated."""
        experiment = self.experiment
        n = experiment.agents
        models = self.models(federation)
        play = partial(self.play, replicate=replicate, trained=trained)
        everywhere = experiment.evaluation.where == "everywhere"
        returns = own = None
        if everywhere:
            shown = _rows(models, slice(1)) if experiment.communicates else models
            returns = play(shown, theta)
        if experiment.has_own_models and (experiment.communicates or not everywhere):
            own = play(_rows(models, slice(1, None)), theta[:n], own=True)
        agents = federation.agents
        afresh = agents._replace(seen=stacked(nothing_seen(), n))
        return federation._replace(agents=afresh), Record(returns, own, agents.seen), models

    def play(
        self,
        models: Any,
        theta: jax.Array,
        *,
        replicate: jax.Array,
        trained: jax.Array,
        own: bool = False,
        first: int | jax.Array = 0,
    ) -> Returns:
        """Greedy returns of models after so much training (see `greedy_returns`)."""
        experiment, learner = self.experiment, self.experiment.learner
        key = replicate_key(experiment.seed, replicate, Purpose.EVALUATION)
        return greedy_returns(
            experiment.family,
            learner.policy,
            models,
            theta,
            jax.random.fold_in(key, trained),
            episodes=experiment.evaluation.episodes,
            gamma=learner.gamma,
            own=own,
            first=first,
        )

    def one_by_one(self, program: Callable[..., Any]) -> Callable[..., Any]:
        """A program for one seed after the other."""

        def over_seeds(
            state: Federation, seeds: jax.Array, thetas: jax.Array, *given: Any, **fixed: Any
        ) -> Any:
            return jax.lax.map(lambda one: program(*one, *given, **fixed), (state, seeds, thetas))

        return over_seeds

    def side_by_side(self, program: Callable[..., Any]) -> Callable[..., Any]:
        """A program for all seeds at once."""

        def over_seeds(
            state: Federation, seeds: jax.Array, thetas: jax.Array, *given: Any, **fixed: Any
        ) -> Any:
            if not self.experiment.engine.lockstep:
                return jax.vmap(lambda *one: program(*one, *given, **fixed))(state, seeds, thetas)
            # All seeds are equally far: with one clock for all, memories are written in place.
            clock, communications = jax.tree.map(
                lambda leaf: leaf[0], (state.clock, state.communications)
            )
            return jax.vmap(
                lambda agents, rows, model, seed, theta: program(
                    Federation(agents, rows, clock, model, communications),
                    seed,
                    theta,
                    *given,
                    **fixed,
                )
            )(state.agents, state.rows, state.model, seeds, thetas)

        return over_seeds


class Replicates:
    """The states of all seeds of an experiment, in groups that run side by side."""

    def __init__(
        self,
        experiment: Experiment,
        vectorised: bool | None = None,
        start: Start | None = None,
    ) -> None:
        programs = Programs(experiment)
        self._start = start
        self._communicates = experiment.communicates
        self._devices = worker_devices()
        if vectorised is None:
            vectorised = self._devices[0].platform != "cpu"
        seeds = np.arange(experiment.seeds, dtype=np.int32)
        groups = min(len(self._devices), len(seeds)) if vectorised else len(seeds)
        self._groups = np.array_split(seeds, groups)
        self._states: list[Any] = []
        self._latest: dict[int, Any] = {}
        self._compiled: set[tuple[bool, bool]] = set()
        # One seed after the other in the cache of a core; all at once on an accelerator.
        over_seeds = programs.side_by_side if vectorised else programs.one_by_one
        self._init = jax.jit(jax.vmap(programs.init))
        self._train = jax.jit(
            over_seeds(programs.train), donate_argnums=0, static_argnames="communicates"
        )
        self._evaluate = jax.jit(over_seeds(programs.evaluate), donate_argnums=0)
        self._models = jax.jit(jax.vmap(programs.models))
        drawn = jax.jit(jax.vmap(programs.thetas))(seeds) if start is None else start.thetas
        self.thetas: Array = np.asarray(drawn)
        """(seeds, environments, varied constants)."""

    def start(self) -> None:
        """Agents that are about to learn."""
        self._states = [self._init(*self._beginning(group)) for group in range(len(self._groups))]

    def _beginning(self, group: int) -> tuple[Any, ...]:
        """What the agents of a group of seeds begin with: numbers, environments, parameters."""
        seeds = self._groups[group]
        given = () if self._start is None else (_rows(self._start.params, seeds),)
        return tuple(self._put(x, group) for x in (seeds, self.thetas[seeds], *given))

    def run(self, leg: Leg, done: Callable[[int], None]) -> Record | None:
        """Take all seeds through a leg; `done` hears how many, group by group."""
        rounds, E, trained = (np.int32(x) for x in (leg.rounds, leg.E, leg.trained))

        def work(group: int) -> Record | None:
            numbers, state = self._groups[group], self._states[group]
            seeds, thetas = self._put((numbers, self.thetas[numbers]), group)
            if leg.rounds:
                communicates = leg.communicates and self._communicates
                state = self._train(state, seeds, thetas, rounds, E, communicates=communicates)
            record: Record | None = None
            if leg.evaluates:
                state, record, self._latest[group] = self._evaluate(state, seeds, thetas, trained)
            self._states[group] = state
            # Also without a record: who runs a leg wants to wait for it.
            (host, _) = jax.device_get((record, jax.tree.leaves(state)[0]))
            result: Record | None = host
            return result

        records: list[Any] = []
        # The first one alone: it compiles for all.
        kind = (leg.communicates, leg.evaluates)
        alone = 0 if kind in self._compiled else 1
        self._compiled.add(kind)
        pool = ThreadPoolExecutor(len(self._devices), thread_name_prefix="fedrl-leg")
        try:
            for batch in (range(alone), range(alone, len(self._groups))):
                for group, record in zip(batch, pool.map(work, batch), strict=True):
                    records.append(record)
                    done(len(self._groups[group]))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        return _joined(records) if leg.evaluates else None

    def export(self) -> list[Array]:
        """Every number of every state, seeds first."""
        state = _joined([jax.device_get(state) for state in self._states])
        return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]

    def restore(self, leaves: list[Array]) -> None:
        """Go on from what `export` gave."""
        shapes = jax.eval_shape(self._init, *self._beginning(0))
        state = jax.tree.unflatten(jax.tree.structure(shapes), leaves)
        self._states = [
            jax.tree.map(lambda leaf, s=seeds, i=i: self._put(leaf[s], i), state)
            for i, seeds in enumerate(self._groups)
        ]

    def matches(self, leaves: list[Array]) -> bool:
        """Whether these could be what `export` gave for this experiment."""
        shapes = jax.tree.leaves(jax.eval_shape(self._init, *self._beginning(0)))
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


def _rows(tree: Any, rows: Any) -> Any:
    """Some entries along the first axis of every leaf."""
    return jax.tree.map(lambda leaf: leaf[rows], tree)


def _joined(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *trees)
