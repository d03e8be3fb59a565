"""Whether stacked agents learn what plain loops learn: `python -m benchmarks.peers.agreement`.

Both begin with the same parameters and see the same batches, every agent others than the next one.
One JSON line is printed: the largest difference of a parameter after some updates, and the largest
change that the updates made.
"""

import contextlib
import json
import tempfile
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.peers.ddpg import loop as ddpg_loop
from benchmarks.peers.ddpg import stacked as ddpg_stacked
from benchmarks.peers.ddpg.common import ROBOTS
from benchmarks.peers.dqn import loop as dqn_loop
from benchmarks.peers.dqn import stacked as dqn_stacked
from benchmarks.peers.group import Array, Work

AGENTS, UPDATES = 2, 20
ROBOT = "HalfCheetah-v5"
WORK = Work(
    hidden=(24, 16),
    batch=8,
    agents=AGENTS,
    E=100,
    learning_starts=0,
    seconds=0.0,
    processes=1,
    threads=1,
    compiled=False,
)


def compare(mine: list[Array], theirs: list[Array], before: list[Array]) -> dict[str, float]:
    """Of parameters that are in the same order and shape."""

    def furthest(others: list[Array]) -> float:
        return max(float(np.abs(a - b).max()) for a, b in zip(mine, others, strict=True))

    return {"difference": furthest(theirs), "change": furthest(before)}


def of_dqn(state: Any) -> list[Array]:
    """A loop's parameters as the stack has them: the last layer the other way round."""
    arrays = [tensor.numpy().copy() for tensor in state.values()]
    turned = [array.T if array.ndim == 2 else array[None] for array in arrays[:-2]]
    return [*turned, arrays[-2], arrays[-1][:, None]]


def of_ddpg(state: Any) -> list[Array]:
    """A loop's parameters as the stack has them: the action's weights apart, the last a row."""
    arrays = [tensor.numpy().copy() for tensor in state.values()]
    turned = [array.T if array.ndim == 2 else array[None] for array in arrays]
    first = len(turned[8]) - ROBOTS[ROBOT][1]
    return [*turned[:8], turned[8][:first], turned[8][first:], turned[9], arrays[10], turned[11]]


def run(stack: Any, agents: list[Any], arranged: Any) -> dict[str, float]:
    """Fill the replays with the same transitions, give the same parameters, and update."""
    random = np.random.default_rng(0)
    first = [arranged(agent.networks.state_dict()) for agent in agents]
    stack.load([np.stack(parts) for parts in zip(*first, strict=True)])
    for parameters in (stack.own,) if hasattr(stack, "own") else (stack.actor, stack.critic):
        parameters.target.copy_(parameters.online)
    rows = random.integers(WORK.batch * 4, size=(UPDATES, AGENTS, WORK.batch))
    for picked in rows:
        for agent, of_agent in zip(agents, picked, strict=True):
            agent.steps = WORK.batch * 4
            agent.random = Picks(of_agent)
            agent.update()
        flat = stack.torch.from_numpy((picked + stack.offsets).reshape(-1))
        with stack.torch.no_grad():
            stack.learn(flat)
    theirs = [arranged(agent.networks.state_dict()) for agent in agents]
    return compare(
        stack.parameters(),
        [np.stack(parts) for parts in zip(*theirs, strict=True)],
        [np.stack(parts) for parts in zip(*first, strict=True)],
    )


class Picks:
    """Random numbers that are not."""

    def __init__(self, rows: Array) -> None:
        self.rows = rows

    def integers(self, *_: Any, **__: Any) -> Array:
        return self.rows


def dqn() -> dict[str, float]:
    work, random = WORK, np.random.default_rng(1)
    stack = dqn_stacked.build(work, [0, 1])
    agents = [dqn_loop.Agent(work, agent) for agent in range(AGENTS)]
    for i, agent in enumerate(agents):
        agent.observations[:], agent.following[:] = random.normal(size=(2, 10_000, 4))
        agent.actions[:] = random.integers(2, size=(10_000, 1))
        agent.rewards[:] = 1.0
        agent.terminal[:] = random.random((10_000, 1)) < 0.2
        stack.replay[i, :, dqn_stacked.OBSERVATION] = agent.observations
        stack.replay[i, :, dqn_stacked.FOLLOWING] = agent.following
        stack.replay[i, :, dqn_stacked.ACTION] = agent.actions[:, 0]
        stack.replay[i, :, dqn_stacked.DISCOUNT] = 0.99 * (1 - agent.terminal[:, 0])
    return run(stack, agents, of_dqn)


def ddpg() -> dict[str, float]:
    work, random = replace(WORK, robot=ROBOT), np.random.default_rng(1)
    stack = ddpg_stacked.build(work, [0, 1])
    agents = [ddpg_loop.Agent(work, agent) for agent in range(AGENTS)]
    at = stack.columns
    for i, agent in enumerate(agents):
        for array in agent.replay:
            array[:] = random.normal(size=array.shape)
        agent.replay[4][:] = random.random(agent.replay[4].shape) < 0.2
        names = ("observation", "action", "reward", "following")
        for name, array in zip(names, agent.replay, strict=False):
            stack.replay[i, :, getattr(at, name)] = array
        stack.replay[i, :, at.discount] = 0.99 * (1 - agent.replay[4])
    return run(stack, agents, of_ddpg)


if __name__ == "__main__":
    # MuJoCo writes its warnings where it is.
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        found = {"dqn": dqn(), "ddpg": ddpg()}
    print(json.dumps(found))
