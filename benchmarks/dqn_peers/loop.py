"""A plain PyTorch training loop per agent, one agent after another."""

from typing import Any

import numpy as np

from benchmarks.dqn_peers import common
from benchmarks.dqn_peers.common import Array, Episode, Work, cart_pole, epsilon, need


class Agent:
    """DQN on one environment, with a ring buffer of NumPy arrays."""

    def __init__(self, work: Work, agent: int) -> None:
        self.torch = torch = need("torch")
        self.batch = work.batch
        self.env = cart_pole(work, agent)
        self.random = np.random.default_rng((work.seed, agent))
        torch.manual_seed(work.seed)  # all agents begin with the same parameters
        self.network = self._network(work.hidden)
        self.target = self._network(work.hidden)
        self.target.load_state_dict(self.network.state_dict())
        # On a CPU the default would go through the parameters in Python.
        self.optimiser = torch.optim.Adam(
            self.network.parameters(), lr=common.LEARNING_RATE, fused=True
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
                action = int(self.network(self.torch.from_numpy(self.observation)).argmax())
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
        loss = torch.nn.functional.mse_loss(self.network(observations).gather(1, actions), wanted)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.updates += 1
        if self.updates % common.TARGET_INTERVAL == 0:
            self.target.load_state_dict(self.network.state_dict())


class Loops:
    """The agents of one process, one after another."""

    def __init__(self, work: Work, agents: list[int]) -> None:
        self.agents = [Agent(work, agent) for agent in agents]

    @property
    def updates(self) -> int:
        return self.agents[0].updates

    def advance(self, steps: int) -> None:
        for agent in self.agents:
            for _ in range(steps):
                agent.step()
                if agent.steps > common.LEARNING_STARTS:
                    agent.update()

    def parameters(self) -> list[Array]:
        states = [agent.network.state_dict() for agent in self.agents]
        return [np.stack([state[name].numpy() for state in states]) for name in states[0]]

    def load(self, means: list[Array]) -> None:
        for agent in self.agents:
            tensors = map(agent.torch.from_numpy, means)
            state = dict(zip(agent.network.state_dict(), tensors, strict=True))
            agent.network.load_state_dict(state)

    def episodes(self) -> list[Episode]:
        return [episode for agent in self.agents for episode in agent.episodes]


build = Loops
