"""A training loop in one file for each agent, as in CleanRL, one agent after another.

What CleanRL has besides is left out, and all of it would cost time: a vector of one environment
around the environment, the replay of Stable-Baselines3, log lines, Adam that goes through the
parameters in Python.
"""

from typing import Any

import numpy as np

from benchmarks.peers.dqn import common
from benchmarks.peers.dqn.common import cart_pole, epsilon
from benchmarks.peers.group import Episode, Work, torch_for
from benchmarks.peers.loops import Loops


class Agent:
    """DQN on one environment, with a ring buffer of NumPy arrays."""

    def __init__(self, work: Work, agent: int) -> None:
        self.torch = torch = torch_for(work)
        self.batch = work.batch
        self.env = cart_pole(work, agent)
        self.random = np.random.default_rng((work.seed, agent))
        torch.manual_seed(work.seed)  # all agents begin with the same parameters
        self.networks = self._network(work.hidden)
        self.target = self._network(work.hidden)
        self.target.load_state_dict(self.networks.state_dict())
        # On a CPU the default would go through the parameters in Python.
        self.optimiser = torch.optim.Adam(
            self.networks.parameters(), lr=common.LEARNING_RATE, fused=True
        )
        self.observations = np.zeros((common.CAPACITY, common.OBSERVATION), np.float32)
        self.following = np.zeros_like(self.observations)
        self.actions = np.zeros((common.CAPACITY, 1), np.int64)
        self.rewards = np.zeros((common.CAPACITY, 1), np.float32)
        self.terminal = np.zeros((common.CAPACITY, 1), np.float32)
        self.steps = self.updates = 0
        self.episodes: list[Episode] = []
        self.collected = 0.0
        self.observation, _ = self.env.reset(seed=work.seed + agent)

    def _network(self, hidden: tuple[int, ...]) -> Any:
        nn = self.torch.nn
        layers, width = [], common.OBSERVATION
        for units in hidden:
            layers += [nn.Linear(width, units), nn.ReLU()]
            width = units
        return nn.Sequential(*layers, nn.Linear(width, common.ACTIONS))

    def step(self) -> None:
        """One step of the environment, stored."""
        if self.random.random() < epsilon(self.steps):
            action = int(self.random.integers(common.ACTIONS))
        else:
            with self.torch.no_grad():
                action = int(self.networks(self.torch.from_numpy(self.observation)).argmax())
        following, reward, terminated, truncated, _ = self.env.step(action)
        at = self.steps % common.CAPACITY
        self.observations[at], self.following[at] = self.observation, following
        self.actions[at], self.rewards[at], self.terminal[at] = action, reward, terminated
        self.steps += 1
        self.collected += reward
        self.observation = following
        if terminated or truncated:
            self.episodes.append((self.steps, self.collected))
            self.collected = 0.0
            self.observation, _ = self.env.reset()

    def update(self) -> None:
        """One gradient update on a batch from the replay."""
        torch = self.torch
        rows = self.random.integers(min(self.steps, common.CAPACITY), size=self.batch)
        observations = torch.from_numpy(self.observations[rows])
        actions = torch.from_numpy(self.actions[rows])
        following = torch.from_numpy(self.following[rows])
        rewards = torch.from_numpy(self.rewards[rows])
        terminal = torch.from_numpy(self.terminal[rows])
        with torch.no_grad():
            best = self.target(following).amax(1, keepdim=True)
            wanted = rewards + common.GAMMA * (1 - terminal) * best
        loss = torch.nn.functional.mse_loss(self.networks(observations).gather(1, actions), wanted)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.updates += 1
        if self.updates % common.TARGET_INTERVAL == 0:
            self.target.load_state_dict(self.networks.state_dict())


def build(work: Work, agents: list[int]) -> Loops:
    return Loops(work, [Agent(work, agent) for agent in agents])
