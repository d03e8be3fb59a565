"""What a measurement was made on."""

import os
import platform
from importlib import metadata

import jax


def describe() -> dict[str, str | int]:
    """Device, processor and versions, for the record of a benchmark."""
    processor = platform.processor()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            names = [line.partition(":")[2].strip() for line in file if "model name" in line]
        processor = names[0] if names else processor
    except OSError:
        pass
    device = jax.local_devices()[0]
    return {
        "device": device.device_kind,
        "devices": jax.local_device_count(),
        "platform": device.platform,
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        **versions(),
    }


def versions() -> dict[str, str]:
    """Of what our own numbers depend on."""
    return {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": metadata.version("numpy"),
    }
