"""Whether an experiment fits into memory, asked before anything is begun."""

import os
from dataclasses import replace

import jax
import jax.numpy as jnp

from fedrl.errors import FedrlError
from fedrl.experiment.legs import Programs
from fedrl.experiment.settings import Experiment
from fedrl.federation.local_engine import BLOCK

# The state, a copy of it for the checkpoint, and the file that is written from that.
COPIES = 3


def needed_bytes(experiment: Experiment) -> int:
    """A lower estimate: all agents of all seeds, the random numbers of a block, an evaluation."""
    one = replace(experiment.without_communication(), agents=1, held_out=1, seeds=1)
    programs = Programs(one)
    thetas = jax.eval_shape(programs.thetas, jnp.int32(0))
    shapes = jax.tree.leaves(jax.eval_shape(programs.init, jnp.int32(0), thetas))
    state: int = sum(leaf.size * leaf.dtype.itemsize for leaf in shapes)
    family, learner = experiment.family, experiment.learner
    steps = max(BLOCK, learner.update_every)
    draws = 4 * steps * (2 + family.observation_size) + 4 * BLOCK * learner.samples
    models = experiment.agents + 1 if experiment.has_own_models else 1
    environments = experiment.agents + experiment.held_out
    played = models * environments * experiment.evaluation.episodes
    widest = max(*learner.hidden, family.observation_size) if learner.hidden else 1
    return (
        COPIES * state * experiment.agents * experiment.seeds
        + draws * experiment.agents
        + 4 * played * widest
    )


def refuse_what_does_not_fit(experiment: Experiment) -> None:
    """Say what to lower, instead of being killed in the middle."""
    needed, there = needed_bytes(experiment), _memory()
    if there is not None and needed > there:
        raise FedrlError(
            f"this needs at least {needed / 1e9:,.1f} GB of memory and there are "
            f"{there / 1e9:,.1f}: lower seeds, agents, held_out, learner.replay, learner.hidden, "
            "learner.update_every or evaluation.episodes"
        )


def _memory() -> int | None:
    """Bytes of the smallest device, or of the machine if that is a CPU; None if nobody says."""
    stats = [device.memory_stats() for device in jax.local_devices()]
    limits = [one["bytes_limit"] for one in stats if one and "bytes_limit" in one]
    if limits:
        return int(min(limits)) * len(limits)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
