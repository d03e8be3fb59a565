"""One agent with a table, in an environment whose dynamics it knows; 64-bit numbers."""

from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.errors import FedrlError
from fedrl.files import Array
from fedrl.network.agent_client import REPLICATE
from fedrl.strategies.corrections import Broadcast, Offer
from fedrl.strategies.strategy import ServerState, Strategy
from fedrl.tabular.exact.mdp import MDPs, objective
from fedrl.tabular.experiment import TabularExperiment
from fedrl.tabular.learners import TabularLearner
from fedrl.tabular.replicates import draw_tables, lane_keys
from fedrl.tabular.rounds import Round, begin, local_phase, offer, receive
from fedrl.trees import refilled

TABLE = "table"


class TableClient:
    """An agent of an algorithm on tables: one lane of the rounds in `fedrl.tabular`."""

    def __init__(self, experiment: TabularExperiment, agent: int, mdp: Path | None = None) -> None:
        """`mdp`: a file with the transition probabilities of its owner's environment."""
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

    @cached_property
    def sent(self) -> Broadcast:
        return self.server().sent

    @cached_property
    def offered(self) -> Offer:
        return self.offer(self.begin(None))

    def server(self) -> ServerState:
        """The server before the first round, which is the same for all agents."""
        with jax.enable_x64(True):
            model, correction = _first_lane(self.begin(None).server.sent)
            sent = Broadcast({TABLE: model}, correction)
            optimizer = self.experiment.server_optimizer.init(sent.model)
            state: ServerState = jax.device_get(ServerState(sent, optimizer, jnp.int32(0)))
            return state

    def begin(self, received: Broadcast | None) -> Round:
        with jax.enable_x64(True):
            table = _first_table(self.experiment) if received is None else received.model[TABLE]
            experiment, init = self.experiment, jnp.asarray(table)[..., None]
            at = begin(experiment.learner, experiment.strategy, init, 1, self._mdps, self._keys)
            return at if received is None else _with(at, received)

    def receive(self, state: Round, received: Broadcast, counted: bool) -> Round:
        with jax.enable_x64(True):
            return receive(self.experiment.correction, _with(state, received), 1, counted)

    def work(self, state: Round, E: int, trained: int, scale: float) -> Round:
        with jax.enable_x64(True):
            numbers = (jnp.int64(trained), jnp.int64(E), jnp.float64(self.experiment.lr * scale))
            learner, strategy = self.experiment.learner, self.experiment.strategy
            done: Round = _worked(learner, strategy, state, self._mdps, self._keys, *numbers)
            return done

    def offer(self, state: Round) -> Offer:
        with jax.enable_x64(True):
            model, correction = _first_lane(offer(self.experiment.correction, state))
            return Offer({TABLE: model}, correction)

    def evaluate(self, state: Round, trained: int) -> tuple[Round, dict[str, float]]:
        with jax.enable_x64(True):
            found = _objective(self.experiment.learner, state.table, self._mdps)
            return state, {"objective": float(found[0])}

    def restore(self, leaves: list[Array]) -> Round | None:
        return refilled(self.begin(None), leaves)

    @cached_property
    def _keys(self) -> jax.Array:
        seed, replicates = jnp.uint32(self.experiment.seed), jnp.array([REPLICATE], jnp.uint32)
        keys: jax.Array = lane_keys(self.experiment.agents, seed, replicates)
        return keys[self.agent : self.agent + 1]


def _with(at: Round, received: Broadcast) -> Round:
    """A state that knows what the server has sent; replicates last."""
    sent = Broadcast(received.model[TABLE], received.correction)
    lane = jax.tree.map(lambda x: jnp.asarray(x)[..., None], sent)
    return at._replace(server=at.server._replace(sent=lane))


def _first_table(experiment: TabularExperiment) -> Array:
    """What all agents begin with, (S, A)."""
    size = experiment.family.states, experiment.family.actions
    numbers = jnp.uint32(experiment.seed), jnp.array([REPLICATE], jnp.uint32)
    table: Array = np.asarray(draw_tables(experiment.learner, *size, *numbers))[0]
    return table


def _first_lane(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[..., 0], tree)


@partial(jax.jit, static_argnums=0)
def _objective(learner: TabularLearner, table: jax.Array, mdps: MDPs) -> jax.Array:
    return objective(mdps, learner.policy(table))


@partial(jax.jit, static_argnums=(0, 1))
def _worked(
    learner: TabularLearner,
    strategy: Strategy,
    at: Round,
    mdps: MDPs,
    keys: jax.Array,
    first: jax.Array,
    E: jax.Array,
    lr: jax.Array,
) -> Round:
    last = first + E
    return local_phase(
        learner, strategy.correction, at, mdps, keys, lambda _: lr[None], first, last
    )


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
