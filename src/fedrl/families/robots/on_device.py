"""Robots stepped by MJX, on whatever device JAX computes on.

What theta changes in a compiled model is found by compiling; those arrays are the constants of an
environment, and everything else is shared by all of them.
"""

from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.families.control_family import Stepped
from fedrl.families.robots.models import import_mjx, import_mujoco, model, nominal
from fedrl.files import Array

if TYPE_CHECKING:
    from fedrl.families.robots.robot_family import RobotFamily

Fields = dict[str, jax.Array]

PARTS = 1

mujoco, mjx = import_mujoco(), import_mjx()


def constants(family: "RobotFamily", theta: jax.Array) -> Fields:
    """What theta changes in the model. Asks the host, which compiles it."""
    like = {name: jnp.zeros(getattr(nominal(family), name).shape) for name in changed(family)}

    def found(theta: Any) -> dict[str, Array]:
        robot = model(family, tuple(np.asarray(theta).tolist()))
        return {name: np.asarray(getattr(robot, name), np.float32) for name in like}

    fields: Fields = jax.pure_callback(found, like, theta, vmap_method="sequential")
    return fields


def step(family: "RobotFamily", state: jax.Array, action: jax.Array, fields: Fields) -> Stepped:
    """(state, reward, terminated) after a step of the environment."""
    robot = _on_device(family).replace(**fields)
    n = family.joints
    start = mjx.make_data(nominal(family)).replace(
        qpos=state[0, :n],
        qvel=state[0, n : 2 * n],
        qacc_warmstart=state[0, 2 * n :],
        ctrl=action,
    )
    # Accelerators multiply matrices with fewer bits unless told otherwise: too few for physics.
    with jax.default_matmul_precision("highest"):
        end = jax.lax.fori_loop(0, family.frame_skip, lambda _, data: mjx.step(robot, data), start)
    speed = (end.qpos[0] - state[0, 0]) / (family.frame_skip * nominal(family).opt.timestep)
    reward, terminated = family.outcome(speed, end.qpos, end.qvel, action, jnp)
    return jnp.concatenate([end.qpos, end.qvel, end.qacc_warmstart])[None], reward, terminated


@cache
def changed(family: "RobotFamily") -> tuple[str, ...]:
    """Names of the model's arrays that depend on theta, from the corners of its range."""
    corners = product(*((varied.low, varied.high) for varied in family.varied))
    models = [nominal(family), *(model(family, corner) for corner in corners)]
    # Arrays of numbers that both MuJoCo's and MJX's models have.
    names = set(mjx.Model.__dataclass_fields__) & set(dir(mujoco.MjModel)) - {"opt", "stat"}
    return tuple(
        name
        for name in sorted(names)
        if name[0] != "_"
        and any(not np.array_equal(getattr(m, name), getattr(models[0], name)) for m in models[1:])
    )


@cache
def _on_device(family: "RobotFamily") -> Any:
    """The model of a robot in the middle of the range."""
    with jax.ensure_compile_time_eval():
        robot = mjx.put_model(nominal(family))
    steps = {"iterations": family.mjx_iterations, "ls_iterations": family.mjx_line_search}
    return robot.replace(opt=robot.opt.replace(**steps))
