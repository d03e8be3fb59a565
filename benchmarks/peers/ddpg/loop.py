"""A training loop in one file for each agent, as in CleanRL, one agent after another.

The critic is that of the DDPG paper, and ours: the action enters its second layer.
"""

from copy import deepcopy
from typing import Any

import numpy as np

from benchmarks.peers.ddpg import common
from benchmarks.peers.ddpg.common import ROBOTS, environment
from benchmarks.peers.group import Array, Episode, Work, torch_for
from benchmarks.peers.loops import Loops


class Learner:
    """Actor, critic, their targets, and how they are updated."""

    def __init__(self, work: Work) -> None:
        self.torch = torch = torch_for(work)
        nn = torch.nn
        observation, action = ROBOTS[work.robot]
        first, second = work.hidden
        torch.manual_seed(work.seed)  # all agents begin with the same parameters
        self.actor = nn.Sequential(
            nn.Linear(observation, first),
            nn.ReLU(),
            nn.Linear(first, second),
            nn.ReLU(),
            nn.Linear(second, action),
            nn.Tanh(),
        )
        self.critic = nn.ModuleList(
            [nn.Linear(observation, first), nn.Linear(first + action, second), nn.Linear(second, 1)]
        )
        self.networks = nn.ModuleList([self.actor, self.critic])
        self.targets = deepcopy(self.networks).requires_grad_(False)
        self.actor_parameters = list(self.actor.parameters())
        # On a CPU the default would go through the parameters in Python.
        settings = {"lr": common.LEARNING_RATE, "fused": True}
        self.actor_optimiser = torch.optim.Adam(self.actor_parameters, **settings)
        self.critic_optimiser = torch.optim.Adam(self.critic.parameters(), **settings)
        self.pairs = list(zip(self.targets.parameters(), self.networks.parameters(), strict=True))

    def value(self, critic: Any, observations: Any, actions: Any) -> Any:
        torch = self.torch
        x = torch.relu(critic[0](observations))
        x = torch.relu(critic[1](torch.cat([x, actions], 1)))
        return critic[2](x)

    def act(self, observation: Array) -> Array:
        with self.torch.no_grad():
            action: Array = self.actor(self.torch.from_numpy(observation)).numpy()
        return action

    def update(
        self, observations: Any, actions: Any, rewards: Any, following: Any, terminal: Any
    ) -> None:
        """One step of the critic, then one of the actor, then one of the targets."""
        torch = self.torch
        with torch.no_grad():
            actor, critic = self.targets
            best = self.value(critic, following, actor(following))
            wanted = rewards + common.GAMMA * (1 - terminal) * best
        found = self.value(self.critic, observations, actions)
        loss = torch.nn.functional.mse_loss(found, wanted)
        self.critic_optimiser.zero_grad()
        loss.backward()
        self.critic_optimiser.step()
        loss = -self.value(self.critic, observations, self.actor(observations)).mean()
        self.actor_optimiser.zero_grad()
        # Without `inputs` the critic's gradient would be computed too, and thrown away.
        loss.backward(inputs=self.actor_parameters)
        self.actor_optimiser.step()
        with torch.no_grad():
            for target, parameter in self.pairs:
                target.lerp_(parameter, common.TAU)


class Agent:
    """DDPG in one environment, with a ring buffer of NumPy arrays."""

    def __init__(self, work: Work, agent: int) -> None:
        self.batch = work.batch
        self.learner = Learner(work)
        self.networks = self.learner.networks
        self.env = environment(work)
        self.random = np.random.default_rng((work.seed, agent))
        observation, self.action = ROBOTS[work.robot]
        widths = (observation, self.action, 1, observation, 1)
        self.replay = [np.zeros((common.CAPACITY, width), np.float32) for width in widths]
        self.steps = self.updates = 0
        self.episodes: list[Episode] = []
        self.collected = 0.0
        self.observation = self._reset(work.seed + agent)

    def _reset(self, seed: int | None = None) -> Array:
        observation: Array = self.env.reset(seed=seed)[0].astype(np.float32)
        return observation

    def step(self) -> None:
        """One step of the environment, stored."""
        if self.steps < common.LEARNING_STARTS:
            action = self.random.uniform(-1, 1, self.action).astype(np.float32)
        else:
            noise = common.SIGMA * self.random.standard_normal(self.action, np.float32)
            action = np.clip(self.learner.act(self.observation) + noise, -1, 1)
        following, reward, terminated, truncated, _ = self.env.step(action)
        following = following.astype(np.float32)
        at = self.steps % common.CAPACITY
        transition = (self.observation, action, reward, following, terminated)
        for array, value in zip(self.replay, transition, strict=True):
            array[at] = value
        self.steps += 1
        self.collected += float(reward)
        self.observation = following
        if terminated or truncated:
            self.episodes.append((self.steps, self.collected))
            self.collected = 0.0
            self.observation = self._reset()

    def update(self) -> None:
        """One update on a batch from the replay."""
        rows = self.random.integers(min(self.steps, common.CAPACITY), size=self.batch)
        self.learner.update(*(self.learner.torch.from_numpy(array[rows]) for array in self.replay))
        self.updates += 1


def build(work: Work, agents: list[int]) -> Loops:
    return Loops(work, [Agent(work, agent) for agent in agents])
