"""Whether an experiment fits into memory, asked before anything is begun."""

import os
from dataclasses import replace

import jax
import jax.numpy as jnp

from fedrl.engine.local_engine import LocalEngine
from fedrl.engine.local_work import BLOCK
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment

# The state, a copy of it for the checkpoint, and the file that is written from that.
COPIES = 3
# Of an accelerator's memory; the rest is for what a program needs besides.
USABLE = 0.7


def state_bytes(experiment: Experiment) -> int:
    """What one agent keeps."""
    one = replace(experiment.without_communication(), agents=1, held_out=1, seeds=1)
    engine, number = LocalEngine(one), jnp.int32(0)
    theta = jax.eval_shape(engine.thetas, number)
    begun = jax.eval_shape(engine.init, number, theta, jnp.arange(1))
    remembered = jax.eval_shape(experiment.correction.init, begun.server.sent.model)
    sent = begun.server.sent if experiment.timing.arrivals else ()
    leaves = jax.tree.leaves((begun, remembered, sent))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def passing_bytes(experiment: Experiment) -> int:
    """What one agent needs while it learns: the random numbers of a block."""
    family, learner = experiment.family, experiment.learner
    steps = max(BLOCK, learner.update_every)
    return 4 * steps * (2 + family.observation_size) + 4 * BLOCK * learner.samples


def needed_bytes(experiment: Experiment) -> int:
    """A lower estimate: all agents of all seeds, the random numbers of a block, an evaluation."""
    family, learner = experiment.family, experiment.learner
    everywhere = experiment.evaluation.where == "everywhere"
    models = experiment.agents + 1 if everywhere and not experiment.communicates else 1
    environments = experiment.agents + experiment.held_out
    played = models * environments * experiment.evaluation.episodes
    widest = max(*learner.hidden, family.observation_size) if learner.hidden else 1
    return (
        COPIES * state_bytes(experiment) * experiment.agents * experiment.seeds
        + passing_bytes(experiment) * experiment.agents
        + 4 * played * widest
    )


def most_agents(experiment: Experiment) -> int | None:
    """Agents of each seed that an accelerator can hold at a time; None: all of them."""
    limit = device_memory()
    if limit is None:
        return None
    each = experiment.seeds * (state_bytes(experiment) + passing_bytes(experiment))
    fitting = int(USABLE * limit / each)
    if experiment.agents <= fitting:
        return None
    # While one wave learns, another one comes or goes.
    return max(fitting // 3, 1)


def refuse_what_does_not_fit(experiment: Experiment) -> None:
    """Say what to lower, instead of being killed in the middle."""
    needed, there = needed_bytes(experiment), _memory()
    if there is not None and needed > there:
        raise FedrlError(
            f"this needs at least {needed / 1e9:,.1f} GB of memory and there are "
            f"{there / 1e9:,.1f}: lower seeds, agents, held_out, learner.replay, learner.hidden, "
            "learner.update_every or evaluation.episodes, or store transitions smaller "
            "(learner.memory)"
        )


def device_memory() -> int | None:
    """Bytes of this process's accelerators; None if there are none, or nobody says."""
    stats = [device.memory_stats() for device in jax.local_devices()]
    limits = [one["bytes_limit"] for one in stats if one and "bytes_limit" in one]
    return int(min(limits)) * len(limits) if limits else None


def _memory() -> int | None:
    """Bytes of the machine, where all states are from time to time; None if nobody says."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
