"""All actors and critics of a process at once (see `stacking`); robots one after another.

Each layer is weights (n, in, out) and bias (n, 1, out). The action has weights of its own in the
critic's second layer, and the critic's last weights are a row: a product with a single column would
be slower than multiplying and adding up.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from benchmarks.peers.ddpg import common
from benchmarks.peers.ddpg.common import ROBOTS, environment
from benchmarks.peers.group import Array, Episode, Work, torch_for
from benchmarks.peers.stacking import Parameters, Shapes, adam, compiled, joined

Hidden = tuple[int, ...]


class Columns(NamedTuple):
    """Where things are in a row of the replay."""

    observation: slice
    action: slice
    following: slice
    reward: slice
    discount: slice
    width: int


def columns(observation: int, action: int) -> Columns:
    ends = np.cumsum([0, observation, action, observation, 1, 1]).tolist()
    first, second, third, fourth, fifth = (slice(a, b) for a, b in pairwise(ends))
    return Columns(first, second, third, fourth, fifth, ends[-1])


def actor_shapes(n: int, robot: str, hidden: Hidden) -> tuple[Shapes, list[float]]:
    """And PyTorch's own range of the first values."""
    observation, action = ROBOTS[robot]
    found: Shapes = []
    scales: list[float] = []
    for inputs, outputs in ((observation, hidden[0]), hidden, (hidden[1], action)):
        found += [(n, inputs, outputs), (n, 1, outputs)]
        scales += [inputs**-0.5] * 2
    return found, scales


def critic_shapes(n: int, robot: str, hidden: Hidden) -> tuple[Shapes, list[float]]:
    """And PyTorch's own range of the first values."""
    observation, action = ROBOTS[robot]
    first, second = hidden
    found: Shapes = [(n, observation, first), (n, 1, first)]
    found += [(n, first, second), (n, action, second), (n, 1, second)]
    found += [(n, 1, second), (n, 1, 1)]
    inputs = [observation] * 2 + [first + action] * 3 + [second] * 2
    return found, [count**-0.5 for count in inputs]


def act(torch: Any, tensors: list[Any], x: Any) -> tuple[Any, Any, Any]:
    """What every layer gives."""
    w1, b1, w2, b2, w3, b3 = tensors
    first = torch.baddbmm(b1, x, w1).relu()
    second = torch.baddbmm(b2, first, w2).relu()
    return first, second, torch.baddbmm(b3, second, w3).tanh()


def value(torch: Any, tensors: list[Any], x: Any, action: Any) -> tuple[Any, Any, Any]:
    """What every layer gives."""
    w1, b1, w2, wa, b2, w3, b3 = tensors
    first = torch.baddbmm(b1, x, w1).relu()
    second = (torch.baddbmm(b2, first, w2) + torch.bmm(action, wa)).relu()
    return first, second, (second * w3).sum(2, keepdim=True) + b3


def layer_gradient(torch: Any, inputs: Any, slope: Any) -> list[Any]:
    """Of weights and bias, given that of what they give."""
    return [torch.bmm(inputs.transpose(1, 2), slope), slope.sum(1)]


def critic_gradient(torch: Any, tensors: list[Any], x: Any, action: Any, wanted: Any) -> Any:
    """Of the mean squared error, agent by agent."""
    _, _, w2, _, _, w3, _ = tensors
    first, second, found = value(torch, tensors, x, action)
    error = (found - wanted) * (2 / x.shape[1])
    slope = torch.where(second > 0, error * w3, 0.0)
    below = torch.where(first > 0, torch.bmm(slope, w2.transpose(1, 2)), 0.0)
    weights, bias = layer_gradient(torch, first, slope)
    of_action = torch.bmm(action.transpose(1, 2), slope)
    last = [(error * second).sum(1), error.sum(1)]
    return joined(torch, [*layer_gradient(torch, x, below), weights, of_action, bias, *last])


def actor_gradient(torch: Any, tensors: list[Any], critic: list[Any], x: Any) -> Any:
    """Of minus the mean value, agent by agent: back to the action and no further."""
    _, _, w2, _, w3, _ = tensors
    first, second, action = act(torch, tensors, x)
    of_critic = value(torch, critic, x, action)[1]
    slope = torch.where(of_critic > 0, critic[5] * (-1 / x.shape[1]), 0.0)
    slope = torch.bmm(slope, critic[3].transpose(1, 2)) * (1 - action * action)
    below = torch.where(second > 0, torch.bmm(slope, w3.transpose(1, 2)), 0.0)
    lowest = torch.where(first > 0, torch.bmm(below, w2.transpose(1, 2)), 0.0)
    layers = ((x, lowest), (first, below), (second, slope))
    return joined(torch, [part for layer in layers for part in layer_gradient(torch, *layer)])


def actions(arrays: list[Array], x: Array) -> Array:
    """Of one observation per agent, shape (n, 1, observation)."""
    for i in (0, 2, 4):
        x = np.matmul(x, arrays[i])
        x += arrays[i + 1]
        if i < 4:
            np.maximum(x, 0, out=x)
    found: Array = np.tanh(x[:, 0])
    return found


class Stacked:
    """The agents of one process, all at once."""

    def __init__(self, work: Work, agents: list[int]) -> None:
        self.torch = torch = torch_for(work)
        self.n, self.batch = len(agents), work.batch
        self.random = np.random.default_rng((work.seed, *agents))
        self.robots = [environment(work) for _ in agents]
        resets = (
            robot.reset(seed=work.seed + i)[0] for i, robot in zip(agents, self.robots, strict=True)
        )
        self.observation = np.stack([*resets]).astype(np.float32)
        self.actor = Parameters(torch, *actor_shapes(self.n, work.robot, work.hidden), work.seed)
        self.critic = Parameters(torch, *critic_shapes(self.n, work.robot, work.hidden), work.seed)
        self.count = torch.zeros(())
        # Whole transitions in one row, so that a batch is one gather; NumPy writes, PyTorch reads.
        self.columns = columns(*ROBOTS[work.robot])
        self.replay = np.zeros((self.n, common.CAPACITY, self.columns.width), np.float32)
        self.rows = torch.from_numpy(self.replay).view(-1, self.columns.width)
        self.offsets = np.arange(self.n)[:, None] * common.CAPACITY
        self.steps = self.updates = 0
        self.collected = np.zeros(self.n)
        self.finished: list[Episode] = []
        self.update = compiled(torch, work, self._update)

    def step(self, noise: Array) -> None:
        """One step of every robot, stored; `noise` is the whole action before learning starts."""
        chosen = noise
        if self.steps >= common.LEARNING_STARTS:
            chosen = np.clip(actions(self.actor.arrays, self.observation[:, None]) + noise, -1, 1)
        at = self.columns
        row = self.replay[:, self.steps % common.CAPACITY]
        row[:, at.observation], row[:, at.action] = self.observation, chosen
        self.steps += 1
        for i, robot in enumerate(self.robots):
            following, reward, terminated, truncated, _ = robot.step(chosen[i])
            row[i, at.following] = following
            row[i, at.reward] = reward
            row[i, at.discount] = 0.0 if terminated else common.GAMMA
            self.collected[i] += reward
            if terminated or truncated:
                self.finished.append((self.steps, float(self.collected[i])))
                self.collected[i] = 0.0
                following = robot.reset()[0]
            self.observation[i] = following

    def _update(self, actor: Any, critic: Any, targets: Any, moments: Any, rest: Any) -> None:
        """One update of every agent on these rows of the replay, in place."""
        torch, at = self.torch, self.columns
        count, rows = rest
        of_actor, of_critic = self.actor.layout.views, self.critic.layout.views
        batch = self.rows.index_select(0, rows).view(self.n, self.batch, at.width)
        x, following = batch[..., at.observation], batch[..., at.following]
        best = act(torch, of_actor(targets[0]), following)[2]
        best = value(torch, of_critic(targets[1]), following, best)[2]
        wanted = batch[..., at.reward] + batch[..., at.discount] * best
        count.add_(1)
        slope = critic_gradient(torch, of_critic(critic), x, batch[..., at.action], wanted)
        adam(critic, moments[1], count, slope, common.LEARNING_RATE)
        slope = actor_gradient(torch, of_actor(actor), of_critic(critic), x)
        adam(actor, moments[0], count, slope, common.LEARNING_RATE)
        targets[0].lerp_(actor, common.TAU)
        targets[1].lerp_(critic, common.TAU)

    def learn(self, rows: Any) -> None:
        actor, critic = self.actor, self.critic
        self.update(
            actor.online,
            critic.online,
            (actor.target, critic.target),
            (actor.moments, critic.moments),
            (self.count, rows),
        )
        self.updates += 1

    def advance(self, steps: int) -> None:
        # Everything random is drawn at once.
        action = self.columns.action
        shape = (steps, self.n, action.stop - action.start)
        noise = common.SIGMA * self.random.standard_normal(shape, np.float32)
        before = max(0, min(common.LEARNING_STARTS - self.steps, steps))
        noise[:before] = self.random.uniform(-1, 1, (before, *shape[1:]))
        stored = np.minimum(self.steps + np.arange(steps) + 1, common.CAPACITY)[:, None, None]
        rows = (self.random.random((steps, self.n, self.batch)) * stored).astype(np.int64)
        rows += self.offsets
        samples = self.torch.from_numpy(rows.reshape(steps, -1)).unbind()
        with self.torch.no_grad():
            for i in range(steps):
                self.step(noise[i])
                if self.steps > common.LEARNING_STARTS:
                    self.learn(samples[i])

    def parameters(self) -> list[Array]:
        return self.actor.arrays + self.critic.arrays

    def load(self, means: list[Array]) -> None:
        split = len(self.actor.arrays)
        self.actor.load(means[:split])
        self.critic.load(means[split:])

    def episodes(self) -> list[Episode]:
        return self.finished


build = Stacked
