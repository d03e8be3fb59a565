"""Federations of QAvg and PAvg: an agent that knows its dynamics, the server; 64-bit numbers."""

from collections.abc import Mapping
from functools import cached_property, partial
from math import sqrt
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.errors import FedrlError
from fedrl.experiment.toml import to_toml
from fedrl.files import Array, Arrays, write_atomically
from fedrl.keys import Purpose, replicate_key
from fedrl.network.agent_client import REPLICATE
from fedrl.network.deployment import EXPERIMENT
from fedrl.network.server_side import Planned, ServerSide
from fedrl.runs.run_directory import RunDirectory
from fedrl.strategies.corrections import Broadcast, NoCorrection, Offer
from fedrl.strategies.strategy import ServerState, Strategy
from fedrl.tabular.exact.mdp import MDPs, objective
from fedrl.tabular.experiment import TabularExperiment
from fedrl.tabular.learners import ProjPAvg, QAvg, SoftPAvg, TabularLearner
from fedrl.tabular.replicates import draw_tables, lane_keys
from fedrl.tabular.rounds import Round, begin, gain_over_plateau, local_phase, offer, receive
from fedrl.trees import refilled

TABLE = "table"
# How often an agent is let go further than it could without a correction: a margin that has let
# all honest agents in that we tried; unlike without a correction, we have no proof.
MARGIN = 10.0


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
        experiment = self.experiment
        given = experiment.learner, experiment.strategy, state, self._mdps, self._keys
        with jax.enable_x64(True):
            numbers = jnp.int64(trained), jnp.int64(E), jnp.float64(experiment.lr * scale)
            done: Round = _worked(*given, *numbers)
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


class ServerOfTables(ServerSide):
    """The server of an experiment on tables."""

    experiment: TabularExperiment
    wide = True

    def __init__(self, experiment: TabularExperiment) -> None:
        agent = TableClient(experiment, 0)
        super().__init__(experiment, agent)
        self.evaluated = range(experiment.updates)
        with jax.enable_x64(True):
            root = jnp.uint32(experiment.seed)
            self.noise = replicate_key(root, jnp.uint32(REPLICATE), Purpose.NOISE)
        self._first = agent.server()
        family = experiment.family
        values = family.task(agents=self.agents, seed=experiment.seed).R / (1 - family.gamma)
        self._possible = float(values.min()), float(values.max())

    def directory(self, runs: Path) -> RunDirectory:
        path = runs / self.experiment.directory_name
        path.mkdir(parents=True, exist_ok=True)
        if not (path / EXPERIMENT).exists():
            write_atomically(path / EXPERIMENT, to_toml(self.experiment).encode())
        return RunDirectory(path, self.experiment)

    def begin(self) -> ServerState:
        return self._first

    def nearest(self, model: Any) -> Any:
        return {TABLE: np.asarray(self.experiment.learner.nearest(model[TABLE][..., None]))[..., 0]}

    @property
    def largest_direction(self) -> float:
        """Of policies: advantages are at most high - low; what they are multiplied by, as below.

        Those of QAvg are differences of values, which are less.
        """
        low, high = self._possible
        return MARGIN * (high - low + 1) / (1 - self.experiment.family.gamma)

    def largest_change(self, planned: Planned, before: Arrays) -> float | None:
        experiment, table = self.experiment, before[TABLE]
        low, high = self._possible
        match experiment.learner:
            case QAvg() if experiment.lr <= 1:
                # Entries are averages of possible values and of those that were sent.
                entry = _reach(table, low, high)
            case ProjPAvg():
                entry = _reach(table, 0.0, 1.0)
            case SoftPAvg():
                # |A| is at most high - low, and what it is multiplied by at most 1 / (1 - gamma).
                entry = planned.E * experiment.lr * (high - low) / (1 - experiment.family.gamma)
            case _:
                return None
        margin = 1.0 if type(experiment.correction) is NoCorrection else MARGIN
        return margin * entry * sqrt(table.size)

    def why_not(self, metrics: Mapping[str, float]) -> str | None:
        """Discounted rewards of what can be earned in a step, whatever the dynamics are."""
        low, high = self._possible
        told = metrics.get("objective", low)
        # To rounding.
        slack = 1e-9 * max(abs(low), abs(high))
        if low - slack <= told <= high + slack:
            return None
        return f"its objective is {told:.6g}, possible are {low:.6g} to {high:.6g}"

    def scale(self, objectives: list[Array]) -> float:
        """Decays at plateaus, as in `fedrl.tabular.rounds`, but at those of the median agent.

        What an agent says of itself cannot be checked, and the mean would follow any one of them.
        """
        scale, decay = 1.0, self.experiment.decay or 1.0
        for r in range(3, len(objectives) + 1):
            gains = gain_over_plateau(objectives[r - 1], objectives[r - 2])
            heard = gains[~np.isnan(gains)]
            if heard.size and np.median(heard) < 0:
                scale *= decay
        return scale


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


def _reach(table: Array, low: float, high: float) -> float:
    """The largest difference between the entries of a table and what is possible."""
    return max(high, float(table.max())) - min(low, float(table.min()))
