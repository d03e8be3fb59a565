"""Experiments that are over in a second, and compiled programs that are shared between tests."""

from contextlib import contextmanager

import jax
from jax.experimental.compilation_cache import compilation_cache

from fedrl import Experiment
from fedrl.experiment.settings import Evaluation
from fedrl.families import CartPoles
from fedrl.learners.dqn import DQN
from fedrl.progress import Silence

LEARNER = DQN(hidden=(8,), batch=4, replay=64, learning_starts=8, lr=1e-2, gamma=0.9)
TINY = Experiment(
    name="tiny",
    family=CartPoles(time_limit=20),
    learner=LEARNER,
    agents=2,
    held_out=2,
    E=10,
    updates=60,
    evaluation=Evaluation(every=20, episodes=1),
    seeds=2,
)


def begin(engine, replicate):
    """Untrained agents in environments drawn for them."""
    environments = engine.environments(replicate, engine.thetas(replicate))
    return engine.begin(engine.first_params(replicate), environments)


def go_on(engine, federation, replicate, rounds, E, **how):
    """Rounds of an engine, in the environments it has drawn."""
    environments = engine.environments(replicate, engine.thetas(replicate))
    return engine.advance(federation, environments, rounds, E, **how)


class Died(Exception):  # noqa: N818
    """The end of the process, as far as the run is concerned."""


class DiesAfter(Silence):
    """Lets a run go for so many seeds' legs."""

    def __init__(self, legs):
        self.legs = legs

    def advance(self, amount):
        self.legs -= 1
        if self.legs == 0:
            raise Died


def results(path):
    """What a finished run has come to."""
    return {name: (path / name).read_bytes() for name in ("metrics.csv", "models.npz")}


def contents(path):
    """Everything in a folder but the lock, with the time it was written."""
    files = (file for file in path.rglob("*") if file.name != ".lock")
    return {str(file.relative_to(path)): file.stat().st_mtime_ns for file in files}


SETTINGS = {
    "jax_compilation_cache_dir": None,
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


@contextmanager
def compilations_kept(tmp_path_factory):
    """Compile equal programs once in all of these tests, in a folder that goes away with them."""
    base = tmp_path_factory.getbasetemp()
    # The workers of a parallel run have folders of their own below a common one.
    folder = (base.parent if base.name.startswith("popen-") else base) / "compiled"
    before = {name: getattr(jax.config, name) for name in SETTINGS}
    for name, value in (SETTINGS | {"jax_compilation_cache_dir": str(folder)}).items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    try:
        yield folder
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
