"""Pictures of robots, drawn without a screen."""

import atexit
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrl.errors import FedrlError
from fedrl.families.robots.models import compiled, import_mujoco, specification

if TYPE_CHECKING:
    from fedrl.families.robots.robot_family import RobotFamily

HEIGHT, WIDTH = 400, 600
CAMERA = "track"
FLOOR = 25.0
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
    model, data, renderer = _studio.of(family, theta)
    n = family.joints
    data.qpos[:], data.qvel[:] = state[:n], state[n : 2 * n]
    mujoco.mj_forward(model, data)
    renderer.update_scene(data, camera=CAMERA)
    pixels: np.ndarray[Any, np.dtype[np.uint8]] = renderer.render()
    return pixels


class _Studio:
    """What draws the latest robot. One at a time: closing one of several spoils the others."""

    def __init__(self) -> None:
        self._whose: Any = None
        self._open: tuple[Any, Any, Any] | None = None

    def of(self, family: "RobotFamily", theta: tuple[float, ...]) -> tuple[Any, Any, Any]:
        """A model with textures, working memory, and a renderer."""
        if self._open is None or self._whose != (family, theta):
            self.close()
            self._open, self._whose = _opened(family, theta), (family, theta)
        return self._open

    def close(self) -> None:
        if self._open is not None:
            self._open[2].close()
        self._open = None


def _opened(family: "RobotFamily", theta: tuple[float, ...]) -> tuple[Any, Any, Any]:
    mujoco = import_mujoco()
    spec = specification(family, theta)
    # As drawn, the floor ends after 40 metres; a cheetah runs further.
    spec.geom("floor").size[:2] *= FLOOR
    spec.material("MatPlane").texrepeat *= FLOOR
    model = compiled(spec)
    try:
        renderer = mujoco.Renderer(model, HEIGHT, WIDTH)
    # It fails in many ways: no library, no device, a context that cannot be made.
    except Exception as error:
        raise FedrlError(MISSING.format(error or type(error).__name__)) from None
    # Registered after MuJoCo's own, and so run before what a renderer needs is gone.
    atexit.unregister(_studio.close)
    atexit.register(_studio.close)
    return model, mujoco.MjData(model), renderer


_studio = _Studio()
