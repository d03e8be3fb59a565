"""The server's side of DQNAvg, DDPGAvg and their like: models are networks."""

from math import sqrt
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedrl.engine.local_engine import LocalEngine
from fedrl.engine.plan import plan
from fedrl.engine.state import server_keys
from fedrl.experiment.settings import Experiment
from fedrl.files import Arrays
from fedrl.network.agent_client import REPLICATE, named
from fedrl.network.server_side import Planned, ServerSide
from fedrl.network.simulated_client import SimulatedClient
from fedrl.strategies.corrections import Broadcast
from fedrl.strategies.strategy import ServerState


class ServerOfNetworks(ServerSide):
    """The server of an experiment with networks."""

    experiment: Experiment

    def __init__(self, experiment: Experiment) -> None:
        super().__init__(experiment, SimulatedClient(experiment, 0))
        self.sends_first = experiment.initialisation == "shared"
        self.evaluated = {leg.trained for leg in plan(experiment) if leg.evaluates}
        self._engine = LocalEngine(experiment)
        params = jax.jit(self._engine.first_params)(REPLICATE)
        first = jax.tree.map(lambda leaf: leaf[0], params)
        self._shared, self._private = experiment.learner.split(first)
        self._keys = server_keys(experiment.seed, REPLICATE)
        self.noise = self._keys.noise
        self._length = sqrt(sum(float(np.sum(np.square(x))) for x in jax.tree.leaves(self._shared)))
        # Once: programs are compiled for what they are made of.
        self._play = jax.jit(self._played)

    def begin(self) -> ServerState:
        parts = self.experiment.learner.parts(self._shared)
        begun: ServerState = jax.device_get(self.experiment.strategy.begin(self._shared, parts))
        return begun

    def takes_part(self, number: int) -> list[int]:
        return [int(agent) for agent in self._engine.drawn(jnp.int32(number - 1), self._keys)]

    @property
    def largest_direction(self) -> float | None:
        return self.experiment.learner.largest_direction

    def largest_change(self, planned: Planned, before: Arrays) -> float | None:
        """The largest step of a weight in each update, all weights in the same direction."""
        experiment = self.experiment
        step = experiment.learner.largest_step
        if step is None:
            return None
        updates = planned.E
        if experiment.unit == "episodes":
            updates *= -(-experiment.family.time_limit // experiment.learner.update_every)
        weights = [leaf for leaf in before.values() if leaf.dtype.kind == "f"]
        length = step * updates * sqrt(sum(leaf.size for leaf in weights))
        if planned.number == 1 and not self.sends_first:
            # Drawn like these: if uniformly, no weight is more than sqrt(3) times the usual away.
            length += 4 * self._length
        return length

    def held_out(self, state: ServerState, trained: int) -> dict[str, list[float]]:
        experiment = self.experiment
        if not experiment.held_out or experiment.evaluation.where == "own":
            return {}
        models = jax.tree.map(lambda leaf: leaf[None], self._model(state))
        played = jax.device_get(self._play(models, jnp.int32(trained)))
        names = ("return", "discounted_return")
        return {n: [float(x) for x in values[0]] for n, values in zip(names, played, strict=True)}

    def models(self, state: ServerState) -> Arrays:
        """Seeds first, then models, as in a run of one process."""
        leaves = named(Broadcast(self._model(state)))
        return {name: leaf[None, None] for name, leaf in leaves.items()}

    def _model(self, state: ServerState) -> Any:
        """The parameters, with what is private as it is before any training."""
        return eqx.combine(state.sent.model, self._private)

    def _played(self, models: Any, trained: jax.Array) -> Any:
        """Returns in the held-out environments, which are numbered after the agents' ones."""
        replicate, agents = REPLICATE, self.agents
        theta = self._engine.all_thetas(replicate)[agents:]
        numbers = agents + jnp.arange(theta.shape[0])
        return self._engine.play(
            models, theta, replicate=replicate, trained=trained, numbers=numbers
        )
