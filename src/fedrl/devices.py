"""The cores and devices that work can be spread over."""

import os

import jax


def available_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def worker_devices() -> list[jax.Device]:
    """The device of each block that may run at the same time as the others.

    XLA runs programs on one CPU device side by side when they come from several threads, so a
    single CPU device is listed once for each core.
    """
    devices: list[jax.Device] = jax.local_devices()
    if len(devices) == 1 and devices[0].platform == "cpu":
        return devices * available_cores()
    return devices
