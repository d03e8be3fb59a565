"""What a measurement was made on."""

import os
import platform
from importlib import metadata

import jax


def describe() -> dict[str, str | int]:
    """Device, processor and versions, for the record of a benchmark."""
    device = jax.local_devices()[0]
    return {
        "device": device.device_kind,
        "devices": jax.local_device_count(),
        "platform": device.platform,
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        **versions(),
    }


def processor() -> str:
    """Its name with family and model, because the name alone may be that of very different ones."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            lines = file.read().partition("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    known = {name.strip(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    if "model name" not in known:
        return platform.processor()
    numbers = f"family {known.get('cpu family', '?')}, model {known.get('model', '?')}"
    return f"{known['model name']} ({numbers})"


def versions() -> dict[str, str]:
    """Of what our own numbers depend on."""
    return {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": metadata.version("numpy"),
    }
