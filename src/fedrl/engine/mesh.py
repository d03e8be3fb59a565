"""The states of all seeds of an experiment on many devices, also of many hosts.

The devices are a mesh: seeds along one axis, the agents of a seed along the other. Agents work
where they are; in a communication each device sends what the aggregator needs of its agents, in
one collective, and that is all that ever passes between devices while agents learn.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fedrl.counting import count
from fedrl.engine.agent import Agent
from fedrl.engine.all_seeds import Training
from fedrl.engine.local_engine import LocalEngine
from fedrl.engine.plan import Leg
from fedrl.engine.programs import Record, Start, one_by_one, side_by_side
from fedrl.engine.state import Federation
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.strategies.strategy import ServerState

SEEDS, AGENTS = "seeds", "agents"

# JAX's own annotations do not cover it.
Spec: Any = PartitionSpec
OF_SEEDS, OF_AGENTS, EVERYWHERE = Spec(SEEDS), Spec(SEEDS, AGENTS), Spec()


class Pieces(NamedTuple):
    """What an evaluation gives, as it lies on the mesh."""

    training: Any
    held_out: Any
    own: Any
    average: Any


def mesh_shape(experiment: Experiment, devices: int, hosts: int = 1) -> tuple[int, int]:
    """(along seeds, along agents): as many devices as can have equally much to do.

    Seeds first: they never have to communicate.
    """
    seeds = _divisors(experiment.seeds)
    # Who is drawn for a round may be anywhere, so all agents of a seed must be in one place.
    apart = experiment.divisible
    agents = _divisors(experiment.agents) if apart else [1]
    shapes = [(s, a) for s in seeds for a in agents if s * a <= devices and s * a % hosts == 0]
    if not shapes:
        raise FedrlError(
            f"{count(experiment.seeds, 'seeds')} of {count(experiment.agents, 'agents')} cannot be "
            f"divided equally among {hosts} hosts: choose numbers of seeds or agents that {hosts} "
            "divides"
        )
    return max(shapes, key=lambda shape: (shape[0] * shape[1], shape[0]))


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def mesh_of(experiment: Experiment, devices: Sequence[jax.Device]) -> Mesh:
    """The devices that are used: equally many of every host."""
    hosts = sorted({device.process_index for device in devices})
    shape = mesh_shape(experiment, len(devices), len(hosts))
    each = shape[0] * shape[1] // len(hosts)
    used = [d for host in hosts for d in [d for d in devices if d.process_index == host][:each]]
    return Mesh(np.array(used).reshape(shape), (SEEDS, AGENTS))


class Sharded(Training):
    """Seeds and agents on a mesh of devices."""

    def __init__(self, experiment: Experiment, start: Start | None = None) -> None:
        super().__init__(experiment, start)
        self.mesh = mesh_of(experiment, jax.devices())
        """Seeds along one axis, agents along the other."""
        apart = self.mesh.shape[AGENTS] > 1
        engine = self._engine = LocalEngine(experiment, axis=AGENTS if apart else None)
        lockstep = experiment.lockstep
        cpu = self.mesh.devices.flat[0].platform == "cpu"
        self._over = one_by_one if cpu else partial(side_by_side, lockstep=lockstep)
        clock = OF_SEEDS if lockstep else OF_AGENTS
        specs: Any = (OF_AGENTS, OF_AGENTS, clock, OF_SEEDS, OF_SEEDS, OF_AGENTS)
        self._specs = Federation(*specs)

        def compiled(program: Any, inputs: Any, outputs: Any, **how: Any) -> Any:
            over = {"mesh": self.mesh, "in_specs": inputs, "out_specs": outputs}
            return jax.jit(jax.shard_map(program, check_vma=False, **over), **how)

        self._init = compiled(self._begin, (OF_SEEDS, OF_AGENTS, OF_AGENTS), self._specs)
        self._train = {
            communicates: compiled(
                partial(self._advance, communicates=communicates),
                (self._specs, OF_SEEDS, OF_AGENTS, EVERYWHERE, EVERYWHERE),
                self._specs,
                donate_argnums=0,
            )
            for communicates in (True, False)
        }
        self._evaluate = compiled(
            self._look,
            (OF_AGENTS, OF_SEEDS, OF_SEEDS, OF_AGENTS, OF_SEEDS, EVERYWHERE),
            Pieces(Spec(SEEDS, None, AGENTS), OF_SEEDS, OF_AGENTS, OF_SEEDS),
        )
        self._shown = compiled(jax.vmap(engine.shown), (OF_AGENTS, OF_SEEDS), OF_SEEDS)
        self._state: Any = None
        self._latest: Any = None
        n = experiment.agents
        self._seeds = self._put(np.arange(experiment.seeds, dtype=np.int32), OF_SEEDS)
        self._training = self._put(self.thetas[:, :n], OF_AGENTS)
        self._held_out = self._put(self.thetas[:, n:], OF_SEEDS)

    # What a device does with its seeds and agents.

    def _here(self) -> jax.Array:
        """The numbers of a device's agents."""
        count = self._experiment.agents // self.mesh.shape[AGENTS]
        numbers: jax.Array = jax.lax.axis_index(AGENTS) * count + jnp.arange(count)
        return numbers

    def _begin(self, seeds: jax.Array, theta: jax.Array, params: Any) -> Federation:
        init = jax.vmap(self._engine.init, in_axes=(0, 0, None, 0))
        begun: Federation = init(seeds, theta, self._here(), params)
        return begun

    def _advance(
        self,
        state: Federation,
        seeds: jax.Array,
        theta: jax.Array,
        rounds: jax.Array,
        E: jax.Array,
        *,
        communicates: bool,
    ) -> Any:
        train = self._over(self._engine.train, 3)
        return train(state, seeds, theta, self._here(), rounds, E, communicates=communicates)

    def _look(
        self,
        params: Any,
        server: ServerState,
        seeds: jax.Array,
        theta: jax.Array,
        held_out: jax.Array,
        trained: jax.Array,
    ) -> Pieces:
        here = self._here()
        environments = jnp.concatenate([theta, held_out], 1)
        evaluate = self._over(self._engine.evaluate, 4)
        played = evaluate(params, server, seeds, environments, trained, here[0])
        mine = here.size
        training = jax.tree.map(lambda leaf: leaf[..., :mine], played.returns)
        others = jax.tree.map(lambda leaf: leaf[..., mine:], played.returns)
        return Pieces(training, others, played.own, played.average)

    # What everybody does together.

    def start(self) -> None:
        params = self._put(self._first_params, OF_AGENTS)
        self._state = self._init(self._seeds, self._training, params)

    def run(self, leg: Leg, done: Callable[[float], None]) -> Record | None:
        if leg.rounds:
            given = self._state, self._seeds, self._training
            self._state = self._train[leg.communicates](
                *given, np.int32(leg.rounds), np.int32(leg.E)
            )
        record = self._evaluated(leg) if leg.evaluates else None
        jax.block_until_ready(self._state)  # type: ignore[no-untyped-call]
        done(self._experiment.seeds)
        return record

    def _evaluated(self, leg: Leg) -> Record:
        agents = self._state.agents
        environments = self._seeds, self._training, self._held_out
        pieces: Pieces = self._evaluate(
            agents.learned.params, self._state.server, *environments, np.int32(leg.trained)
        )
        self._latest = pieces.average
        afresh = agents._replace(seen=agents.seen.cleared())
        self._state = self._state._replace(agents=afresh)
        found = (*pieces[:3], agents.seen, self._state.elapsed)
        training, held_out, own, seen, elapsed = self._fetched(found)
        returns = training and jax.tree.map(
            lambda *parts: np.concatenate(parts, -1), training, held_out
        )
        return Record(returns, own, seen, elapsed if len(elapsed) else None)

    def _shapes(self) -> Federation:
        shapes: Federation = jax.eval_shape(
            self._init, self._seeds, self._training, self._first_params
        )
        return shapes

    def _whole(self) -> Federation:
        whole: Federation = self._fetched(self._state)
        return whole

    def _spread(self, state: Federation) -> None:
        self._state = Federation(*map(self._put, state, self._specs))

    def _of_agents(self, part: Callable[[Agent], Any]) -> Any:
        return self._fetched(part(self._state.agents))

    def _averages(self, params: Any) -> Any:
        if self._latest is None:  # restored after the last leg
            params = self._state.agents.learned.params
            self._latest = self._shown(params, self._state.server)
        return self._fetched(self._latest)

    def _put(self, tree: Any, spec: PartitionSpec) -> Any:
        """Every device gets its part."""
        sharding = NamedSharding(self.mesh, spec)

        def put(array: Any) -> jax.Array:
            array = np.asarray(array)
            return jax.make_array_from_callback(array.shape, sharding, lambda part: array[part])

        return jax.tree.map(put, tree)

    def _fetched(self, tree: Any) -> Any:
        """All of it, on every host."""
        if jax.process_count() == 1:
            return jax.device_get(tree)
        return multihost_utils.process_allgather(tree, tiled=True)
