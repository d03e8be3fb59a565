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

from fedrl import launches
from fedrl.counting import count
from fedrl.engine import programs
from fedrl.engine.client import with_own
from fedrl.engine.divergence import Diverged
from fedrl.engine.local_engine import LocalEngine
from fedrl.engine.plan import Leg
from fedrl.engine.programs import Record, Start, drawn_thetas, one_by_one, side_by_side
from fedrl.engine.state import Federation
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.files import Array
from fedrl.strategies.strategy import ServerState
from fedrl.trees import fits

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


class Sharded:
    """Seeds and agents on a mesh of devices."""

    def __init__(
        self,
        experiment: Experiment,
        start: Start | None = None,
        devices: Sequence[jax.Device] | None = None,
    ) -> None:
        self._experiment, self._start = experiment, start
        self.mesh = mesh_of(experiment, jax.devices() if devices is None else devices)
        """Seeds along one axis, agents along the other."""
        apart = self.mesh.shape[AGENTS] > 1
        engine = self._engine = LocalEngine(experiment, axis=AGENTS if apart else None)
        lockstep = experiment.lockstep
        cpu = self.mesh.devices.flat[0].platform == "cpu"
        self._over = one_by_one if cpu else partial(side_by_side, lockstep=lockstep)
        clock = OF_SEEDS if lockstep else OF_AGENTS
        specs: Any = (OF_AGENTS, OF_AGENTS, clock, OF_SEEDS, OF_SEEDS, OF_AGENTS)
        self._specs = Federation(*specs)
        self._init = self._compiled(self._begin, (OF_SEEDS, OF_AGENTS, OF_AGENTS), self._specs)
        self._train = {
            communicates: self._compiled(
                partial(self._advance, communicates=communicates),
                (self._specs, OF_SEEDS, OF_AGENTS, EVERYWHERE, EVERYWHERE),
                self._specs,
                donated=0,
            )
            for communicates in (True, False)
        }
        over_environments = Spec(SEEDS, None, AGENTS)
        self._evaluate = self._compiled(
            self._look,
            (OF_AGENTS, OF_SEEDS, OF_SEEDS, OF_AGENTS, OF_SEEDS, EVERYWHERE),
            Pieces(over_environments, OF_SEEDS, OF_AGENTS, OF_SEEDS),
        )
        self._shown = self._compiled(jax.vmap(engine.shown), (OF_AGENTS, OF_SEEDS), OF_SEEDS)
        self._state: Any = None
        self._latest: Any = None
        self.thetas: Array = drawn_thetas(experiment) if start is None else start.thetas
        """(seeds, environments, varied constants)."""
        n = experiment.agents
        seeds = np.arange(experiment.seeds, dtype=np.int32)
        self._seeds = self._put(seeds, OF_SEEDS)
        self._training = self._put(self.thetas[:, :n], OF_AGENTS)
        self._held_out = self._put(self.thetas[:, n:], OF_SEEDS)

    def _compiled(
        self, program: Callable[..., Any], inputs: Any, outputs: Any, donated: int | None = None
    ) -> Any:
        mapped = jax.shard_map(
            program, mesh=self.mesh, in_specs=inputs, out_specs=outputs, check_vma=False
        )
        options = launches.options(self.mesh.devices.flat[0].platform, graphs=False)
        return jax.jit(
            mapped, donate_argnums=() if donated is None else donated, compiler_options=options
        )

    # What a device does with its seeds and agents.

    def _here(self) -> jax.Array:
        """The numbers of a device's agents."""
        count = self._experiment.agents // self.mesh.shape[AGENTS]
        numbers: jax.Array = jax.lax.axis_index(AGENTS) * count + jnp.arange(count)
        return numbers

    def _begin(self, seeds: jax.Array, theta: jax.Array, params: Any) -> Federation:
        init = jax.vmap(partial(programs.init, self._engine), in_axes=(0, 0, None, 0))
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
        train = self._over(partial(programs.train, self._engine))
        return train((state, seeds, theta), self._here(), rounds, E, communicates=communicates)

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
        evaluate = self._over(self._engine.evaluate)
        played = evaluate((params, server, seeds, environments), trained, here[0])
        mine = here.size
        training = jax.tree.map(lambda leaf: leaf[..., :mine], played.returns)
        others = jax.tree.map(lambda leaf: leaf[..., mine:], played.returns)
        return Pieces(training, others, played.own, played.average)

    # What everybody does together.

    def start(self) -> None:
        """Agents that are about to learn."""
        params = None if self._start is None else self._put(self._start.params, OF_AGENTS)
        self._state = self._init(self._seeds, self._training, params)

    def run(self, leg: Leg, done: Callable[[float], None]) -> Record | None:
        """Take all seeds through a leg; `done` hears when they are."""
        if leg.rounds:
            communicates = leg.communicates and self._experiment.communicates
            rounds, E = np.int32(leg.rounds), np.int32(leg.E)
            self._state = self._train[communicates](
                self._state, self._seeds, self._training, rounds, E
            )
        record = self._evaluated(leg) if leg.evaluates else None
        jax.block_until_ready(self._state)  # type: ignore[no-untyped-call]
        done(self._experiment.seeds)
        return record

    def _evaluated(self, leg: Leg) -> Record:
        agents = self._state.agents
        trained = np.int32(leg.trained)
        pieces: Pieces = self._evaluate(
            agents.learned.params,
            self._state.server,
            self._seeds,
            self._training,
            self._held_out,
            trained,
        )
        self._latest = pieces.average
        afresh = agents._replace(seen=agents.seen.cleared())
        self._state = self._state._replace(agents=afresh)
        training, held_out, own, seen = self._fetched((*pieces[:3], agents.seen))
        returns = training and jax.tree.map(
            lambda *parts: np.concatenate(parts, -1), training, held_out
        )
        elapsed = self._state.elapsed
        return Record(
            returns, own, seen, None if isinstance(elapsed, tuple) else self._fetched(elapsed)
        )

    def export(self) -> list[Array]:
        """Every number of every state, seeds first."""
        return [np.asarray(self._fetched(leaf)) for leaf in jax.tree.leaves(self._state)]

    def restore(self, leaves: list[Array]) -> None:
        """Go on from what `export` gave."""
        state = jax.tree.unflatten(jax.tree.structure(self._shapes()), leaves)
        self._state = Federation(*map(self._put, state, self._specs))

    def matches(self, leaves: list[Array]) -> bool:
        """Whether these could be what `export` gave for this experiment."""
        return fits(self._shapes(), leaves)

    def diverged(self) -> Diverged:
        """Which agents have met what is not finite."""
        return Diverged.of(self._fetched(self._state.agents.seen))

    def models(self) -> Any:
        """Parameters of the models that are evaluated: (seeds, models, ...)."""
        params = self._state.agents.learned.params
        if self._latest is None:  # restored after the last leg
            self._latest = self._shown(params, self._state.server)
        average, params = self._fetched((self._latest, params))
        return jax.device_get(
            jax.vmap(partial(with_own, experiment=self._experiment))(average, params)
        )

    def _shapes(self) -> Federation:
        params = None if self._start is None else self._start.params
        shapes: Federation = jax.eval_shape(self._init, self._seeds, self._training, params)
        return shapes

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
