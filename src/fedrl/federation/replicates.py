"""Federated runs of any number of replicates, from arrays with the replicates first."""

from dataclasses import dataclass
from functools import partial
from math import inf, isinf
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrl.exact.lanes import to_every_agent, to_lanes
from fedrl.exact.mdp import MDPs
from fedrl.federation.blocks import block_size, map_blocks
from fedrl.federation.rounds import Plan, Trained, train
from fedrl.keys import Purpose, replicate_keys
from fedrl.learners.tabular import TabularLearner

Floats = NDArray[np.float64]


class Problems(NamedTuple):
    """One federated problem per replicate."""

    P: ArrayLike  # (replicates, n, S, A, S)
    R: ArrayLike  # (replicates, S, A)
    d0: ArrayLike  # (replicates, S)
    held_out: ArrayLike | None = None  # (replicates, m, S, A, S)
    init: ArrayLike | None = None  # (replicates, S, A); None: the learner's own draw


@dataclass(frozen=True)
class Schedule:
    """How often to communicate and how far to step."""

    lr: Floats
    """Step size of each local update, (iterations,)."""
    E: float
    """Local updates between two communications; `inf`: never."""
    decay: float | None = None
    """Factor on the step size when a round brings less than 0.1 %; None: never."""

    @property
    def iterations(self) -> int:
        return len(self.lr)

    @property
    def updates_per_round(self) -> int:
        # Without communication every local update is a round: the average is only looked at.
        return 1 if isinf(self.E) else int(self.E)

    @property
    def recorded_at(self) -> NDArray[np.int64]:
        """Local updates done at each entry of a record."""
        rounds = -(-self.iterations // self.updates_per_round)
        return np.minimum(np.arange(rounds + 1) * self.updates_per_round, self.iterations)

    def plan(self) -> Plan:
        return Plan(
            lr=jnp.asarray(self.lr, jnp.float64),
            decay=jnp.asarray(1.0 if self.decay is None else self.decay, jnp.float64),
            local_updates=jnp.asarray(self.updates_per_round, jnp.int64),
            communicate=jnp.asarray(not isinf(self.E)),
        )

    def without_communication(self) -> "Schedule":
        return Schedule(self.lr, inf, self.decay)


class Outcome(NamedTuple):
    """What became of every replicate, replicates first."""

    table: Floats  # (replicates, S, A)
    policy: Floats  # (replicates, S, A)
    objective: Floats  # (replicates, records)
    evaluation: Floats  # (replicates, records), or no records
    baseline: Floats  # (replicates, records), or no records


@partial(jax.jit, static_argnames=("learner", "agents"))
def _block_inputs(
    learner: TabularLearner,
    agents: int,
    P: jax.Array,
    R: jax.Array,
    d0: jax.Array,
    gamma: jax.Array,
    held_out: jax.Array | None,
    init: jax.Array | None,
    seed: jax.Array,
    replicates: jax.Array,
) -> tuple[MDPs, MDPs | None, jax.Array, jax.Array]:
    """A block's arrays, lane-last, with the tables and keys that belong to its replicates."""

    def mdps(P: jax.Array) -> MDPs:
        count = P.shape[1]
        rewards = to_every_agent(jnp.moveaxis(R, 0, -1), count)
        return MDPs(to_lanes(P), rewards, to_every_agent(d0.T, count), gamma)

    states, actions = R.shape[1:]
    if init is None:
        draw = partial(learner.init, states=states, actions=actions)
        init = jax.vmap(draw)(replicate_keys(seed, replicates, Purpose.TABLE))
    agent_keys = jax.vmap(
        lambda key: jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(agents)), out_axes=1
    )(replicate_keys(seed, replicates, Purpose.AGENTS)).reshape(-1)
    other = None if held_out is None else mdps(held_out)
    return mdps(P), other, jnp.moveaxis(init, 0, -1), agent_keys


def run_replicates(
    learner: TabularLearner,
    problems: Problems,
    schedule: Schedule,
    *,
    gamma: float,
    seed: int,
    first_replicate: int = 0,
    with_baseline: bool = False,
) -> Outcome:
    """Run every replicate; number i is replicate `first_replicate` + i of the experiment."""
    replicates, agents, states, actions, _ = np.shape(problems.P)
    bytes_per_replicate = 8 * agents * states * actions * states
    size = block_size(bytes_per_replicate, jax.local_devices()[0].platform)

    def run_block(start: int, device: jax.Device) -> Outcome:
        # The 64-bit switch and the default device are both local to the thread.
        with jax.enable_x64(True), jax.default_device(device):
            # The last block is filled up with copies of the last replicate.
            rows = np.minimum(np.arange(start, start + size), replicates - 1)

            def take(x: ArrayLike | None) -> jax.Array | None:
                if x is None:
                    return None
                part = x[rows[0] : rows[-1] + 1]  # type: ignore[index]
                missing = size - part.shape[0]
                if missing:
                    numpy = jnp if isinstance(part, jax.Array) else np
                    part = numpy.concatenate([part, numpy.repeat(part[-1:], missing, axis=0)])
                return jax.device_put(part, device)

            inputs = _block_inputs(
                learner,
                agents,
                take(problems.P),
                take(problems.R),
                take(problems.d0),
                jnp.float64(gamma),
                take(problems.held_out),
                take(problems.init),
                jnp.uint32(seed),
                jnp.asarray(first_replicate + rows, jnp.uint32),
            )
            mdps, held_out, init, keys = inputs
            trained = train(
                learner,
                agents,
                schedule.plan(),
                mdps,
                held_out,
                init,
                keys,
                with_baseline=with_baseline,
            )
            return _replicates_first(trained, min(size, replicates - start), schedule)

    outcomes = map_blocks(run_block, range(0, replicates, size))
    return Outcome(*(np.concatenate(parts) for parts in zip(*outcomes, strict=True)))


def _replicates_first(trained: Trained, replicates: int, schedule: Schedule) -> Outcome:
    """Drop what filled the block up and the records past the last round."""
    records = len(schedule.recorded_at)

    def record(x: jax.Array) -> Floats:
        return np.asarray(x)[:records, :replicates].T

    def table(x: jax.Array) -> Floats:
        return np.moveaxis(np.asarray(x)[..., :replicates], -1, 0)

    return Outcome(
        table(trained.table),
        table(trained.policy),
        record(trained.objective),
        record(trained.evaluation),
        record(trained.baseline),
    )
