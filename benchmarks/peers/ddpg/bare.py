"""The updates of `loop` on one batch again and again: the most that such a loop could do.

One agent in each process (`--agents 2`), so that both cores are always busy; nothing is averaged.
"""

from typing import Any

from benchmarks.peers.ddpg.common import ROBOTS
from benchmarks.peers.ddpg.loop import Learner
from benchmarks.peers.group import Array, Episode, Work


class Bare:
    """An agent that never acts."""

    def __init__(self, work: Work, agents: list[int]) -> None:
        (agent,) = agents
        self.learner = Learner(work)
        random = self.learner.torch.Generator().manual_seed(agent)
        observation, action = ROBOTS[work.robot]
        widths = (observation, action, 1, observation, 1)
        rand = self.learner.torch.rand
        self.batch: list[Any] = [rand(work.batch, width, generator=random) for width in widths]
        self.updates = 0

    def advance(self, steps: int) -> None:
        for _ in range(steps):
            self.learner.update(*self.batch)
        self.updates += steps

    def parameters(self) -> list[Array]:
        return []

    def load(self, means: list[Array]) -> None:
        pass

    def episodes(self) -> list[Episode]:
        return []


build = Bare
