"""A run, looked at afterwards."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from fedrl import arguments
from fedrl.engine.client import shape_of_models
from fedrl.engine.evaluation import Returns, greedy_returns
from fedrl.engine.host_loop import Adapted, adapt_in
from fedrl.engine.programs import Start
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.files import Array
from fedrl.keys import Purpose
from fedrl.progress import RunProgress, new_console
from fedrl.runs.adaptation import (
    Adaptation,
    AdaptationSettings,
    experiment_of,
    held_out_thetas,
    start_of,
)
from fedrl.runs.launch import begin, go_on
from fedrl.runs.metrics import COLUMNS, DTYPES
from fedrl.runs.run_directory import RunDirectory
from fedrl.trees import named_leaves

if TYPE_CHECKING:
    import gymnasium
    import pandas as pd

Policy = Callable[[Any], Any]


def measurements(directory: RunDirectory) -> "pd.DataFrame":
    """What `Run.metrics` gives, of any folder with measurements."""
    import pandas as pd

    text = directory.metrics_text()  # says itself what is wrong with the file
    try:
        frame = pd.read_csv(io.StringIO(text), dtype=DTYPES)
    except (ValueError, OverflowError):
        frame = pd.DataFrame()
    if tuple(frame.columns) != COLUMNS:
        raise FedrlError(
            f"the metrics in {directory.path} are damaged: take the run from a backup, or move its "
            "folder away and run it again"
        )
    return frame


class Run:
    """A run directory: what was asked, measured and learnt."""

    def __init__(self, path: str | Path, *, allow_code: bool = False) -> None:
        """`allow_code`: import modules that its settings name as `module:Class`."""
        self._directory = RunDirectory.open(Path(path), allow_code=allow_code)

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._directory.path

    @property
    def experiment(self) -> Experiment:
        """What was asked.

        A family from a module that is not imported yet is described; `family.loaded` imports it.
        """
        experiment: Experiment = self._directory.experiment
        return experiment

    @property
    def finished(self) -> bool:
        """Whether it came to its end."""
        return self._directory.finished

    @property
    def seconds(self) -> float | None:
        """How long it took on its machine, if that was recorded."""
        return self._directory.seconds

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def metrics(self) -> "pd.DataFrame":
        """Everything measured so far, one row for each number (docs/runs.md lists the columns)."""
        return measurements(self._directory)

    def model(self, agent: int | None = None, seed: int = 0) -> Any:
        """Parameters of the averaged model, or of an agent that never communicated."""
        models = self._models(agent, seed)
        self._refuse_diverged(models, [seed])
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[seed]), models)

    def policy(self, agent: int | None = None, seed: int = 0) -> Policy:
        """The greedy policy as a function of one observation, or of many.

        Actions are those of the environment: of a Gymnasium one, in its own action space.
        """
        experiment, model = self.experiment, self.model(agent, seed)
        learner, family = experiment.learner, experiment.family
        compiled = jax.jit(learner.policy)

        def act(observation: Any) -> Any:
            seen = np.asarray(observation, np.float32)
            if seen.shape[-1:] != (family.observation_size,):
                raise FedrlError(
                    f"an observation of {family.name} has {family.observation_size} numbers, got "
                    f"an array of shape {seen.shape}"
                )
            action = family.translated(np.asarray(compiled(model, seen)))
            return action if action.ndim else action[()]

        return act

    def evaluate(
        self, theta: Any, *, agent: int | None = None, episodes: int = 20, each: bool = False
    ) -> Returns:
        """Mean greedy returns, (seeds, environments), in the environments with these thetas.

        With `each`, the return of each episode, (seeds, environments, episodes). An environment
        that is listed twice is played from the same starts: for more samples, raise `episodes`.
        Not a number for seeds whose models have diverged.
        """
        experiment = self.experiment
        arguments.whole("episodes", episodes)
        vectors = self._checked(theta)
        rows = vectors.tolist()
        key = jax.random.fold_in(jax.random.key(experiment.seed), Purpose.PLAYING)
        returns = greedy_returns(
            experiment.family,
            experiment.learner.policy,
            jax.tree.map(jnp.asarray, self._models(agent, 0)),
            jnp.asarray(vectors),
            key,
            episodes=episodes,
            gamma=experiment.learner.gamma,
            numbers=jnp.asarray([rows.index(row) for row in rows]),
            each=each,
        )
        host: Returns = jax.device_get(returns)
        experiment.family.raise_trouble()
        return host

    @overload
    def adapt(
        self, environment: "gymnasium.Env[Any, Any]", **settings: Unpack[AdaptationSettings]
    ) -> Adapted: ...

    @overload
    def adapt(
        self,
        environment: Sequence[Any] | Array | None = None,
        **settings: Unpack[AdaptationSettings],
    ) -> "Run": ...

    def adapt(
        self,
        environment: Any = None,
        **settings: Unpack[AdaptationSettings],
    ) -> "Run | Adapted":
        """Go on learning in new environments, one agent in each, and return what they learnt.

        `environment` is a list of thetas, or a Gymnasium environment of the right shape; the run's
        held-out environments unless given. For thetas every seed of the run is adapted, and the
        result is a run below this one (or in `out`); in a Gymnasium environment it is the model of
        `seed`. `AdaptationSettings` says what else there is to choose.
        """
        how = Adaptation.from_settings(settings)
        console = new_console(quiet=not settings.get("progress", True))
        before, inside = self.experiment, hasattr(environment, "action_space")
        seed = settings.get("seed", 0) if inside else 0
        if inside:
            thetas = np.zeros((before.seeds, 1, 0), np.float32)  # nobody knows it
        elif environment is None:
            thetas = held_out_thetas(before)
        else:
            thetas = np.tile(self._checked(environment), (before.seeds, 1, 1))
        experiment = experiment_of(how, before, thetas.shape[1])
        models = self._models(None, seed)
        if how.method != "scratch":
            self._refuse_diverged(models, [seed] if inside else range(before.seeds))
        start = start_of(how, before, models, thetas)
        if inside:
            return _adapted_in(environment, experiment, start, seed, console)
        out = Path(settings.get("out") or self.path / "adapted")
        (directory,) = begin([experiment], out, start)
        go_on(directory, console)
        return Run(directory.path)

    def _checked(self, theta: Any) -> Array:
        """Thetas as rows."""
        number = isinstance(theta, np.ndarray) and theta.ndim == 0
        if not isinstance(theta, (list, tuple, np.ndarray)) or number or len(theta) == 0:
            raise FedrlError(f"theta must be a list of environments, got {theta!r}")
        return np.stack([self.experiment.family.check_theta(one) for one in theta])

    def _refuse_diverged(self, models: Any, seeds: Sequence[int]) -> None:
        """Refuse seeds whose parameters are not finite."""
        leaves = jax.tree.leaves(models)
        bad = [s for s in seeds if not all(np.isfinite(leaf[s]).all() for leaf in leaves)]
        if bad:
            raise FedrlError(
                f"the parameters of seed {bad[0]} of {self.path} are not finite numbers (so it is "
                f"with {len(bad)} of {self.experiment.seeds} seeds): train again with smaller "
                "steps or rewards"
            )

    def _models(self, agent: int | None, seed: int) -> Any:
        """Parameters of one model of every seed."""
        experiment = self.experiment
        arguments.whole("seed", seed, smallest=0, largest=experiment.seeds - 1)
        if agent is not None:
            if not experiment.has_own_models:
                raise FedrlError(
                    "all agents of this run have the averaged model: leave `agent` out"
                )
            arguments.whole("agent", agent, smallest=0, largest=experiment.agents - 1)
        index = 0 if agent is None else agent + 1
        stored = self._directory.models()
        structure = shape_of_models(experiment)
        if index >= min(leaf.shape[1] for leaf in stored.values()):
            raise FedrlError(
                "the agents of this run kept their own models on their machines: leave `agent` out"
            )
        leaves = [stored[name][:, index] for name in named_leaves(structure)]
        return jax.tree.unflatten(jax.tree.structure(structure), leaves)


def _adapted_in(
    env: "gymnasium.Env[Any, Any]",
    experiment: Experiment,
    start: Start,
    seed: int,
    console: Console,
) -> Adapted:
    title = f"{experiment.name} in {env.spec.id if env.spec else env}"
    with RunProgress(title, console) as watcher:
        watcher.begin(experiment.updates, 0)
        before = 0

        def told(trained: int, value: float) -> None:
            nonlocal before
            watcher.headline(f"return {value:.1f}")
            watcher.advance(trained - before)
            before = trained

        return adapt_in(
            env,
            experiment.family,
            experiment.learner,
            jax.tree.map(lambda leaf: jnp.asarray(leaf[seed, 0]), start.params),
            updates=experiment.updates,
            unit=experiment.unit,
            every=experiment.evaluation.every,
            episodes=experiment.evaluation.episodes,
            seed=(experiment.seed + seed) % 2**31,
            told=told,
        )
