"""Where an experiment is carried out: on one device, on many, or on many hosts."""

import jax

from fedrl.engine.all_seeds import Training
from fedrl.engine.hosts import Led
from fedrl.engine.mesh import Sharded
from fedrl.engine.programs import Start
from fedrl.engine.single_device import Replicates
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment


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
