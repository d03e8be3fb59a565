"""An agent's memory as one writes it first: everything that was met, in a list, for ever."""

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

ROUNDED = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


class Step(NamedTuple):
    observation: Any
    action: Any
    reward: Any
    following: Any
    terminated: bool


def rounded(values, dtype):
    """As a memory gives back what it was given."""
    kind = ROUNDED[dtype]
    values = np.atleast_1d(np.asarray(values, np.float32))
    if dtype == "float32":
        return values
    largest = np.float32(ml_dtypes.finfo(kind).max)
    return np.clip(values, -largest, largest).astype(kind).astype(np.float32)


class ObviousMemory:
    """What a memory with these settings may teach, from all that has happened."""

    def __init__(self, settings, capacity):
        self.settings, self.capacity = settings, capacity
        self.steps = []

    def remember(self, *step):
        self.steps.append(Step(*step))

    def recall(self, uniform):
        """The steps that these numbers pick."""
        there = {}
        for number in range(max(len(self.steps) - self.capacity, 0), len(self.steps)):
            there[number % self.capacity] = self._rounded(self.steps[number])
        size = np.float32(len(there))
        return [there[min(int(np.float32(u) * size), len(there) - 1)] for u in uniform]

    def _rounded(self, step):
        dtype = self.settings.dtype
        return Step(
            rounded(step.observation, dtype),
            rounded(step.action, dtype),
            rounded(step.reward, dtype)[0],
            rounded(step.following, dtype),
            bool(step.terminated),
        )
