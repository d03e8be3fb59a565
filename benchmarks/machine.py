"""What a measurement was made on."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

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
        "commit": commit(),
        **versions(),
    }


def commit() -> str:
    """The commit of the code, marked where tracked files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    here = Path(__file__).parent
    found = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


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
