"""What the server trains: which rounds there are, who takes part, what comes of their answers."""

from collections.abc import Mapping
from math import sqrt
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedrl.engine.local_engine import LocalEngine
from fedrl.engine.plan import plan
from fedrl.engine.state import chosen, server_keys
from fedrl.experiment.settings import Experiment
from fedrl.keys import Purpose, replicate_key
from fedrl.network.client import REPLICATE, like
from fedrl.network.messages import Array, Arrays
from fedrl.network.table_client import TABLE, first_table
from fedrl.strategies.aggregators import Communication
from fedrl.strategies.private import Private
from fedrl.tabular.exact.lanes import mean_over_agents
from fedrl.tabular.experiment import TabularExperiment
from fedrl.tabular.learners import ProjPAvg, QAvg, SoftPAvg
from fedrl.tabular.rounds import PLATEAU
from fedrl.trees import named_leaves

# How far answers may be from the model where nothing is known of the learner's steps.
UNKNOWN = 1000.0


class Planned(NamedTuple):
    """One round."""

    number: int
    E: int
    """Local work of those who take part; 0 in the last one, which only evaluates."""
    trained: int
    """What has been trained before it."""
    evaluate: bool
    """Whether the agents first evaluate the model they are sent."""


class Training(Protocol):
    """The server's side of an algorithm."""

    agents: int
    rounds: list[Planned]

    def first(self) -> Arrays:
        """The model to begin with; its shapes are what answers must have."""

    @property
    def sends_first(self) -> bool:
        """Whether agents begin with that model, or each with one of its own."""

    def takes_part(self, number: int) -> list[int]:
        """The agents of a round, ascending."""

    def least(self, number: int) -> int:
        """How many valid answers of the agents of a round the aggregator needs."""

    def aggregate(self, answers: Mapping[int, Arrays], before: Arrays, number: int) -> Arrays:
        """The new model from the agents' ones."""

    def furthest(self, planned: Planned) -> float:
        """How far from the model an agent that follows the algorithm can come in a round."""

    def why_not(self, metrics: Mapping[str, float]) -> str | None:
        """What is impossible in what an agent has measured, or None."""

    def scale(self, objectives: list[Array]) -> float:
        """Factor on the step size, from each agent's objective in the rounds so far."""

    def held_out(self, model: Arrays, trained: int) -> dict[str, list[float]]:
        """What the model is worth in the held-out environments, by metric."""


class NetworkTraining:
    """DQNAvg, DDPGAvg and their personalised variants."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment, self.agents = experiment, experiment.agents
        self.rounds = _planned(experiment)
        self._engine = LocalEngine(experiment)
        params = jax.jit(self._engine.first_params)(jnp.int32(REPLICATE))
        self._params = jax.tree.map(lambda leaf: leaf[0], params)
        self._shared, self._private = experiment.learner.split(self._params)
        self._keys = server_keys(experiment.seed, jnp.int32(REPLICATE))
        self._held_out = self._thetas()
        # Once: programs are compiled for what they are made of.
        self._play = jax.jit(self._played)

    def first(self) -> Arrays:
        return {name: np.asarray(leaf) for name, leaf in named_leaves(self._shared).items()}

    @property
    def sends_first(self) -> bool:
        return self.experiment.initialisation == "shared"

    def takes_part(self, number: int) -> list[int]:
        key = jax.random.fold_in(self._keys.choosing, number - 1)
        who = chosen(key, self.agents, self.experiment.participants)
        return [int(agent) for agent in who]

    def least(self, number: int) -> int:
        return self.experiment.aggregator.least(len(self.takes_part(number)))

    def aggregate(self, answers: Mapping[int, Arrays], before: Arrays, number: int) -> Arrays:
        agents = sorted(answers)
        stacked = {name: np.stack([answers[i][name] for i in agents]) for name in before}
        communication = Communication(
            before=before if self.sends_first else None,
            agents=jnp.array(agents),
            key=jax.random.fold_in(self._keys.noise, number - 1),
        )
        asked = len(self.takes_part(number))
        model = self.experiment.aggregator.at_server(stacked, communication, asked)
        return {name: np.asarray(leaf) for name, leaf in model.items()}

    def furthest(self, planned: Planned) -> float:
        """The largest step of a weight in each update, all weights in the same direction."""
        experiment = self.experiment
        step = experiment.learner.largest_step
        if step is None:
            return UNKNOWN
        updates = planned.E
        if experiment.unit == "episodes":
            updates *= -(-experiment.family.time_limit // experiment.learner.update_every)
        weights = [leaf for leaf in self.first().values() if leaf.dtype.kind == "f"]
        length = step * updates * sqrt(sum(leaf.size for leaf in weights))
        if planned.number == 1 and not self.sends_first:
            # Drawn like these: if uniformly, no weight is more than sqrt(3) times the usual away.
            length += 4 * sqrt(sum(float(np.sum(leaf**2)) for leaf in weights))
        # Rounding to 32 bits.
        return 1.01 * length + 1e-3

    def why_not(self, metrics: Mapping[str, float]) -> str | None:
        return None

    def scale(self, objectives: list[Array]) -> float:
        return 1.0

    def held_out(self, model: Arrays, trained: int) -> dict[str, list[float]]:
        experiment = self.experiment
        if not experiment.held_out or experiment.evaluation.where == "own":
            return {}
        params = self.model(model)
        models = jax.tree.map(lambda leaf: leaf[None], params)
        played = jax.device_get(self._play(models, self._held_out, jnp.int32(trained)))
        names = ("return", "discounted_return")
        return {n: [float(x) for x in values[0]] for n, values in zip(names, played, strict=True)}

    def model(self, model: Arrays) -> Any:
        """The parameters, with what is private as it is before any training."""
        return eqx.combine(like(self._shared, model), self._private)

    def epsilon(self, rounds: int) -> float | None:
        """What privacy has been spent, if there is any."""
        aggregator = self.experiment.aggregator
        if not isinstance(aggregator, Private) or not aggregator.noise:
            return None
        return aggregator.epsilon(rounds)

    def _played(self, models: Any, theta: jax.Array, trained: jax.Array) -> Any:
        """Returns in the held-out environments, which are numbered after the agents' ones."""
        replicate, numbers = jnp.int32(REPLICATE), self.agents + jnp.arange(theta.shape[0])
        return self._engine.play(
            models, theta, replicate=replicate, trained=trained, numbers=numbers
        )

    def _thetas(self) -> jax.Array:
        experiment = self.experiment
        key = replicate_key(experiment.seed, jnp.int32(REPLICATE), Purpose.HELD_OUT)
        return experiment.family.sample(key, experiment.held_out)


class TableTraining:
    """QAvg and PAvg with known dynamics."""

    def __init__(self, experiment: TabularExperiment) -> None:
        self.experiment, self.agents = experiment, experiment.agents
        E, updates = experiment.E, experiment.updates
        starts = range(0, updates, E)
        self.rounds = [
            Planned(i + 1, min(E, updates - start), start, True) for i, start in enumerate(starts)
        ]
        self.rounds.append(Planned(len(starts) + 1, 0, updates, True))
        family = experiment.family
        values = family.task(agents=self.agents, seed=experiment.seed).R / (1 - family.gamma)
        self._possible = float(values.min()), float(values.max())

    def first(self) -> Arrays:
        return {TABLE: first_table(self.experiment)}

    @property
    def sends_first(self) -> bool:
        return True

    def takes_part(self, number: int) -> list[int]:
        return list(range(self.agents))

    def least(self, number: int) -> int:
        return 1

    def aggregate(self, answers: Mapping[int, Arrays], before: Arrays, number: int) -> Arrays:
        tables = np.stack([answers[i][TABLE] for i in sorted(answers)], -1)
        with jax.enable_x64(True):
            mean = mean_over_agents(jnp.asarray(tables), len(answers))
            return {TABLE: np.asarray(mean)[..., 0]}

    def furthest(self, planned: Planned) -> float:
        experiment = self.experiment
        low, high = self._possible
        sides = sqrt(self.first()[TABLE].size)
        match experiment.learner:
            case QAvg() if experiment.lr <= 1:
                # Entries are averages of possible values and of the first ones, in [0, 1].
                entry = max(high, 1.0) - min(low, 0.0)
            case ProjPAvg():
                entry = 1.0
            case SoftPAvg():
                # |A| is at most high - low, and what it is multiplied by at most 1 / (1 - gamma).
                entry = planned.E * experiment.lr * (high - low) / (1 - experiment.family.gamma)
            case _:
                return UNKNOWN
        return 1.01 * sides * entry

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
            one_ago, two_ago = objectives[r - 1], objectives[r - 2]
            gains = one_ago - two_ago - PLATEAU * two_ago
            heard = gains[~np.isnan(gains)]
            if heard.size and np.median(heard) < 0:
                scale *= decay
        return scale

    def held_out(self, model: Arrays, trained: int) -> dict[str, list[float]]:
        return {}

    def epsilon(self, rounds: int) -> float | None:
        return None


def _planned(experiment: Experiment) -> list[Planned]:
    """The rounds of an experiment, and one more that evaluates the last model."""
    evaluated = {leg.trained for leg in plan(experiment) if leg.evaluates}
    E = int(experiment.E)
    rounds: list[Planned] = []
    for trained in range(0, experiment.updates, E):
        length = min(E, experiment.updates - trained)
        rounds.append(Planned(len(rounds) + 1, length, trained, trained in evaluated))
    return [*rounds, Planned(len(rounds) + 1, 0, experiment.updates, True)]
