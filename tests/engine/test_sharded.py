"""An experiment spread over devices is the same experiment, and they talk once a round."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hlo
from eight_devices import KINDS, SIXTEEN, trained
from fedrl import FedrlError
from fedrl.engine.executors import training
from fedrl.engine.mesh import mesh_shape
from fedrl.engine.single_device import Replicates

TESTS = Path(__file__).parents[1]
# Sums over agents in another order, two rounds of ten updates.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    path = tmp_path_factory.mktemp("devices") / "found.npz"
    command = [sys.executable, TESTS / "eight_devices.py", path]
    subprocess.run(command, check=True, timeout=600)
    with np.load(path) as arrays:
        return dict(arrays)


def of(found, name):
    return [
        found[key] for key in sorted(found) if key.rsplit("/", 1)[0] == name and key[-1].isdigit()
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_eight_devices_come_to_the_same_as_one(found, kind):
    alone = trained(Replicates(KINDS[kind]))
    spread = of(found, kind)
    assert len(spread) == len(alone)
    for a, b in zip(spread, alone, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, **TOLERANCE)


def test_devices_are_given_seeds_first_and_then_agents(found):
    shapes = {kind: tuple(found[f"{kind}/mesh"]) for kind in KINDS}
    assert shapes.pop("seeds") == (2, 4)
    assert set(shapes.values()) == {(1, 8)}


def test_a_state_is_continued_to_the_last_bit(found):
    for a, b in zip(of(found, "first"), of(found, "resumed"), strict=True):
        np.testing.assert_array_equal(a, b)


def program(found, kind, communicates):
    return hlo.computations(str(found[f"{kind}/program/{communicates}"]))


@pytest.mark.parametrize("kind", ["average", "median"])
def test_devices_communicate_once_a_round_and_never_while_agents_learn(found, kind):
    computations = program(found, kind, True)
    talking = [name for name, lines in computations.items() if hlo.collectives(lines)]
    (name,) = talking
    (collective,) = hlo.collectives(computations[name])
    assert " all-gather" in collective
    # It is in the loop over rounds, whose body also has the loop over an agent's updates ...
    assert any(name in hlo.loops(lines) for lines in computations.values())
    learning = hlo.loops(computations[name])
    assert learning
    # ... and nowhere inside that.
    assert name not in hlo.reachable(computations, learning)


@pytest.mark.parametrize("kind", ["average", "median"])
def test_devices_that_have_nothing_to_tell_are_silent(found, kind):
    assert not any(map(hlo.collectives, program(found, kind, False).values()))


def test_an_average_is_sent_and_not_every_agent(found):
    # 8 devices x (4 x 8 + 8 + 8 x 2 + 2) parameters; the median needs those of 16 agents.
    sizes = {}
    for kind in ("average", "median"):
        lines = [line for one in program(found, kind, True).values() for line in one]
        (collective,) = hlo.collectives(lines)
        sizes[kind] = collective.split(" all-gather")[0]
    assert "f32[8,58]" in sizes["average"] or "f32[464]" in sizes["average"]
    assert "f32[8,116]" in sizes["median"] or "f32[928]" in sizes["median"]


@pytest.mark.parametrize(
    ("agents", "seeds", "participation", "devices", "hosts", "shape"),
    [
        (5, 16, 1.0, 8, 1, (8, 1)),
        (5, 1, 1.0, 8, 1, (1, 5)),
        (5, 4, 1.0, 8, 1, (1, 5)),
        (6, 4, 1.0, 8, 1, (4, 2)),
        (50_000, 1, 1.0, 8, 2, (1, 8)),
        (50_000, 3, 0.1, 8, 1, (3, 1)),  # who is drawn may be anywhere
        (5, 5, 1.0, 4, 1, (1, 1)),
        (7, 2, 1.0, 3, 2, (2, 1)),
    ],
)
def test_as_many_devices_as_can_have_equally_much_to_do(
    agents, seeds, participation, devices, hosts, shape
):
    experiment = replace(SIXTEEN, agents=agents, seeds=seeds, participation=participation)
    assert mesh_shape(experiment, devices, hosts) == shape


def test_hosts_that_cannot_share_the_work_are_told_what_to_change():
    with pytest.raises(FedrlError, match=r"3 seeds of 5 agents cannot .* among 2 hosts: choose"):
        mesh_shape(replace(SIXTEEN, agents=5, seeds=3), 8, 2)


def test_a_single_device_needs_no_mesh():
    assert isinstance(training(SIXTEEN), Replicates)
