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
    cut: bool


class Learnt(NamedTuple):
    """What may be learnt from some steps in a row."""

    observation: Any
    action: Any
    reward: Any
    following: Any
    terminated: bool
    discount: float
    cut: bool


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

    def __init__(self, settings, capacity, gamma):
        self.settings, self.capacity, self.gamma = settings, capacity, gamma
        self.steps = []

    def remember(self, *step):
        self.steps.append(Step(*step))

    def rows(self):
        """All rows there ever were, oldest first."""
        n = self.settings.n_step
        whole = len(self.steps) // n * n
        return [self._row(self.steps[i : i + n]) for i in range(0, whole, n)]

    def _row(self, steps):
        lived = []
        for step in steps:
            lived.append(step)
            if step.terminated or step.cut:
                break
        reward = sum(self.gamma**i * float(step.reward) for i, step in enumerate(lived))
        last, dtype = lived[-1], self.settings.dtype
        return Learnt(
            rounded(lived[0].observation, dtype),
            rounded(lived[0].action, dtype),
            rounded(reward, dtype)[0],
            rounded(last.following, dtype),
            bool(last.terminated),
            0.0 if last.terminated else self.gamma ** len(lived),
            bool(last.cut and not last.terminated),
        )

    def there(self):
        """Row by place in the ring: what it may teach, or None."""
        rows = self.rows()
        found = {}
        for number in range(max(len(rows) - self.capacity, 0), len(rows)):
            row = rows[number]
            lost = self.settings.layout == "once" and row.cut and number < len(rows) - 1
            found[number % self.capacity] = None if lost else row
        return found

    def recall(self, uniform):
        """The rows that these numbers pick."""
        there = self.there()
        size = np.float32(len(there))
        picked = [there[min(int(np.float32(u) * size), len(there) - 1)] for u in uniform]
        if all(row is None for row in picked):
            return [self.rows()[-1]] * len(picked)
        # One that teaches nothing gives way to the pick before it that does.
        instead = []
        for i in range(len(picked)):
            while picked[i] is None:
                i -= 1
            instead.append(picked[i])
        return instead
