"""Several hosts that carry out one experiment: the first one leads, the others follow.

All of them run the same programs on their part of the mesh, in the same order. The leader has the
run directory, decides what is next and says so; followers have nothing of their own on disk. What
they say to each other goes through JAX, so there is one connection to set up and not two.
"""

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from fedrl.arguments import whole
from fedrl.engine.client import Client
from fedrl.engine.divergence import Diverged
from fedrl.engine.mesh import Sharded
from fedrl.engine.plan import Leg
from fedrl.engine.programs import Record, Start
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment, from_toml
from fedrl.experiment.toml import to_toml
from fedrl.files import Array

# Seconds to wait for the other hosts to appear.
PATIENCE = 300
# JAX's own annotations do not cover it.
distributed: Any = jax.distributed


@contextmanager
def leading(address: str, hosts: int) -> Iterator[None]:
    """Be the first of so many hosts; the others join at `address`."""
    _connect(address, hosts, 0)
    try:
        yield
    finally:
        # In the middle of a program nobody listens: they notice that we are gone.
        if not Led.working:
            _tell({"do": "leave"})
            distributed.shutdown()


def follow(address: str, hosts: int, host: int, say: Callable[[str], None]) -> None:
    """Be one of the other hosts, until the leader has finished."""
    whole("hosts", hosts, smallest=2)
    _connect(address, hosts, whole("host", host, largest=hosts - 1))
    carried: Sharded | None = None
    with _stubborn(say):
        while True:
            message, arrays = _hear()
            if message["do"] == "leave":
                distributed.shutdown()
                return
            if message["do"] == "carry out":
                experiment = from_toml(message["experiment"], allow_code=True)  # of our leader
                say(f"{experiment.name}: as host {host} of {hosts}")
                carried = Sharded(experiment, _start_from(experiment, arrays))
                continue
            assert carried is not None
            _obey(carried, message, arrays)


def _obey(carried: Sharded, message: dict[str, Any], arrays: list[Array]) -> None:
    match message["do"]:
        case "start":
            carried.start()
        case "run":
            carried.run(Leg(*message["leg"]), lambda _: None)
        case "export":
            carried.export()
        case "restore":
            carried.restore(arrays)
        case "diverged":
            carried.diverged()
        case "models":
            carried.models()


class Led:
    """What `Sharded` is to one host, for many: whatever it does, the followers do as well."""

    working = False
    """Whether some host may be in the middle of a program."""

    def __init__(self, experiment: Experiment, start: Start | None = None) -> None:
        given = [] if start is None else [start.thetas, *jax.tree.leaves(start.params)]
        self._tell({"do": "carry out", "experiment": to_toml(experiment)}, given)
        self._here = Sharded(experiment, start)
        self.thetas = self._here.thetas
        """(seeds, environments, varied constants)."""
        Led.working = False

    def start(self) -> None:
        """Agents that are about to learn."""
        self._tell({"do": "start"})
        self._here.start()
        Led.working = False

    def run(self, leg: Leg, done: Callable[[float], None]) -> Record | None:
        """Take all seeds through a leg; `done` hears when they are."""
        self._tell({"do": "run", "leg": list(leg)})
        record = self._here.run(leg, done)
        Led.working = False
        return record

    def export(self) -> list[Array]:
        """Every number of every state, seeds first."""
        self._tell({"do": "export"})
        leaves = self._here.export()
        Led.working = False
        return leaves

    def restore(self, leaves: list[Array]) -> None:
        """Go on from what `export` gave."""
        self._tell({"do": "restore"}, leaves)
        self._here.restore(leaves)
        Led.working = False

    def matches(self, leaves: list[Array]) -> bool:
        """Whether these could be what `export` gave for this experiment."""
        return self._here.matches(leaves)

    def diverged(self) -> Diverged:
        """Which agents have met what is not finite."""
        self._tell({"do": "diverged"})
        found = self._here.diverged()
        Led.working = False
        return found

    def models(self) -> Any:
        """Parameters of the models that are evaluated: (seeds, models, ...)."""
        self._tell({"do": "models"})
        models = self._here.models()
        Led.working = False
        return models

    def _tell(self, message: dict[str, Any], arrays: Sequence[Any] = ()) -> None:
        Led.working = True
        _tell(message, arrays)


def _start_from(experiment: Experiment, arrays: list[Array]) -> Start | None:
    """Where agents begin, as the leader sent it."""
    if not arrays:
        return None
    shapes = jax.eval_shape(Client(experiment).first_params, np.int32(0))
    thetas, *leaves = arrays
    return Start(thetas, jax.tree.unflatten(jax.tree.structure(shapes), leaves))


def _connect(address: str, hosts: int, host: int) -> None:
    name, colon, port = address.rpartition(":")
    if not (colon and name and port.isdigit()):
        raise FedrlError(
            f"--address must be the first host's name and a free port of it, as 10.0.0.1:9000, got "
            f"{address!r}"
        )
    whole("hosts", hosts, smallest=2)
    try:
        distributed.initialize(address, hosts, host, initialization_timeout=PATIENCE)
    except RuntimeError as error:
        raise FedrlError(
            f"the {hosts} hosts did not come together at {address} within {PATIENCE} s: is the "
            f"address the first host's, the port free and open, and does every host have a number "
            f"of its own? ({str(error).splitlines()[0]})"
        ) from None


def _tell(message: dict[str, Any], arrays: Sequence[Any] = ()) -> None:
    """To all followers: a few words, and perhaps arrays."""
    arrays = [np.ascontiguousarray(array) for array in arrays]
    kinds = [(list(array.shape), array.dtype.name) for array in arrays]
    text = json.dumps({**message, "arrays": kinds}).encode()
    _broadcast(np.array([len(text)], np.int32))
    _broadcast(np.frombuffer(text, np.uint8))
    for array in arrays:
        _broadcast(array.reshape(-1).view(np.uint8))


def _hear() -> tuple[dict[str, Any], list[Array]]:
    """What the leader says."""
    (length,) = _broadcast(np.zeros(1, np.int32))
    message = json.loads(_broadcast(np.zeros(length, np.uint8)).tobytes())
    arrays = []
    for shape, name in message["arrays"]:
        dtype = np.dtype(name)
        size = int(np.prod(shape)) * dtype.itemsize
        arrays.append(_broadcast(np.zeros(size, np.uint8)).view(dtype).reshape(shape))
    return message, arrays


def _broadcast(array: Array) -> Array:
    """The leader's array, on all hosts; they must give one of the same shape."""
    return np.array(multihost_utils.broadcast_one_to_all(array), array.dtype)


@contextmanager
def _stubborn(say: Callable[[str], None]) -> Iterator[None]:
    """The leader says when to stop; whoever insists is obeyed."""

    def note(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        say("stop the first host, and this one stops with it; once more to stop at once")

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
