"""Runs that nobody has trained: what others would get of them, experiment.toml and models.npz."""

from dataclasses import replace

import numpy as np

import fedrl
from fedrl.engine.client import shape_of_models
from fedrl.experiment.toml import to_toml
from fedrl.learners.ddpg import DDPG
from fedrl.learners.personalisation import Personal
from fedrl.trees import named_leaves
from probes import Pendulum
from tiny import LEARNER, TINY

EVERYTHING = Personal(embedding=2, head=True, normalisation=True)
PERSONAL = replace(
    TINY,
    name="personal",
    learner=replace(LEARNER, personal=Personal(embedding=2, embedding_range=0.5)),
)
MORE_PERSONAL = replace(PERSONAL, name="more", learner=replace(LEARNER, personal=EVERYTHING))


PENDULUM = replace(
    TINY,
    name="pendulum",
    family=Pendulum(time_limit=20),
    learner=DDPG(
        hidden=(8,), action_layer=0, batch=4, replay=64, learning_starts=8, personal=EVERYTHING
    ),
)


def same_bits(a, b):
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def models(run):
    with np.load(run.path / "models.npz") as arrays:
        return dict(arrays)


def start(run):
    with np.load(run.path / "start.npz") as arrays:
        return dict(arrays)


def is_private(name, experiment):
    """Whether a leaf is private, from its name; the networks have one hidden layer."""
    return "view/" in name or (experiment.learner.personal.head and "/layers/1/" in name)


def publish(experiment, folder):
    """A run with made-up models: the average, then the agents' own ones where they have any."""
    rng = np.random.default_rng(1)
    shapes = named_leaves(shape_of_models(experiment))
    arrays = {}
    for name, leaf in shapes.items():
        array = rng.uniform(-0.7, 0.7, (experiment.seeds, *leaf.shape)).astype(np.float32)
        if "normaliser" in name:  # variances are positive, and counts are whole
            array = np.full_like(array, 10) if name.endswith("count") else abs(array) + 0.1
        if not is_private(name, experiment):
            array[:] = array[:, :1]
        elif array.shape[1] > 1:
            array[:, 0] = array[:, 1:].mean(1)
        arrays[name] = array
    path = folder / experiment.directory_name
    path.mkdir(parents=True)
    (path / "experiment.toml").write_text(to_toml(experiment))
    np.savez(path / "models.npz", **arrays)
    return fedrl.Run(path)
