"""Pictures of robots, drawn without a screen."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrl.errors import FedrlError
from fedrl.families.robots.models import compiled, import_mujoco, specification

if TYPE_CHECKING:
    from fedrl.families.robots.robot_family import RobotFamily

HEIGHT, WIDTH = 400, 600
CAMERA = "track"
MISSING = (
    "robots cannot be drawn here ({}): install a library that draws without a screen (on Debian "
    "and Ubuntu `apt-get install libegl1 libgl1-mesa-dri`, or libosmesa6), or choose one with the "
    "variable MUJOCO_GL (egl, osmesa, glfw)"
)


def picture(
    family: "RobotFamily", state: np.ndarray[Any, Any], theta: tuple[float, ...]
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A robot in a state, (height, width, 3); the camera follows it."""
    mujoco = import_mujoco()
    model, data, renderer = _studio(family, theta)
    n = family.joints
    data.qpos[:], data.qvel[:] = state[:n], state[n : 2 * n]
    mujoco.mj_forward(model, data)
    renderer.update_scene(data, camera=CAMERA)
    pixels: np.ndarray[Any, np.dtype[np.uint8]] = renderer.render()
    return pixels


@lru_cache(maxsize=4)
def _studio(family: "RobotFamily", theta: tuple[float, ...]) -> tuple[Any, Any, Any]:
    """A model with textures, working memory, and what draws it."""
    mujoco = import_mujoco()
    spec = specification(family, theta)
    model = compiled(spec)
    try:
        renderer = mujoco.Renderer(model, HEIGHT, WIDTH)
    # It fails in many ways: no library, no device, a context that cannot be made.
    except Exception as error:
        raise FedrlError(MISSING.format(error or type(error).__name__)) from None
    return model, mujoco.MjData(model), renderer
