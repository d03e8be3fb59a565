"""All CartPoles and all Q-networks of a process at once (see `stacking`)."""

from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.peers.dqn import common
from benchmarks.peers.dqn.common import epsilon, half_lengths
from benchmarks.peers.group import Array, Episode, Work, torch_for
from benchmarks.peers.stacking import Parameters, Shapes, adam, compiled, joined

OBSERVATION = slice(0, 4)
FOLLOWING = slice(4, 8)
ACTION, REWARD, DISCOUNT, WIDTH = 8, 9, 10, 11
DISCOUNTS = np.array([common.GAMMA, 0.0], np.float32)
"""Of a transition that is not terminal, and of one that is."""


class CartPoles:
    """n CartPoles with the physics of Gymnasium's, stepped together."""

    GRAVITY, CART, POLE, FORCE, SECONDS = 9.8, 1.0, 0.1, 10.0, 0.02
    FURTHEST = np.array([[2.4], [12 * 2 * np.pi / 360]])

    def __init__(self, lengths: Array, random: np.random.Generator) -> None:
        self.random = random
        mass = self.CART + self.POLE
        self.share = self.POLE * lengths / mass
        self.inertia = lengths * 4 / 3
        self.pushes = np.array([-self.FORCE, self.FORCE]) / mass
        self.state = random.uniform(-0.05, 0.05, (4, len(lengths)))
        self.age = np.zeros(len(lengths), np.int64)

    def step(self, actions: Array) -> tuple[Array, Array]:
        """The next observations and which are terminal; `restart` comes after."""
        _, speed, angle, turning = state = self.state
        sine, cosine = np.sin(angle), np.cos(angle)
        force = self.pushes[actions] + self.share * turning * turning * sine
        angular = (self.GRAVITY * sine - cosine * force) / (
            self.inertia - self.share * cosine * cosine
        )
        change = np.array([speed, force - self.share * angular * cosine, turning, angular])
        change *= self.SECONDS
        self.state = state + change
        self.age += 1
        far = np.abs(self.state[::2]) > self.FURTHEST
        return self.state, far[0] | far[1]

    def restart(self, which: Array) -> None:
        self.state[:, which] = self.random.uniform(-0.05, 0.05, (4, int(which.sum())))
        self.age[which] = 0


def shapes(n: int, hidden: tuple[int, ...]) -> tuple[Shapes, list[float]]:
    """Of n networks, and PyTorch's own range of the first values.

    Layers are weights (n, in, out) and bias (n, 1, out), but (n, out, in) and (n, out, 1) for the
    last: a product with a matrix of 2 columns takes five times as long as with one of 2 rows.
    """
    sizes = [common.OBSERVATION, *hidden]
    found: Shapes = []
    for inputs, outputs in pairwise(sizes):
        found += [(n, inputs, outputs), (n, 1, outputs)]
    found += [(n, common.ACTIONS, sizes[-1]), (n, common.ACTIONS, 1)]
    return found, [inputs**-0.5 for inputs in sizes for _ in range(2)]


def forward(torch: Any, tensors: list[Any], x: Any) -> tuple[Any, list[Any]]:
    """Values, shape (n, actions, batch), and the input of every layer."""
    inputs = [x]
    for weights, bias in zip(tensors[:-2:2], tensors[1:-2:2], strict=True):
        x = torch.baddbmm(bias, x, weights).relu()
        inputs.append(x)
    return torch.baddbmm(tensors[-1], tensors[-2], x.transpose(1, 2)), inputs


def backward(torch: Any, slope: Any, tensors: list[Any], inputs: list[Any]) -> Any:
    """The gradient of the flat parameters, given that of the values."""
    found = [slope.sum(2), torch.bmm(slope, inputs[-1])]  # from the last to the first
    slope = torch.bmm(slope.transpose(1, 2), tensors[-2])
    for layer in reversed(range(len(inputs) - 1)):
        slope = torch.where(inputs[layer + 1] > 0, slope, 0.0)
        found += [slope.sum(1), torch.bmm(inputs[layer].transpose(1, 2), slope)]
        if layer:
            slope = torch.bmm(slope, tensors[2 * layer].transpose(1, 2))
    return joined(torch, found[::-1])


def greedy(arrays: list[Array], x: Array) -> Array:
    """Greedy actions for one observation per agent, shape (n, 1, 4)."""
    for i in range(0, len(arrays) - 2, 2):
        x = np.matmul(x, arrays[i])
        x += arrays[i + 1]
        np.maximum(x, 0, out=x)
    values = np.matmul(arrays[-2], x.transpose(0, 2, 1))
    values += arrays[-1]
    actions: Array = values[:, :, 0].argmax(axis=1)
    return actions


class Stacked:
    """The agents of one process, all at once."""

    def __init__(self, work: Work, agents: list[int]) -> None:
        self.torch = torch = torch_for(work)
        self.n, self.batch = len(agents), work.batch
        self.random = np.random.default_rng((work.seed, *agents))
        self.poles = CartPoles(half_lengths(work.agents)[agents], self.random)
        self.observation = self.poles.state.T.astype(np.float32)
        self.own = Parameters(torch, *shapes(self.n, work.hidden), work.seed)
        self.count = torch.zeros(())
        # Whole transitions in one row, so that a batch is one gather; NumPy writes, PyTorch reads.
        self.replay = np.zeros((self.n, common.CAPACITY, WIDTH), np.float32)
        self.replay[..., REWARD] = 1.0
        self.rows = torch.from_numpy(self.replay).view(-1, WIDTH)
        self.offsets = np.arange(self.n)[:, None] * common.CAPACITY
        self.steps = self.updates = 0
        self.finished: list[Episode] = []
        self.update = compiled(torch, work, self._update)

    def step(self, explore: Array, random: Array) -> None:
        """One step of every environment, stored."""
        actions = np.where(explore, random, greedy(self.own.arrays, self.observation[:, None]))
        state, terminal = self.poles.step(actions)
        row = self.replay[:, self.steps % common.CAPACITY]
        row[:, OBSERVATION] = self.observation
        row[:, FOLLOWING] = state.T
        row[:, ACTION] = actions
        row[:, DISCOUNT] = DISCOUNTS[terminal.view(np.int8)]
        self.steps += 1
        over = terminal | (self.poles.age == common.TIME_LIMIT)
        if np.count_nonzero(over):
            # The reward is 1 for every step, so the return is the age.
            self.finished += [(self.steps, float(age)) for age in self.poles.age[over]]
            self.poles.restart(over)
        self.observation = self.poles.state.T.astype(np.float32)

    def _update(self, online: Any, target: Any, moments: Any, count: Any, rows: Any) -> None:
        """One gradient update of every agent on these rows of the replay, in place."""
        torch, views = self.torch, self.own.layout.views
        batch = self.rows.index_select(0, rows).view(self.n, self.batch, WIDTH)
        best = forward(torch, views(target), batch[..., FOLLOWING])[0].amax(1)
        wanted = batch[..., REWARD] + batch[..., DISCOUNT] * best
        tensors = views(online)
        values, inputs = forward(torch, tensors, batch[..., OBSERVATION])
        actions = batch[..., ACTION].long()[:, None]
        # The mean over each agent's batch: agents do not share a gradient.
        errors = (values.gather(1, actions) - wanted[:, None]) * (2 / self.batch)
        slope = torch.zeros_like(values).scatter(1, actions, errors)
        gradient = backward(torch, slope, tensors, inputs)
        adam(online, moments, count.add_(1), gradient, common.LEARNING_RATE)

    def learn(self, rows: Any) -> None:
        own = self.own
        self.update(own.online, own.target, own.moments, self.count, rows)
        self.updates += 1
        if self.updates % common.TARGET_INTERVAL == 0:
            own.target.copy_(own.online)

    def advance(self, steps: int) -> None:
        # Everything random is drawn at once.
        now = self.steps + np.arange(steps)
        schedule = np.array([[epsilon(step)] for step in now.tolist()])
        explore = self.random.random((steps, self.n)) < schedule
        random = self.random.integers(common.ACTIONS, size=(steps, self.n))
        stored = np.minimum(now + 1, common.CAPACITY)[:, None, None]
        rows = (self.random.random((steps, self.n, self.batch)) * stored).astype(np.int64)
        rows += self.offsets
        samples = self.torch.from_numpy(rows.reshape(steps, -1)).unbind()
        with self.torch.no_grad():
            for i in range(steps):
                self.step(explore[i], random[i])
                if self.steps > common.LEARNING_STARTS:
                    self.learn(samples[i])

    def parameters(self) -> list[Array]:
        return self.own.arrays

    def load(self, means: list[Array]) -> None:
        self.own.load(means)

    def episodes(self) -> list[Episode]:
        return self.finished


build = Stacked
