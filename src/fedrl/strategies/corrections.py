"""What bends every local step of an agent: nothing, a pull to the server's model, control variates.

A step is theta <- theta + eta * direction. A correction sees the direction that the learner
proposes and returns the one to take. It may keep a memory on the agent, and add something of its
own to what agents offer and to what the server sends. All functions are pure and work on any tree
of arrays: a table, a network, or one of several networks that are stepped separately.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedrl.arguments import NotNegative, check_fields
from fedrl.registry import Group


class Broadcast(NamedTuple):
    """What the server sends to every agent."""

    model: Any
    """The shared parameters."""
    correction: Any = ()
    """What the correction adds to them."""


class Offer(NamedTuple):
    """What an agent sends after its local work."""

    model: Any
    """Its shared parameters."""
    correction: Any = ()
    """What its correction adds to them."""


class Step(NamedTuple):
    """A local step that an agent is about to take."""

    direction: Any
    """Where the learner wants to go."""
    params: Any
    """Where the agent is: its shared parameters."""
    received: Broadcast
    """What the server sent last."""
    elsewhere: tuple[Any, ...] = ()
    """The learner's directions at the correction's `points`, on the same data."""


@dataclass(frozen=True)
class Correction(ABC):
    """Settings of a correction, and the pure functions that carry it out."""

    registered_in: ClassVar[Group] = "corrections"
    name: ClassVar[str]
    shares: ClassVar[bool] = False
    """Whether it offers and broadcasts something beside the model; agents' offers are averaged."""
    stretch: ClassVar[float | None] = 1.0
    """How many times the largest step of the learner a corrected step can be; None: unknown."""
    reach: ClassVar[float | None] = None
    """The same for what it adds to offers, in directions of the learner; None: unknown."""

    def __post_init__(self) -> None:
        check_fields(self, "correction")

    def init(self, params: Any) -> Any:
        """Memory of an agent with these shared parameters that has not learned yet."""
        return ()

    def points(self, params: Any, received: Broadcast) -> tuple[Any, ...]:
        """Further parameters at which the learner is to evaluate its direction, on the same data.

        `params` are the agent's own, `received` is what the server sent last.
        """
        return ()

    @abstractmethod
    def correct(self, step: Step, memory: Any) -> tuple[Any, Any]:
        """The direction to take, and the memory after it."""

    def offer(self, memory: Any) -> Any:
        """What an agent adds to its offer; called before `receive`, and changes nothing."""
        return ()

    def receive(self, memory: Any, counted: Any) -> Any:
        """The memory after a round; `counted` says whether the server used the agent's offer."""
        return memory

    def first_broadcast(self, params: Any) -> Any:
        """What the server adds to the first model that it sends."""
        return ()

    def absorb(self, broadcast: Any, offered: Any, share: float | jax.Array) -> Any:
        """What the server sends next, given the average offer of a `share` of all agents."""
        return broadcast


@dataclass(frozen=True)
class NoCorrection(Correction):
    """Take every step as the learner proposes it."""

    name: ClassVar[str] = "none"

    def correct(self, step: Step, memory: Any) -> tuple[Any, Any]:
        return step.direction, memory


@dataclass(frozen=True)
class Prox(Correction):
    """Pull every step towards the model that the server sent (FedProx)."""

    mu: NotNegative = 0.1
    """Strength: direction - mu (theta - theta_server); 0 changes nothing."""

    name: ClassVar[str] = "prox"

    def correct(self, step: Step, memory: Any) -> tuple[Any, Any]:
        def pulled(towards: jax.Array, own: jax.Array, sent: jax.Array) -> jax.Array:
            return towards - self.mu * (own - sent)

        return jax.tree.map(pulled, step.direction, step.params, step.received.model), memory


class Variate(NamedTuple):
    """What an agent remembers of its own directions."""

    own: Any
    """c_i: its average direction in an earlier round."""
    total: Any
    """The sum of its directions in this round."""
    steps: jax.Array
    """How many there were."""


@dataclass(frozen=True)
class ControlVariates(Correction):
    """Replace an agent's own drift by the average agent's: d_i - c_i + c (SCAFFOLD)."""

    refresh: Literal["path", "model"] = "path"
    """Where the directions are taken whose average becomes c_i: `path`, along the agent's own steps
    (SCAFFOLD's option II), or `model`, at the model that the server sent (option I), which needs
    every gradient twice."""

    name: ClassVar[str] = "control-variates"
    shares: ClassVar[bool] = True
    stretch: ClassVar[float | None] = 3.0
    reach: ClassVar[float | None] = 2.0

    def init(self, params: Any) -> Variate:
        return Variate(_zeros(params), _zeros(params), jnp.int32(0))

    def points(self, params: Any, received: Broadcast) -> tuple[Any, ...]:
        return (received.model,) if self.refresh == "model" else ()

    def correct(self, step: Step, memory: Variate) -> tuple[Any, Variate]:
        # In this order one agent alone, whose c_i is c, takes its own steps to the last bit.
        drift = jax.tree.map(jnp.subtract, step.received.correction, memory.own)
        bent = jax.tree.map(jnp.add, step.direction, drift)
        counted = step.elsewhere[0] if step.elsewhere else step.direction
        total = jax.tree.map(jnp.add, memory.total, counted)
        return bent, Variate(memory.own, total, memory.steps + 1)

    def offer(self, memory: Variate) -> Any:
        """How much c_i changes."""
        worked = memory.steps > 0

        def change(total: jax.Array, own: jax.Array) -> jax.Array:
            return jnp.where(worked, total / jnp.maximum(memory.steps, 1) - own, 0.0)

        return jax.tree.map(change, memory.total, memory.own)

    def receive(self, memory: Variate, counted: Any) -> Variate:
        # The server's c must stay the average of all c_i: a change that it missed is dropped.
        own = jax.tree.map(
            lambda own, change: jnp.where(counted, own + change, own),
            memory.own,
            self.offer(memory),
        )
        return Variate(own, _zeros(own), jnp.zeros_like(memory.steps))

    def first_broadcast(self, params: Any) -> Any:
        return _zeros(params)

    def absorb(self, broadcast: Any, offered: Any, share: float | jax.Array) -> Any:
        return jax.tree.map(lambda c, change: c + share * change, broadcast, offered)


def _zeros(tree: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, tree)
