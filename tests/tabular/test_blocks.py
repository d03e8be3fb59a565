"""Neither the block, nor the company a replicate is in, nor the number of devices matters."""

import json
import logging
import os
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest

import fedrl
from conftest import HASTY, random_problem
from fedrl.tabular import replicates

SETTINGS = {"gamma": 0.9, "E": 3, "iterations": 30, "lr": 0.05, "decay": 0.5}


@pytest.mark.parametrize("algorithm", ["qavg", "projpavg", "softpavg", "sampled-qavg"])
def test_a_seeds_result_does_not_depend_on_the_other_seeds_to_the_last_bit(rng, algorithm):
    problem = random_problem(rng, seeds=150)  # more than two blocks of 64
    init = problem.policy if algorithm == "projpavg" else problem.table
    everything = fedrl.tabular.run(algorithm, problem.P, problem.R, init=init, **SETTINGS)
    few = fedrl.tabular.run(algorithm, problem.P[:5], problem.R[:5], init=init[:5], **SETTINGS)
    np.testing.assert_array_equal(few.shared, everything.shared[:5])
    np.testing.assert_array_equal(few.objective, everything.objective[:5])


DEVICES_PROGRAM = """
import hashlib, json, sys
import jax
jax.config.update("jax_num_cpu_devices", int(sys.argv[1]))
import fedrl
task = fedrl.tabular.RandomMDPs().task(agents=3, seeds=200)  # four blocks
digests = {"devices": len(jax.devices())}
for algorithm in ("qavg", "projpavg", "softpavg", "sampled-qavg"):
    result = fedrl.tabular.run(
        algorithm, task.P, task.R, gamma=task.gamma, d0=task.d0, E=4, iterations=16, lr=0.01
    )
    digests[algorithm] = hashlib.sha256(result.objective.tobytes()).hexdigest()
print(json.dumps(digests))
"""


@pytest.mark.parametrize(
    "optimised", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["hasty", "optimised"]
)
def test_the_number_of_devices_does_not_change_a_bit(optimised):
    seen = []
    environment = os.environ | ({} if optimised else HASTY)
    for devices in (1, 3):
        program = [sys.executable, "-c", DEVICES_PROGRAM, str(devices)]
        output = subprocess.run(
            program, capture_output=True, text=True, check=True, env=environment
        ).stdout
        digests = json.loads(output)
        assert digests.pop("devices") == devices
        seen.append(digests)
    assert seen[0] == seen[1]


def test_blocks_follow_from_the_size_of_the_problem_and_the_device_alone():
    size = replicates.block_size
    assert size("cpu", problem_bytes=8 * 5 * 16 * 4 * 16, record_bytes=10_000) == 8  # dense cliffs
    assert size("cpu", problem_bytes=8 * 5 * 16 * 4 * 2, record_bytes=10_000) == 64  # WindyCliffs
    assert size("cpu", problem_bytes=8 * 5 * 5 * 5 * 5, record_bytes=10_000) == 64  # RandomMDPs
    assert size("cpu", problem_bytes=10**9, record_bytes=10_000) == 1
    assert size("gpu", problem_bytes=8 * 5 * 16 * 4 * 16, record_bytes=10_000) == 8192
    # A million iterations: as many replicates as the memory for records allows.
    assert size("gpu", problem_bytes=1000, record_bytes=24_000_000) == 40
    assert size("cpu", problem_bytes=1000, record_bytes=10**9) == 1


def test_results_come_in_the_order_of_the_blocks():
    assert replicates.map_blocks(lambda block, _: block * block, range(20)) == [
        i * i for i in range(20)
    ]


def test_an_error_in_a_block_stops_the_rest():
    started = []
    lock = threading.Lock()

    def work(block, _):
        with lock:
            started.append(block)
        if block == 3:
            raise RuntimeError("broken block")

    with pytest.raises(RuntimeError, match="broken block"):
        replicates.map_blocks(work, range(10_000))
    assert len(started) < 10_000


def test_a_program_that_all_workers_ask_for_at_once_is_compiled_once(monkeypatch, caplog):
    devices = jax.devices()[:1] * 4
    monkeypatch.setattr(replicates, "worker_devices", lambda: devices)
    everybody = threading.Barrier(4, timeout=60)

    @jax.jit
    def program(key):
        return jax.random.uniform(key, (3,))

    def work(block, device):
        key = jax.random.key(block)
        everybody.wait()
        with jax.default_device(device):
            return program(key).sum().item()

    monkeypatch.setattr(logging.getLogger("jax"), "propagate", True)
    jax.config.update("jax_log_compiles", True)
    try:
        found = replicates.map_blocks(work, range(4))
    finally:
        jax.config.update("jax_log_compiles", False)
    assert len(set(found)) == 4
    compiled = [r for r in caplog.messages if "Finished XLA compilation of jit(program)" in r]
    assert len(compiled) == 1
