"""What travels between the server and an agent: nothing else does.

Light on purpose: the process that Flower starts for every message imports this and not JAX.
"""

import io
import json
from dataclasses import dataclass, field

import numpy as np

from fedrl.errors import FedrlError
from fedrl.files import Arrays, as_npz

# Before the names of what a correction adds to the model.
CORRECTION = "correction/"
# What an agent may tell of itself beside the shared leaves.
METRICS = (
    "return",
    "discounted_return",
    "own_return",
    "own_discounted_return",
    "objective",
    "loss",
    "explored_return",
    "updates",
    "seconds",
)


@dataclass(frozen=True)
class Instruction:
    """What the server asks of an agent in a round."""

    training: str
    """Name of the training: agents keep a state for each."""
    experiment: str
    """Digest of the settings, which both sides must agree on."""
    round: int
    """Number of the round, from 1."""
    E: int
    """Units of local work; 0: only evaluate."""
    trained: int
    """Units of training that the model stands for."""
    evaluate: bool
    """Whether to play the model in the agent's environment first."""
    scale: float = 1.0
    """Factor on the step size (tables)."""
    counted: int = 0
    """The last round in which the server used what this agent offered; 0: none yet."""
    model: Arrays = field(default_factory=dict)
    """The shared leaves, and what the correction adds; none: begin with your own."""


@dataclass(frozen=True)
class Answer:
    """What an agent says after a round."""

    round: int
    """Which one."""
    metrics: dict[str, float]
    """Numbers, by the names in METRICS."""
    shared: Arrays = field(default_factory=dict)
    """The shared leaves, and what the correction adds; none after a round without work."""


@dataclass(frozen=True)
class Refusal:
    """Why an agent does not answer."""

    reason: str


Message = Instruction | Answer | Refusal
# Messages by name, and which of their fields holds arrays.
KINDS: dict[str, type[Message]] = {
    "instruction": Instruction,
    "answer": Answer,
    "refusal": Refusal,
}
ARRAYS = {"instruction": "model", "answer": "shared"}
LEAF = "leaf:"


def to_bytes(message: Message) -> bytes:
    """For a socket or a file; without pickles, so that reading cannot run anything."""
    kind = next(name for name, cls in KINDS.items() if isinstance(message, cls))
    plain = {"kind": kind, **vars(message)}
    leaves = plain.pop(ARRAYS[kind]) if kind in ARRAYS else {}
    named = {f"{LEAF}{name}": leaf for name, leaf in leaves.items()}
    return bytes(as_npz({"header": np.array(json.dumps(plain)), **named}))


def from_bytes(content: bytes) -> Message:
    """What `to_bytes` made bytes of."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            plain = json.loads(str(file["header"]))
            named = [name for name in file.files if name.startswith(LEAF)]
            leaves = {name.removeprefix(LEAF): file[name] for name in named}
        kind = plain.pop("kind")
        if kind in ARRAYS:
            plain[ARRAYS[kind]] = leaves
        return KINDS[kind](**plain)
    except Exception as error:
        raise FedrlError(f"not a message of ours: {error}") from None
