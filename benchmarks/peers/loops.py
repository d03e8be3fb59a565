"""Agents of one process that are trained one after another, each by a loop of its own."""

from typing import Any, Protocol

import numpy as np

from benchmarks.peers.group import Array, Episode, Work, torch_for


class Agent(Protocol):
    """One agent with its environment, its replay and its optimiser."""

    steps: int
    updates: int
    networks: Any
    """A PyTorch module with all that is averaged."""
    episodes: list[Episode]

    def step(self) -> None:
        """One step of the environment, stored."""

    def update(self) -> None:
        """One update on a batch from the replay."""


class Loops:
    """The agents of one process."""

    def __init__(self, work: Work, agents: list[Agent]) -> None:
        self.torch = torch_for(work)
        self.learning_starts = work.learning_starts
        self.agents = agents

    @property
    def updates(self) -> int:
        return self.agents[0].updates

    def advance(self, steps: int) -> None:
        for agent in self.agents:
            for _ in range(steps):
                agent.step()
                if agent.steps > self.learning_starts:
                    agent.update()

    def parameters(self) -> list[Array]:
        states = [agent.networks.state_dict() for agent in self.agents]
        return [np.stack([state[name].numpy() for state in states]) for name in states[0]]

    def load(self, means: list[Array]) -> None:
        state = dict(
            zip(
                self.agents[0].networks.state_dict(),
                map(self.torch.from_numpy, means),
                strict=True,
            )
        )
        for agent in self.agents:
            agent.networks.load_state_dict(state)

    def episodes(self) -> list[Episode]:
        return [episode for agent in self.agents for episode in agent.episodes]
