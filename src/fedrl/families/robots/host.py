"""Robots stepped by MuJoCo in C, on the cores of the host, called from compiled programs.

The call is pure: state, action and theta go in, a state comes out. Nothing lives on the host but
compiled models, so a checkpoint of JAX's arrays is a checkpoint of the robots.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.families.control_family import Stepped
from fedrl.families.robots.models import import_mujoco, model, nominal
from fedrl.files import Array

if TYPE_CHECKING:
    from fedrl.families.robots.robot_family import RobotFamily

PARTS = 3
# From here on MuJoCo takes a number for a mistake.
TOO_LARGE = 1e10
# Robots that are not worth waking another thread for.
FEW = 16
# Threads beyond wait for Python's lock more than they compute.
MOST_THREADS = 4

mujoco = import_mujoco()
STATE = int(
    mujoco.mjtState.mjSTATE_QPOS | mujoco.mjtState.mjSTATE_QVEL | mujoco.mjtState.mjSTATE_WARMSTART
)


def constants(family: "RobotFamily", theta: jax.Array) -> jax.Array:
    """Theta: the host keeps the models."""
    return theta


def step(family: "RobotFamily", state: jax.Array, action: jax.Array, theta: jax.Array) -> Stepped:
    """(state, reward, terminated) after a step of the environment."""
    # One array in and one out: each costs a call 20 microseconds.
    row = jnp.concatenate([theta, action, state.reshape(-1)])
    like = jnp.zeros(state.size + 2)
    after = jax.pure_callback(partial(step_rows, family), like, row, vmap_method="broadcast_all")
    return after[2:].reshape(state.shape), after[0], after[1] > 0


def step_rows(family: "RobotFamily", rows: Any) -> Array:
    """Step robots, one in each row: theta, action, state. Gives reward, terminated, state."""
    rows = np.asarray(rows)
    flat = rows.reshape(-1, rows.shape[-1])
    n, u = family.joints, family.actions
    v = flat.shape[1] - u - PARTS * 3 * n
    actions = flat[:, v : v + u].astype(np.float64)
    states = join(flat[:, v + u :].reshape(-1, PARTS, 3 * n))
    before = states[:, 0].copy()
    # What is not a number stays so, to be seen; MuJoCo would start the robot anew.
    good = (np.abs(flat) < TOO_LARGE).all(1)
    states[~good] = np.nan
    garage = _garage(family)
    over_cores(partial(garage.step, flat[:, :v], actions, states, good), len(flat))
    speed = (states[:, 0] - before) / garage.seconds
    reward, terminated = family.outcome(speed, states[:, :n], states[:, n : 2 * n], actions, np)
    after = np.empty((len(flat), 2 + PARTS * 3 * n), np.float32)
    after[:, 0], after[:, 1] = reward, terminated
    after[:, 2:] = split(states).reshape(len(flat), -1)
    return after.reshape(*rows.shape[:-1], -1)


class Garage:
    """The robots of a family: their models, and working memory.

    Python's share of a step is what limits small networks, hence a dictionary of its own.
    """

    def __init__(self, family: "RobotFamily") -> None:
        self._family = family
        self._models: dict[bytes, Any] = {}
        self._spare: list[Any] = []
        """Working memory that nobody uses now; any will do for every body of a robot."""
        self._nominal = nominal(family)
        self.seconds = family.frame_skip * self._nominal.opt.timestep
        """Of a step of the environment."""

    def step(
        self, thetas: Array, actions: Array, states: Array, good: Array, robots: range
    ) -> None:
        """Step these robots in place."""
        skip, set_state, get_state = self._family.frame_skip, mujoco.mj_setState, mujoco.mj_getState
        try:
            data = self._spare.pop()
        except IndexError:
            data = mujoco.MjData(self._nominal)
        for i in robots:
            if good[i]:
                key = thetas[i].tobytes()
                if key not in self._models:
                    self._models[key] = model(self._family, tuple(thetas[i].tolist()))
                robot = self._models[key]
                set_state(robot, data, states[i], STATE)
                data.ctrl[:] = actions[i]
                mujoco.mj_step(robot, data, nstep=skip)
                get_state(robot, data, states[i], STATE)
        self._spare.append(data)


_garage = cache(Garage)
_workers = cache(partial(ThreadPoolExecutor, MOST_THREADS, thread_name_prefix="fedrl-robots"))


def over_cores(work: Callable[[range], None], count: int) -> None:
    """Do `work` for 0..count-1, in parts on several cores if they are many."""
    cores = min(os.cpu_count() or 1, MOST_THREADS, count // FEW)
    if cores < 2:
        work(range(count))
    else:
        bounds = [count * i // cores for i in range(cores + 1)]
        list(_workers().map(work, [range(*ends) for ends in pairwise(bounds)]))


def split(numbers: Array) -> Array:
    """Numbers of 64 bits as sums of three with 32: (..., k) to (..., 3, k)."""
    high = numbers.astype(np.float32)
    rest = numbers - high
    middle = rest.astype(np.float32)
    return np.stack([high, middle, (rest - middle).astype(np.float32)], axis=-2)


def join(parts: Array) -> Array:
    """The inverse of `split`."""
    high, middle, low = (parts[..., i, :].astype(np.float64) for i in range(PARTS))
    return high + middle + low
