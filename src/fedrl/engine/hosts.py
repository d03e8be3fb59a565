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
    carried: Any = None
    with _stubborn(say):
        while True:
            message, arrays = _hear()
            match message["do"]:
                case "leave":
                    distributed.shutdown()
                    return
                case "carry out":
                    # Our leader's code is allowed.
                    experiment = from_toml(message["experiment"], allow_code=True)
                    say(f"{experiment.name}: as host {host} of {hosts}")
                    carried = Sharded(experiment, _start_from(experiment, arrays))
                case "run":
                    carried.run(Leg(*message["leg"]), lambda _: None)
                case "restore":
                    carried.restore(arrays)
                case "start" | "export" | "diverged" | "models" as asked:
                    getattr(carried, asked)()


class Led(Sharded):
    """`Sharded` on many hosts: whatever the leader does, the followers do as well."""

    working = False
    """Whether some host may be in the middle of a program."""

    def __init__(self, experiment: Experiment, start: Start | None = None) -> None:
        given = [] if start is None else [start.thetas, *jax.tree.leaves(start.params)]
        with _together("carry out", given, experiment=to_toml(experiment)):
            super().__init__(experiment, start)

    def start(self) -> None:
        with _together("start"):
            super().start()

    def run(self, leg: Leg, done: Callable[[float], None]) -> Record | None:
        with _together("run", leg=list(leg)):
            return super().run(leg, done)

    def export(self) -> list[Array]:
        with _together("export"):
            return super().export()

    def restore(self, leaves: list[Array]) -> None:
        with _together("restore", leaves):
            super().restore(leaves)

    def diverged(self) -> Diverged:
        with _together("diverged"):
            return super().diverged()

    def models(self) -> Any:
        with _together("models"):
            return super().models()


@contextmanager
def _together(do: str, arrays: Sequence[Any] = (), **more: Any) -> Iterator[None]:
    """The followers do this, too. Where it fails, some host may still be in the middle of it."""
    Led.working = True
    _tell({"do": do, **more}, arrays)
    yield
    Led.working = False


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
