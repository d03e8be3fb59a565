"""The states of all seeds of an experiment on one device, and the compiled programs that move them.

How seeds and agents are divided among calls is a `Layout`, and changes no result.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from fedrl import launches
from fedrl.devices import worker_devices
from fedrl.engine import programs
from fedrl.engine.client import Played, concatenate, with_own
from fedrl.engine.divergence import Diverged
from fedrl.engine.footprint import most_agents
from fedrl.engine.layout import launch_bound, layout
from fedrl.engine.local_engine import LocalEngine
from fedrl.engine.plan import Leg
from fedrl.engine.programs import (
    Record,
    Start,
    drawn_thetas,
    one_by_one,
    side_by_side,
    spread,
)
from fedrl.engine.state import Federation
from fedrl.experiment.settings import Experiment
from fedrl.files import Array
from fedrl.learners.dqn import DQN
from fedrl.trees import fits

Done = Callable[[float], None]
Result = TypeVar("Result")


class Replicates:
    """Seeds in groups, and the agents of each group in waves that take turns."""

    def __init__(
        self,
        experiment: Experiment,
        vectorised: bool | None = None,
        wave: int | None = None,
        start: Start | None = None,
    ) -> None:
        self._experiment, self._start = experiment, start
        self._engine = engine = LocalEngine(experiment)
        self._devices = worker_devices()
        cpu = self._devices[0].platform == "cpu"
        vectorised = not cpu if vectorised is None else vectorised
        self.layout = layout(
            experiment,
            vectorised=vectorised,
            workers=len(self._devices),
            wave=wave,
            most_agents=None if cpu else most_agents(experiment),
        )
        """How the work is divided."""
        seeds = np.arange(experiment.seeds, dtype=np.int32)
        agents = np.arange(experiment.agents, dtype=np.int32)
        self._groups = np.array_split(seeds, self.layout.groups)
        self._waves = np.array_split(agents, self.layout.waves)
        self._states: list[list[Any]] = []
        self._latest: dict[int, Any] = {}
        self._compiled: set[Any] = set()
        self._known: dict[tuple[int, int], tuple[Any, Any, Any]] = {}

        lockstep = experiment.lockstep
        # One seed after the other in the cache of a core; all at once on an accelerator.
        over = partial(side_by_side, lockstep=lockstep) if vectorised else one_by_one
        # Tried for DQN alone; units of robots, for one, take too long to compile several times.
        dqn = isinstance(experiment.learner, DQN)
        few = dqn and not cpu and launch_bound(experiment, len(self._groups))
        options = launches.options(self._devices[0].platform, graphs=dqn)

        def compiled(program: Callable[..., Any], of_seeds: int, **how: Any) -> Any:
            program = spread(over(partial(program, engine)), of_seeds)
            form = launches.with_few_launches()(program) if few else program
            return jax.jit(form, compiler_options=options, **how)

        given = 0 if start else None
        init = partial(programs.init, engine)
        self._init = jax.jit(jax.vmap(init, in_axes=(0, 0, None, given)))
        self._train = compiled(programs.train, 3, donate_argnums=0, static_argnames="communicates")
        self._work = compiled(programs.work, 4, donate_argnums=0)
        self._receive = compiled(programs.receive, 4, donate_argnums=0)
        self._evaluate = compiled(LocalEngine.evaluate, 4)
        self._serve = jax.jit(jax.vmap(partial(programs.serve, engine)))
        self._shown = jax.jit(jax.vmap(engine.shown))
        self.thetas: Array = drawn_thetas(experiment) if start is None else start.thetas
        """(seeds, environments, varied constants)."""

    def start(self) -> None:
        """Agents that are about to learn."""
        self._states = [
            [self._keep(self._init(*self._beginning(group, wave)), group) for wave in self._waves]
            for group in range(len(self._groups))
        ]

    def _beginning(self, group: int, agents: Array) -> tuple[Any, ...]:
        """What agents of a group of seeds begin with: numbers, environments, parameters."""
        seeds = self._groups[group]
        params = None if self._start is None else _cut(self._start.params, seeds, agents)
        theta = self.thetas[np.ix_(seeds, agents)]
        given: tuple[Any, ...] = self._put((seeds, theta, agents, params), group)
        return given

    def run(self, leg: Leg, done: Done) -> Record | None:
        """Take all seeds through a leg; `done` hears how many, group by group."""
        # The second thread of an accelerator moves one wave while another one is computed.
        threads = len(self._devices) if self.layout.resident else 2 * len(self._devices)
        pool = ThreadPoolExecutor(threads, thread_name_prefix="fedrl-leg")
        groups = range(len(self._groups))
        try:
            if self.layout.waves > 1:
                records = [self._in_waves(group, leg, done, pool) for group in groups]
            else:
                kind = (leg.communicates, leg.evaluates)
                work = partial(self._at_once, leg=leg)
                records = []
                for group, record in self._first_alone(work, groups, lambda _: kind, pool):
                    records.append(record)
                    done(len(self._groups[group]))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        return _joined(records) if leg.evaluates else None

    def _at_once(self, group: int, leg: Leg) -> Record | None:
        """A leg of a group of seeds, all agents together."""
        if leg.rounds:
            (state,) = self._states[group]
            rounds, E = np.int32(leg.rounds), np.int32(leg.E)
            self._states[group] = [
                self._train(
                    state,
                    *self._numbers(group, 0),
                    rounds,
                    E,
                    communicates=leg.communicates and self._experiment.communicates,
                )
            ]
        record = self._evaluated(group, leg) if leg.evaluates else None
        # Also without a record: who runs a leg wants to wait for it.
        jax.device_get(self._states[group][0].server.rounds)
        return record

    def _in_waves(self, group: int, leg: Leg, done: Done, pool: Executor) -> Record | None:
        """A leg of a group of seeds, one wave of agents after the other."""
        seeds, states = self._groups[group], self._states[group]
        communicates = leg.communicates and self._experiment.communicates
        share = len(seeds) / max(leg.rounds * len(self._waves), 1)
        E = np.int32(leg.E)
        waves = range(len(self._waves))

        def size(wave: int) -> Any:
            return "work", len(self._waves[wave]), server is None

        def work(wave: int) -> Any:
            seeds, theta, agents = self._numbers(group, wave)
            state = self._ready(states[wave], group)
            after, offered = self._work(state, seeds, theta, server, agents, E)
            # Who hears of progress hears of what is done, and not of what is on its way.
            jax.device_get(after.server.rounds)
            states[wave] = self._waiting(after, group)
            return offered

        def receive(wave: int) -> None:
            seeds, theta, agents = self._numbers(group, wave)
            state = self._ready(states[wave], group)
            after = self._receive(state, seeds, theta, server, agents)
            states[wave] = self._waiting(after, group)

        server: Any = None
        for _ in range(leg.rounds):
            offers = []
            for _, offer in self._first_alone(work, waves, size, pool):
                offers.append(offer)
                done(share)
            if communicates:
                before = self._ready(states[0].server, group)
                server = self._serve(offers, before, self._numbers(group, 0)[0])
        if server is not None:
            list(pool.map(receive, waves))
        if not leg.rounds:
            done(len(seeds))
        return self._evaluated(group, leg) if leg.evaluates else None

    def _evaluated(self, group: int, leg: Leg) -> Record:
        """What is known of a group of seeds now; the agents' sums start anew."""
        states = self._states[group]
        parts = [self._put(state.agents.learned.params, group) for state in states]
        params = concatenate(parts, axis=1)
        seeds = self._groups[group]
        theta, trained = self.thetas[seeds], np.int32(leg.trained)
        server = self._ready(states[0].server, group)
        played: Played = self._evaluate(params, server, *self._put((seeds, theta), group), trained)
        self._latest[group] = played.average
        seen = [state.agents.seen for state in states]
        self._states[group] = [self._afresh(state, group) for state in states]
        elapsed = states[0].elapsed
        returns, own, seen, elapsed = jax.device_get((played.returns, played.own, seen, elapsed))
        return Record(
            returns, own, _joined(seen, axis=1), None if isinstance(elapsed, tuple) else elapsed
        )

    def _first_alone(
        self,
        work: Callable[[int], Result],
        items: Iterable[int],
        kind: Callable[[int], Any],
        pool: Executor,
    ) -> Iterable[tuple[int, Result]]:
        """`work` of all items, in order; the first of a kind alone: it compiles for all."""
        waiting: list[int] = []
        for item in items:
            if kind(item) in self._compiled:
                waiting.append(item)
                continue
            yield from zip(waiting, pool.map(work, waiting), strict=True)
            waiting = []
            self._compiled.add(kind(item))
            yield item, work(item)
        yield from zip(waiting, pool.map(work, waiting), strict=True)

    def export(self) -> list[Array]:
        """Every number of every state, seeds first."""
        whole = [self._whole([jax.device_get(state) for state in g]) for g in self._states]
        return [np.asarray(leaf) for leaf in jax.tree.leaves(_joined(whole))]

    def restore(self, leaves: list[Array]) -> None:
        """Go on from what `export` gave."""
        state = jax.tree.unflatten(jax.tree.structure(self._shapes()), leaves)
        self._states = [
            [self._keep(_part(state, seeds, agents, self._own), group) for agents in self._waves]
            for group, seeds in enumerate(self._groups)
        ]

    def matches(self, leaves: list[Array]) -> bool:
        """Whether these could be what `export` gave for this experiment."""
        return fits(self._shapes(), leaves)

    def diverged(self) -> Diverged:
        """Which agents have met what is not finite."""
        found = [
            [Diverged.of(jax.device_get(state.agents.seen)) for state in states]
            for states in self._states
        ]
        diverged: Diverged = _joined([_joined(waves, axis=1) for waves in found])
        return diverged

    def models(self) -> Any:
        """Parameters of the models that are evaluated: (seeds, models, ...)."""
        found = []
        for group, states in enumerate(self._states):
            params = _joined(
                [jax.device_get(state.agents.learned.params) for state in states], axis=1
            )
            if group not in self._latest:  # restored after the last leg
                server = jax.device_get(states[0].server)
                self._latest[group] = self._shown(*self._put((params, server), group))
            average = jax.device_get(self._latest[group])
            found.append(jax.vmap(partial(with_own, experiment=self._experiment))(average, params))
        return _joined(jax.device_get(found))

    @property
    def _own(self) -> frozenset[str]:
        """The parts of a state that belong to agents, and not to all of them together."""
        own = {"agents", "rows", "underway"}
        return frozenset(own if self._experiment.lockstep else own | {"clock"})

    def _whole(self, waves: list[Federation]) -> Federation:
        """One state from those of the waves."""
        return Federation(
            **{
                name: _joined(list(parts), axis=1) if name in self._own else parts[0]
                for name, parts in zip(Federation._fields, zip(*waves, strict=True), strict=True)
            }
        )

    def _shapes(self) -> Federation:
        """All seeds and all agents, without numbers."""
        seeds, agents = np.concatenate(self._groups), np.concatenate(self._waves)
        params = None if self._start is None else self._start.params
        shapes: Federation = jax.eval_shape(
            self._init, seeds, self.thetas[:, : len(agents)], agents, params
        )
        return shapes

    def _numbers(self, group: int, wave: int) -> tuple[Any, Any, Any]:
        """Seeds, environments and agents of a wave; put on the device once."""
        if (group, wave) not in self._known:
            seeds, agents = self._groups[group], self._waves[wave]
            given = seeds, self.thetas[np.ix_(seeds, agents)], agents
            self._known[group, wave] = self._put(given, group)
        return self._known[group, wave]

    def _afresh(self, state: Federation, group: int) -> Federation:
        """Agents that have seen nothing yet."""
        seen = self._keep(jax.device_get(state.agents.seen).cleared(), group)
        return state._replace(agents=state.agents._replace(seen=seen))

    def _put(self, tree: Any, group: int) -> Any:
        """On the device of a group of seeds."""
        return jax.device_put(tree, self._place(group))

    def _keep(self, tree: Any, group: int) -> Any:
        """Where states wait for their turn: the device, or memory of the host that it can reach."""
        kind = None if self.layout.resident else "pinned_host"
        return jax.device_put(tree, self._place(group, kind))

    # What is where it should be is not put there again: that takes longer than a short round.

    def _ready(self, tree: Any, group: int) -> Any:
        """A state whose turn it is."""
        return tree if self.layout.resident else self._put(tree, group)

    def _waiting(self, tree: Any, group: int) -> Any:
        """A state that a program has returned."""
        return tree if self.layout.resident else self._keep(tree, group)

    def _place(self, group: int, kind: str | None = None) -> SingleDeviceSharding:
        device = self._devices[group % len(self._devices)]
        return SingleDeviceSharding(device, memory_kind=kind)


def _cut(tree: Any, seeds: Array, agents: Array) -> Any:
    return jax.tree.map(lambda leaf: leaf[np.ix_(seeds, agents)], tree)


def _part(state: Federation, seeds: Array, agents: Array, own: frozenset[str]) -> Federation:
    """What some seeds and agents have of a state."""
    return Federation(
        **{
            name: _cut(part, seeds, agents)
            if name in own
            else jax.tree.map(lambda leaf: leaf[seeds], part)
            for name, part in zip(Federation._fields, state, strict=True)
        }
    )


def _joined(trees: list[Any], axis: int = 0) -> Any:
    if len(trees) == 1:
        return trees[0]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis), *trees)
