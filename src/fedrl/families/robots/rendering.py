"""Pictures of robots, drawn without a screen."""

import atexit
from contextlib import ExitStack
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fedrl.errors import FedrlError
from fedrl.families.robots.models import compiled, import_mujoco
from fedrl.files import Array

if TYPE_CHECKING:
    import mujoco

    from fedrl.families.robots.robot_family import RobotFamily

HEIGHT, WIDTH = 400, 600
CAMERA = "track"
FLOOR = 25.0
MISSING = (
    "robots cannot be drawn here ({}): install a library that draws without a screen (on Debian "
    "and Ubuntu `apt-get install libegl1 libgl1-mesa-dri`, or libosmesa6), or choose one with the "
    "variable MUJOCO_GL (egl, osmesa, glfw)"
)


# Closes what draws the latest robot. One at a time: closing one of several spoils the others.
_studio = ExitStack()


def picture(family: "RobotFamily", state: Array, theta: tuple[float, ...]) -> Array:
    """A robot in a state, (height, width, 3); the camera follows it."""
    model, data, renderer = _opened(family, theta)
    n = family.joints
    data.qpos[:], data.qvel[:] = state[:n], state[n : 2 * n]
    import_mujoco().mj_forward(model, data)
    renderer.update_scene(data, camera=CAMERA)
    pixels: Array = renderer.render()
    return pixels


def _with_more_floor(spec: "mujoco.MjSpec") -> None:
    # As drawn, it ends after 40 metres; a cheetah runs further.
    spec.geom("floor").size[:2] *= FLOOR
    spec.material("MatPlane").texrepeat *= FLOOR


@lru_cache(maxsize=1)
def _opened(family: "RobotFamily", theta: tuple[float, ...]) -> tuple[Any, Any, Any]:
    """A model with textures, working memory, and a renderer."""
    _studio.close()
    mujoco = import_mujoco()
    model = compiled(family, theta, _with_more_floor)
    try:
        renderer = mujoco.Renderer(model, HEIGHT, WIDTH)
    # It fails in many ways: no library, no device, a context that cannot be made.
    except Exception as error:
        raise FedrlError(MISSING.format(error or type(error).__name__)) from None
    _studio.callback(_opened.cache_clear)
    _studio.callback(renderer.close)
    # Registered after MuJoCo's own, and so run before what a renderer needs is gone.
    atexit.unregister(_studio.close)
    atexit.register(_studio.close)
    return model, mujoco.MjData(model), renderer
