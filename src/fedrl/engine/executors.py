"""Where an experiment is carried out: on one device, on many, or on many hosts."""

from collections.abc import Callable
from typing import Any, Protocol

import jax

from fedrl.engine.divergence import Diverged
from fedrl.engine.hosts import Led
from fedrl.engine.mesh import Sharded
from fedrl.engine.plan import Leg
from fedrl.engine.programs import Record, Start
from fedrl.engine.single_device import Replicates
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment
from fedrl.files import Array


class Training(Protocol):
    """The states of all seeds of an experiment."""

    thetas: Array

    def start(self) -> None: ...

    def run(self, leg: Leg, done: Callable[[float], None]) -> Record | None: ...

    def export(self) -> list[Array]: ...

    def restore(self, leaves: list[Array]) -> None: ...

    def matches(self, leaves: list[Array]) -> bool: ...

    def diverged(self) -> Diverged: ...

    def models(self) -> Any: ...


def training(
    experiment: Experiment, start: Start | None = None, wave: int | None = None
) -> Training:
    """On everything that JAX has; `wave`: agents that work side by side on one device."""
    if len(jax.devices()) == 1:
        return Replicates(experiment, wave=wave, start=start)
    if wave is not None:
        raise FedrlError(
            f"wave = {wave} is for a single device, and there are {len(jax.devices())}: leave it "
            "out"
        )
    return Led(experiment, start) if jax.process_count() > 1 else Sharded(experiment, start)
