"""Local engines for tests, and the same ones with other settings."""

from dataclasses import replace

from fedrl import Evaluation, Experiment
from fedrl.engine.local_engine import LocalEngine


def engine_of(family, learner, agents=1, **changes):
    """The engine of an experiment that is never evaluated."""
    evaluation = Evaluation(every=1000, episodes=1)
    experiment = Experiment("engine", family, learner, agents=agents, evaluation=evaluation)
    return LocalEngine(replace(experiment, **changes))


def changed(engine, **changes):
    """The engine of the same experiment with other settings."""
    return LocalEngine(replace(engine.experiment, **changes))
