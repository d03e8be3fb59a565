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
from fedrl.engine.agent import Agent
from fedrl.engine.all_seeds import Training
from fedrl.engine.client import Played, concatenate
from fedrl.engine.footprint import most_agents
from fedrl.engine.layout import launch_bound, layout
from fedrl.engine.local_engine import LocalEngine
from fedrl.engine.plan import Leg
from fedrl.engine.programs import Record, Start, one_by_one, side_by_side
from fedrl.engine.state import Federation
from fedrl.experiment.settings import Experiment
from fedrl.files import Array
from fedrl.learners.dqn import DQN

Done = Callable[[float], None]
Result = TypeVar("Result")


class Replicates(Training):
    """Seeds in groups, and the agents of each group in waves that take turns."""

    def __init__(
        self,
        experiment: Experiment,
        vectorised: bool | None = None,
        wave: int | None = None,
        start: Start | None = None,
    ) -> None:
        super().__init__(experiment, start)
        engine = LocalEngine(experiment)
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
        # Seeds, environments and agents of each wave.
        self._numbers = [
            [
                self._put((seeds, self.thetas[np.ix_(seeds, agents)], agents), group)
                for agents in self._waves
            ]
            for group, seeds in enumerate(self._groups)
        ]
        # What of a state belongs to agents, and not to all of them together.
        own: Any = (True, True, not experiment.lockstep, False, False, True)
        self._own = Federation(*own)
        self._states: list[list[Any]] = []
        self._latest: dict[int, Any] = {}
        self._compiled: set[Any] = set()

        # One seed after the other in the cache of a core; all at once on an accelerator.
        over = partial(side_by_side, lockstep=experiment.lockstep) if vectorised else one_by_one
        # Tried for DQN alone; units of robots, for one, take too long to compile several times.
        dqn = isinstance(experiment.learner, DQN)
        few = dqn and not cpu and launch_bound(experiment, len(self._groups))
        options = launches.options(self._devices[0].platform, graphs=dqn)

        def compiled(program: Callable[..., Any], of_seeds: int, **how: Any) -> Any:
            program = over(program, of_seeds)
            form = launches.with_few_launches()(program) if few else program
            return jax.jit(form, compiler_options=options, **how)

        self._init = jax.jit(jax.vmap(engine.init, in_axes=(0, 0, None, 0 if start else None)))
        self._train = compiled(engine.train, 3, donate_argnums=0, static_argnames="communicates")
        self._turn = compiled(engine.turn, 4, donate_argnums=0)
        self._evaluate = compiled(engine.evaluate, 4)
        self._serve = jax.jit(jax.vmap(engine.serve_waves))
        self._shown = jax.jit(jax.vmap(engine.shown))

    def start(self) -> None:
        self._states = [
            [self._begun(group, wave) for wave in range(len(self._waves))]
            for group in range(len(self._groups))
        ]

    def _begun(self, group: int, wave: int) -> Any:
        """A wave that is about to learn."""
        params = _cut(self._first_params, self._groups[group], self._waves[wave])
        return self._keep(self._init(*self._numbers[group][wave], self._put(params, group)), group)

    def run(self, leg: Leg, done: Done) -> Record | None:
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
        states = self._states[group]
        if leg.rounds:
            states[0] = self._train(
                *(states[0], *self._numbers[group][0], np.int32(leg.rounds), np.int32(leg.E)),
                communicates=leg.communicates,
            )
        record = self._evaluated(group, leg) if leg.evaluates else None
        # Also without a record: who runs a leg wants to wait for it.
        jax.device_get(self._states[group][0].server.rounds)
        return record

    def _in_waves(self, group: int, leg: Leg, done: Done, pool: Executor) -> Record | None:
        """A leg of a group of seeds, one wave of agents after the other."""
        seeds, states = self._groups[group], self._states[group]
        share = len(seeds) / max(leg.rounds * len(self._waves), 1)
        waves = range(len(self._waves))
        server: Any = None

        def kind(wave: int) -> Any:
            return len(self._waves[wave]), server is None

        def turn(wave: int, E: Any = None) -> Any:
            """What a wave offers after it has received what was sent, and has worked if at all."""
            seeds, theta, agents = self._numbers[group][wave]
            state = self._ready(states[wave], group)
            after, offered = self._turn(state, seeds, theta, server, agents, E)
            # Who hears of progress hears of what is done, and not of what is on its way.
            jax.device_get(after.server.rounds)
            states[wave] = self._waiting(after, group)
            return offered

        work = partial(turn, E=np.int32(leg.E))
        for _ in range(leg.rounds):
            offers = []
            for _, offer in self._first_alone(work, waves, kind, pool):
                offers.append(offer)
                done(share)
            if leg.communicates and self._experiment.communicates:
                before = self._ready(states[0].server, group)
                server = self._serve(offers, before, self._numbers[group][0][0])
        if server is not None:
            list(pool.map(turn, waves))
        if not leg.rounds:
            done(len(seeds))
        return self._evaluated(group, leg) if leg.evaluates else None

    def _evaluated(self, group: int, leg: Leg) -> Record:
        """What is known of a group of seeds now; the agents' sums start anew."""
        states = self._states[group]
        params = concatenate(
            [self._put(state.agents.learned.params, group) for state in states], axis=1
        )
        server, seeds = self._ready(states[0].server, group), self._groups[group]
        environments = self._put((seeds, self.thetas[seeds]), group)
        played: Played = self._evaluate(params, server, *environments, np.int32(leg.trained))
        self._latest[group] = played.average
        seen = [state.agents.seen for state in states]
        self._states[group] = [
            state._replace(
                agents=state.agents._replace(
                    seen=self._keep(jax.device_get(state.agents.seen).cleared(), group)
                )
            )
            for state in states
        ]
        elapsed = states[0].elapsed
        returns, own, seen, elapsed = jax.device_get((played.returns, played.own, seen, elapsed))
        return Record(returns, own, _joined(seen, axis=1), elapsed if len(elapsed) else None)

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

    def _shapes(self) -> Federation:
        seeds, agents = np.concatenate(self._groups), np.concatenate(self._waves)
        theta = self.thetas[:, : len(agents)]
        shapes: Federation = jax.eval_shape(self._init, seeds, theta, agents, self._first_params)
        return shapes

    def _whole(self) -> Federation:
        def of_group(states: list[Any]) -> Federation:
            waves = [jax.device_get(state) for state in states]
            return Federation(
                *(
                    _joined(parts, axis=1) if own else parts[0]
                    for own, *parts in zip(self._own, *waves, strict=True)
                )
            )

        whole: Federation = _joined([of_group(states) for states in self._states])
        return whole

    def _spread(self, state: Federation) -> None:
        def part(seeds: Array, agents: Array) -> Federation:
            parts = zip(self._own, state, strict=True)
            return Federation(*(_cut(x, seeds, agents if own else None) for own, x in parts))

        self._states = [
            [self._keep(part(seeds, agents), group) for agents in self._waves]
            for group, seeds in enumerate(self._groups)
        ]

    def _of_agents(self, part: Callable[[Agent], Any]) -> Any:
        def of_group(states: list[Any]) -> Any:
            return _joined([jax.device_get(part(state.agents)) for state in states], axis=1)

        return _joined([of_group(states) for states in self._states])

    def _averages(self, params: Any) -> Any:
        for group, seeds in enumerate(self._groups):
            if group not in self._latest:  # restored after the last leg
                server = jax.device_get(self._states[group][0].server)
                given = self._put((_cut(params, seeds), server), group)
                self._latest[group] = self._shown(*given)
        return _joined([jax.device_get(self._latest[group]) for group in range(len(self._groups))])

    def _put(self, tree: Any, group: int, memory: str | None = None) -> Any:
        """On the device of a group of seeds, or in memory of the host that it can reach."""
        device = self._devices[group % len(self._devices)]
        return jax.device_put(tree, SingleDeviceSharding(device, memory_kind=memory))

    def _keep(self, tree: Any, group: int) -> Any:
        """Where states wait for their turn."""
        return self._put(tree, group, None if self.layout.resident else "pinned_host")

    # What is where it should be is not put there again: that takes longer than a short round.

    def _ready(self, tree: Any, group: int) -> Any:
        """A state whose turn it is."""
        return tree if self.layout.resident else self._put(tree, group)

    def _waiting(self, tree: Any, group: int) -> Any:
        """A state that a program has returned."""
        return tree if self.layout.resident else self._keep(tree, group)


def _cut(tree: Any, seeds: Array, agents: Array | None = None) -> Any:
    """What some seeds, and some agents of them, have of a tree."""
    which = seeds if agents is None else np.ix_(seeds, agents)
    return jax.tree.map(lambda leaf: leaf[which], tree)


def _joined(trees: list[Any], axis: int = 0) -> Any:
    if len(trees) == 1:
        return trees[0]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis), *trees)
