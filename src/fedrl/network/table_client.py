"""What one agent of QAvg or PAvg does in a round."""

from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.errors import FedrlError
from fedrl.network.client import REPLICATE, restored
from fedrl.network.messages import Array, Arrays
from fedrl.strategies.strategy import ALL, PLAIN
from fedrl.tabular.exact.mdp import MDPs, objective
from fedrl.tabular.experiment import TabularExperiment
from fedrl.tabular.learners import Agents
from fedrl.tabular.replicates import agent_keys, draw_tables
from fedrl.tabular.rounds import Round, local_phase

TABLE = "table"


class TableWork:
    """An agent with a table and an environment of known dynamics; 64-bit numbers."""

    def __init__(self, experiment: TabularExperiment, agent: int, mdp: Path | None = None) -> None:
        self.experiment, self.agent = experiment, agent
        self._own = None if mdp is None else _transitions(mdp, experiment.family)

    @cached_property
    def _mdps(self) -> MDPs:
        """The agent's own environment, as one lane."""
        family, experiment = self.experiment.family, self.experiment
        task = family.task(agents=experiment.agents, seed=experiment.seed)
        P = task.P[0, self.agent] if self._own is None else self._own
        return MDPs(
            P=jnp.asarray(P)[..., None],
            R=jnp.asarray(task.R[0])[..., None],
            d0=jnp.asarray(task.d0)[:, None],
            gamma=jnp.float64(family.gamma),
        )

    @property
    def shapes(self) -> Arrays:
        family = self.experiment.family
        return {TABLE: np.zeros((family.states, family.actions))}

    def begin(self, model: Arrays) -> Agents:
        with jax.enable_x64(True):
            table = model[TABLE] if model else first_table(self.experiment)
            private = self.experiment.learner.start(self._mdps, self._keys)
            return Agents(jnp.asarray(table)[..., None], private)

    def receive(self, state: Agents, model: Arrays) -> Agents:
        with jax.enable_x64(True):
            return state._replace(table=jnp.asarray(model[TABLE])[..., None])

    def train(self, state: Agents, E: int, trained: int, scale: float) -> Agents:
        with jax.enable_x64(True):
            numbers = (jnp.int64(trained), jnp.int64(E), jnp.float64(self.experiment.lr * scale))
            learner = self.experiment.learner
            done: Agents = _local_phase(learner, state, self._mdps, self._keys, *numbers)
            return done

    def shared(self, state: Agents) -> Arrays:
        return {TABLE: np.asarray(state.table)[..., 0]}

    def evaluate(self, state: Agents, trained: int) -> tuple[Agents, dict[str, float]]:
        with jax.enable_x64(True):
            found = _objective(self.experiment.learner, state.table, self._mdps)
            return state, {"objective": float(found[0])}

    def restore(self, leaves: list[Array]) -> Agents | None:
        with jax.enable_x64(True):
            state: Agents | None = restored(self.begin({}), leaves)
            return state

    @cached_property
    def _keys(self) -> jax.Array:
        keys = agent_keys(self.experiment.agents, self.experiment.seed, REPLICATE)
        return keys[self.agent : self.agent + 1]


def first_table(experiment: TabularExperiment) -> Array:
    """What all agents begin with, (S, A)."""
    family = experiment.family
    with jax.enable_x64(True):
        drawn = draw_tables(
            experiment.learner,
            family.states,
            family.actions,
            jnp.uint32(experiment.seed),
            jnp.array([REPLICATE], jnp.uint32),
        )
        table: Array = np.asarray(drawn)[0]
        return table


@partial(jax.jit, static_argnums=0)
def _objective(learner: Any, table: jax.Array, mdps: MDPs) -> jax.Array:
    return objective(mdps, learner.policy(table))


@partial(jax.jit, static_argnums=0)
def _local_phase(
    learner: Any,
    agents: Agents,
    mdps: MDPs,
    keys: jax.Array,
    first: jax.Array,
    E: jax.Array,
    lr: jax.Array,
) -> Agents:
    server = PLAIN.begin(agents.table, {ALL: agents.table})
    at = Round(agents, (), server)
    after = local_phase(
        learner, PLAIN.correction, at, mdps, keys, lambda _: lr[None], first, first + E
    )
    return after.agents


def _transitions(file: Path, family: Any) -> Array:
    """P (S, A, S) from a NumPy file of the agent's owner."""
    shape = (family.states, family.actions, family.states)
    try:
        P = np.asarray(np.load(file, allow_pickle=False), np.float64)
    except (OSError, EOFError, TypeError, ValueError) as error:
        raise FedrlError(f"cannot read the dynamics in {file}: {error}") from None
    if P.shape != shape or not np.allclose(P.sum(-1), 1) or (P < 0).any():
        raise FedrlError(f"{file} must hold probabilities of shape {shape} that sum to 1")
    return P
