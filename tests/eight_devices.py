"""Experiments on eight simulated devices, in a process that has them; results go to a file."""

import sys
from dataclasses import replace

import jax
import numpy as np

from every_strategy import FEDAVGM_AND_SCAFFOLD, NETWORKS, PARTS
from fedrl.engine.mesh import Sharded
from fedrl.engine.plan import Leg
from fedrl.experiment.timing import Timing
from fedrl.learners.personalisation import Personal
from fedrl.strategies.aggregators import Mean
from fedrl.strategies.robust import Median
from tiny import LEARNER, TINY

SIXTEEN = replace(TINY, agents=16, held_out=1, seeds=1)
KINDS = {
    "average": SIXTEEN,
    "seeds": replace(SIXTEEN, agents=4, seeds=2),
    "weights": replace(SIXTEEN, aggregator=Mean(tuple(range(1, 17)))),
    "median": replace(SIXTEEN, aggregator=Median()),
    "private parts": replace(
        SIXTEEN, learner=replace(LEARNER, personal=Personal(embedding=2, normalisation=True))
    ),
}
# One agent a device.
STRATEGIES = {
    f"{strategy}, {learner}": replace(experiment, agents=8, **PARTS[strategy])
    for strategy in FEDAVGM_AND_SCAFFOLD
    for learner, experiment in NETWORKS.items()
}
KINDS |= STRATEGIES
KINDS["clock"] = replace(SIXTEEN, timing=Timing(spread=1.0))
ROUNDS = 2


def trained(replicates):
    """What a leg comes to, with everything that could be continued."""
    E = int(replicates._experiment.E)
    replicates.start()
    record = replicates.run(Leg(ROUNDS, E, ROUNDS * E, ROUNDS), lambda _: None)
    return jax.tree.leaves((record, replicates.export(), replicates.models()))


def compiled(sharded, communicates):
    """The program of a leg, as XLA runs it."""
    state = sharded._init(sharded._seeds, sharded._training, None)
    given = (sharded._seeds, sharded._training, np.int32(2), np.int32(10))
    return sharded._train[communicates].lower(state, *given).compile().as_text()


def main(path):
    """All kinds, and programs of those that are looked at."""
    arrays = {}
    for kind, experiment in KINDS.items():
        sharded = Sharded(experiment)
        arrays[f"{kind}/mesh"] = np.array(sharded.mesh.devices.shape)
        for i, leaf in enumerate(trained(sharded)):
            arrays[f"{kind}/{i:03d}"] = leaf
        if kind in ("average", "median"):
            for communicates in (True, False):
                arrays[f"{kind}/program/{communicates}"] = np.array(compiled(sharded, communicates))
    resumed = Sharded(KINDS["average"])
    first = Sharded(KINDS["average"])
    first.start()
    first.run(Leg(1, 10, 10, 1, evaluates=False), lambda _: None)
    assert resumed.matches(first.export())
    resumed.restore(first.export())
    for name, one in (("first", first), ("resumed", resumed)):
        one.run(Leg(1, 10, 20, 2), lambda _: None)
        for i, leaf in enumerate(one.export()):
            arrays[f"{name}/{i:03d}"] = leaf
    np.savez(path, **arrays)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    main(sys.argv[1])
