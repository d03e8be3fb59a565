"""The number of cores changes how fast a run is and nothing else."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
if sys.argv[1] == "one":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from dataclasses import replace
import fedrl
experiment = fedrl.preset("cartpoles-dqnavg")
learner = replace(experiment.learner, hidden=(128, 128), batch=128)
experiment = replace(experiment, learner=learner, updates=300, E=100, seeds=3)
fedrl.train(replace(experiment, evaluation=replace(experiment.evaluation, every=100)),
            out=sys.argv[2], progress=False)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no way to choose cores here")
@pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda _: [0])(0)) < 2, reason="one core")
def test_one_core_and_all_cores_give_the_same_bits(tmp_path):
    found = []
    for cores in ("one", "all"):
        out = tmp_path / cores
        subprocess.run([sys.executable, "-c", PROGRAM, cores, str(out)], check=True)
        (run,) = out.iterdir()
        found.append([(run / name).read_bytes() for name in ("metrics.csv", "models.npz")])
    assert found[0] == found[1]
