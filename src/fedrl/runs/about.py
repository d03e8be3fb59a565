"""What a run was started with: versions, device, machine."""

import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax

LIBRARIES = ("fedrl", "jax", "jaxlib", "numpy", "equinox", "optax", "mujoco", "mujoco-mjx")
# On a CPU these versions decide every bit of a result.
DECISIVE = ("fedrl", "jax", "jaxlib")
PLACES = ("platform", "device", "machine")


def about() -> dict[str, Any]:
    """Versions and device of this process."""
    devices = jax.local_devices()
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):  # extras
            versions[name] = version(name)
    return {
        "versions": versions,
        "device": devices[0].device_kind,
        "platform": devices[0].platform,
        "devices": len(devices),
        "machine": platform.machine(),
    }


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """(then, now) of every version and place that differs, by name."""
    before, after = (dict(one.get("versions", {})) for one in (then, now))
    before |= {name: then.get(name) for name in PLACES}
    after |= {name: now.get(name) for name in PLACES}
    return {
        name: (str(before[name]), str(after[name]))
        for name in (*LIBRARIES, "python", *PLACES)
        if name in before and name in after and before[name] != after[name]
    }


def promises_bits(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a run that goes on is to end with the bits of one that never stopped."""
    return now["platform"] == "cpu" and all(then.get(name) == now[name] for name in PLACES)
