"""Models of robots, compiled from Gymnasium's descriptions with edited bodies."""

import os
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from ctypes.util import find_library
from functools import cache
from importlib.resources import files
from io import StringIO
from typing import TYPE_CHECKING, Any

from fedrl.errors import FedrlError

if TYPE_CHECKING:
    import mujoco

    from fedrl.families.robots.robot_family import RobotFamily

MISSING = "robots need MuJoCo, which is not installed: pip install 'fedrl[mujoco]'"

# Ways to draw without a screen, with the library each of them needs.
OFFSCREEN = {"egl": "EGL", "osmesa": "OSMesa"}

_compiling = threading.Lock()


def import_mujoco() -> Any:
    """MuJoCo, set up to draw without a screen if there is none."""
    if "mujoco" not in sys.modules and not os.environ.get("DISPLAY"):
        # It is read once, when MuJoCo is imported; its own default wants a screen, and what is
        # named and not there makes the import fail.
        there = (name for name, library in OFFSCREEN.items() if find_library(library))
        os.environ.setdefault("MUJOCO_GL", next(there, "disable"))
    try:
        import mujoco
    except ImportError:
        raise FedrlError(MISSING) from None
    return mujoco


def import_mjx() -> Any:
    """MuJoCo's physics written in JAX."""
    try:
        # It prints that it does without warp, an engine of its own that we do not use.
        with redirect_stdout(StringIO()):
            from mujoco import mjx
    except ImportError:
        raise FedrlError(MISSING) from None
    return mjx


# Of one robot 20 kB.
@cache
def model(family: "RobotFamily", theta: tuple[float, ...]) -> "mujoco.MjModel":
    """The robot with a body according to theta, without the textures of its picture."""

    def plain(spec: "mujoco.MjSpec") -> None:
        for texture in spec.textures:
            texture.width = texture.height = 1

    return compiled(family, theta, plain)


def nominal(family: "RobotFamily") -> "mujoco.MjModel":
    """The robot in the middle of the family's range."""
    return model(family, tuple((varied.low + varied.high) / 2 for varied in family.varied))


def compiled(
    family: "RobotFamily", theta: tuple[float, ...], edit: Callable[["mujoco.MjSpec"], None]
) -> "mujoco.MjModel":
    """The robot of a theta, edited, with masses and inertias that belong to its geometry."""
    mujoco = import_mujoco()
    text = (files("gymnasium") / "envs/mujoco/assets" / family.asset).read_text("utf-8")
    # The lock: a filter of warnings is for all threads.
    with _compiling, warnings.catch_warnings():
        # HalfCheetah's file says its total mass in an old way.
        warnings.filterwarnings("ignore", message=".*settotalmass.*")
        spec = mujoco.MjSpec.from_string(text)
        family.edit(spec, theta)
        edit(spec)
        return spec.compile()
