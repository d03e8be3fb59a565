"""A run, looked at afterwards."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from fedrl import arguments
from fedrl.errors import FedrlError
from fedrl.evaluate import Returns, greedy_returns
from fedrl.experiment.legs import Programs
from fedrl.experiment.run_directory import RunDirectory, named_leaves
from fedrl.experiment.settings import Experiment
from fedrl.keys import Purpose

if TYPE_CHECKING:
    import pandas as pd

Policy = Callable[[Any], Any]


class Run:
    """A run directory: what was asked, measured and learnt."""

    def __init__(self, path: str | Path) -> None:
        self._directory = RunDirectory.open(Path(path))

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._directory.path

    @property
    def experiment(self) -> Experiment:
        """What was asked."""
        return self._directory.experiment

    @property
    def finished(self) -> bool:
        """Whether it came to its end."""
        return self._directory.finished

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def metrics(self) -> "pd.DataFrame":
        """Everything measured so far, one row for each number (docs/runs.md lists the columns)."""
        import pandas as pd

        text = io.StringIO(self._directory.metrics_text())
        return pd.read_csv(text, dtype={"agent": "str"})

    def model(self, agent: int | None = None, seed: int = 0) -> Any:
        """Parameters of the averaged model, or of an agent that never communicated."""
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[seed]), self._models(agent, seed))

    def policy(self, agent: int | None = None, seed: int = 0) -> Policy:
        """The greedy policy as a function of one observation, or of many."""
        model, learner = self.model(agent, seed), self.experiment.learner
        compiled = jax.jit(learner.policy)

        def act(observation: Any) -> Any:
            action = np.asarray(compiled(model, jnp.asarray(observation, jnp.float32)))
            return action if action.ndim else action[()]

        return act

    def evaluate(self, theta: Any, *, agent: int | None = None, episodes: int = 20) -> Returns:
        """Mean greedy returns, (seeds, environments), in the environments with these thetas."""
        experiment = self.experiment
        arguments.whole("episodes", episodes)
        if not isinstance(theta, (list, tuple, np.ndarray)) or len(theta) == 0:
            raise FedrlError(f"theta must be a list of environments, got {theta!r}")
        vectors = np.stack([experiment.family.check_theta(one) for one in theta])
        key = jax.random.fold_in(jax.random.key(experiment.seed), Purpose.PLAYING)
        returns = greedy_returns(
            experiment.family,
            experiment.learner.policy,
            jax.tree.map(jnp.asarray, self._models(agent, 0)),
            jnp.asarray(vectors),
            key,
            episodes=episodes,
            gamma=experiment.learner.gamma,
        )
        host: Returns = jax.device_get(returns)
        return host

    def _models(self, agent: int | None, seed: int) -> Any:
        """Parameters of one model of every seed."""
        experiment = self.experiment
        arguments.whole("seed", seed, smallest=0, largest=experiment.seeds - 1)
        if agent is not None:
            if experiment.communicates:
                raise FedrlError(
                    "all agents of this run have the averaged model: leave `agent` out"
                )
            arguments.whole("agent", agent, smallest=0, largest=experiment.agents - 1)
        index = 0 if agent is None else agent + 1
        stored = self._directory.models()
        structure = jax.eval_shape(
            lambda: Programs(experiment).models(experiment.engine.init(jnp.int32(0)))
        )
        leaves = [stored[name][:, index] for name in named_leaves(structure)]
        return jax.tree.unflatten(jax.tree.structure(structure), leaves)
