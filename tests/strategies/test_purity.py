"""Parts that remember something where programs do not look are noticed, wherever they run."""

import random
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import jax
import numpy as np
import optax
import pytest

import fedrl
from fedrl.errors import FedrlError
from fedrl.strategies.aggregators import Aggregator, Mean, mean
from fedrl.strategies.corrections import NoCorrection
from fedrl.strategies.server_optimizers import Replace, ServerOptimizer
from fedrl.tabular.experiment import TabularExperiment
from fedrl.tabular.families import WindyCliffs
from in_process import Federation
from tiny import TINY

rounds_so_far = 0
history = []


@dataclass(frozen=True)
class Counts(Aggregator):
    name: ClassVar[str] = "counts"
    linear: ClassVar[bool] = True

    def apply(self, stacked, communication):
        global rounds_so_far
        rounds_so_far += 1
        return mean(stacked)


@dataclass(frozen=True)
class Appends(NoCorrection):
    """In a function that its own one calls."""

    name: ClassVar[str] = "appends"

    def correct(self, step, memory):
        remember(len(history))
        return step.direction, memory


def remember(value):
    history.append(value)


@dataclass(frozen=True)
class OnItself(Replace):
    name: ClassVar[str] = "on itself"
    calls: ClassVar[int] = 0

    def step(self, before, offered, state):
        type(self).calls += 1
        return offered, state


@dataclass(frozen=True)
class Draws(Mean):
    name: ClassVar[str] = "draws"
    source: str = "numpy.random"

    def apply(self, stacked, communication):
        if self.source == "random":
            random.random()
        else:
            np.random.normal()  # noqa: NPY002
        return mean(stacked)


@dataclass(frozen=True)
class InADefault(NoCorrection):
    name: ClassVar[str] = "in a default"

    def correct(self, step, memory, calls=[]):  # noqa: B006
        calls.append(1)
        return step.direction, memory


@dataclass(frozen=True)
class WhereItReceives(NoCorrection):
    """Outside of the step."""

    name: ClassVar[str] = "where it receives"

    def receive(self, memory, counted):
        remember(len(history))
        return memory


class Counter:
    value = 0


@dataclass(frozen=True)
class InAProperty(ServerOptimizer):
    """Where the optimizer is made, and in another class."""

    name: ClassVar[str] = "in a property"

    @property
    def optimizer(self):
        Counter.value += 1
        return optax.sgd(1.0)


BAD = {
    "a module variable": ({"aggregator": Counts()}, "Counts changes .*rounds_so_far"),
    "a list": ({"correction": Appends()}, "Appends changes .*history"),
    "a class variable": ({"server_optimizer": OnItself()}, r"OnItself changes OnItself\.calls"),
    "a default": ({"correction": InADefault()}, "InADefault changes a default of .*correct"),
    "receive": ({"correction": WhereItReceives()}, "WhereItReceives changes .*history"),
    "a property": ({"server_optimizer": InAProperty()}, r"InAProperty changes Counter\.value"),
    "numpy": ({"aggregator": Draws()}, r"Draws draws random numbers from numpy\.random"),
    "random": ({"aggregator": Draws(source="random")}, "Draws draws random numbers from random"),
}


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("kind", BAD)
def test_hidden_state_is_noticed_when_networks_are_trained(tmp_path, kind):
    parts, said = BAD[kind]
    with pytest.raises(FedrlError, match=said):
        fedrl.train(replace(TINY, **parts), out=tmp_path, progress=False)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("kind", BAD)
def test_and_when_tables_are(kind):
    parts, said = BAD[kind]
    experiment = TabularExperiment("cliffs", WindyCliffs(), E=3, updates=9, lr=0.5, **parts)
    with pytest.raises(FedrlError, match=said):
        experiment.run()


@pytest.mark.usefixtures("hasty")
def test_and_over_a_network(tmp_path):
    experiment = TabularExperiment(
        "cliffs", WindyCliffs(), E=3, updates=9, lr=0.5, aggregator=Counts()
    )
    with pytest.raises(FedrlError, match="Counts changes"):
        Federation(experiment, tmp_path).run()


TABLE = {"rows": [1, 2, 3], "array": np.arange(3)}


@dataclass(frozen=True)
class Pure(Mean):
    """What it reads, caches and computes with is its own affair."""

    name: ClassVar[str] = "pure"
    factor: ClassVar[float] = 1.0

    @cached_property
    def shares(self):
        return np.ones(3) * self.factor * len(TABLE["rows"])

    def apply(self, stacked, communication):
        assert self.shares.sum() == 9
        jax.random.normal(communication.key)
        return mean(stacked)


@pytest.mark.usefixtures("hasty")
def test_a_part_that_only_reads_is_not_accused():
    plain = TabularExperiment("cliffs", WindyCliffs(), E=3, updates=9, lr=0.5)
    one, other = replace(plain, aggregator=Pure()).run(), plain.run()
    np.testing.assert_array_equal(one.shared, other.shared)
