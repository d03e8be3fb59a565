"""One agent's side of a round, wherever its environment is, and how its arrays are named."""

from typing import Any, Protocol, TypeVar

import jax
import numpy as np

from fedrl.files import Array, Arrays
from fedrl.network.messages import CORRECTION
from fedrl.strategies.corrections import Broadcast, Offer
from fedrl.trees import named_leaves

# A federation over a network is one repetition.
REPLICATE: Any = np.int32(0)

Sent = TypeVar("Sent", Broadcast, Offer)


class AgentClient(Protocol):
    """An agent's algorithm. States are trees of arrays; models and offers are those of its own."""

    experiment: Any
    """What is trained."""

    @property
    def sent(self) -> Broadcast:
        """What the server sends, without numbers."""

    @property
    def offered(self) -> Offer:
        """What the agent offers, without numbers."""

    def begin(self, received: Broadcast | None) -> Any:
        """An agent that has not learned yet; from its own first parameters if nothing was sent."""

    def receive(self, state: Any, received: Broadcast, counted: bool) -> Any:
        """The agent with what the server sends; `counted`: whether its last offer was used."""

    def work(self, state: Any, E: int, trained: int, scale: float) -> Any:
        """E units of local work."""

    def offer(self, state: Any) -> Offer:
        """What leaves the agent."""

    def evaluate(self, state: Any, trained: int) -> tuple[Any, dict[str, float]]:
        """How good the model is here, and what the agent met since it was last asked."""

    def restore(self, leaves: list[Array]) -> Any | None:
        """The state from its leaves; None if they are not of such a state."""


def _leaves(content: Broadcast | Offer) -> dict[str, Any]:
    """By name, in the order of the tree; those of the model as it names them."""
    return {name.removeprefix("model/"): leaf for name, leaf in named_leaves(content).items()}


def named(content: Broadcast | Offer) -> Arrays:
    """The arrays of what is sent or offered, by name."""
    return {name: np.asarray(leaf) for name, leaf in _leaves(content).items()}


def shapes(content: Broadcast | Offer) -> Arrays:
    """Arrays like those that `named` gives; their numbers mean nothing."""
    return {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in _leaves(content).items()}


def like(content: Sent, arrays: Arrays) -> Sent:
    """Named arrays as a tree of the given structure."""
    leaves = [arrays[name] for name in _leaves(content)]
    filled: Sent = jax.tree.unflatten(jax.tree.structure(content), leaves)
    return filled


def model_only(arrays: Arrays) -> Arrays:
    """Without what a correction adds."""
    return {name: leaf for name, leaf in arrays.items() if not name.startswith(CORRECTION)}
