"""What travels between the server and an agent: nothing else does.

Light on purpose: the process that Flower starts for every message imports this and not JAX.
"""

from dataclasses import dataclass, field

from fedrl.files import Arrays

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
