"""How the server steps from the model it sent to the next one (Reddi et al., 2021).

What the agents offer, aggregated, is taken for a step of gradient descent: the gradient is the
model that was sent minus the aggregated one, and an optimizer of optax makes the server's step.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from fedrl.arguments import BelowOne, StepSize, check_fields
from fedrl.registry import Group


@dataclass(frozen=True)
class ServerOptimizer(ABC):
    """Settings of a server optimizer; its state stays on the server."""

    registered_in: ClassVar[Group] = "server_optimizers"
    name: ClassVar[str]
    compares_with_before: ClassVar[bool] = True
    """Whether it needs the model before: agents must then begin with one model."""

    def __post_init__(self) -> None:
        check_fields(self, "server_optimizer")

    @property
    @abstractmethod
    def optimizer(self) -> optax.GradientTransformation:
        """What steps along the agents' average change."""

    def init(self, model: Any) -> Any:
        """The state before the first round."""
        return self.optimizer.init(model)

    def step(self, before: Any, offered: Any, state: Any) -> tuple[Any, Any]:
        """The next model and state, from the model that was sent and the aggregated offer."""
        gradient = jax.tree.map(jnp.subtract, before, offered)
        updates, state = self.optimizer.update(gradient, state, before)
        return optax.apply_updates(before, updates), state


@dataclass(frozen=True)
class Replace(ServerOptimizer):
    """Take the aggregated offer as the next model, as in the paper."""

    name: ClassVar[str] = "replace"
    compares_with_before: ClassVar[bool] = False

    @property
    def optimizer(self) -> optax.GradientTransformation:
        return optax.sgd(1.0)

    def init(self, model: Any) -> Any:
        return ()

    def step(self, before: Any, offered: Any, state: Any) -> tuple[Any, Any]:
        # Not a step of 1.0, which would round.
        return offered, state


@dataclass(frozen=True)
class Momentum(ServerOptimizer):
    """Keep moving in the direction of earlier rounds (FedAvgM)."""

    lr: StepSize = 1.0
    """Step size of the server; 1 takes the agents' average change as it is."""
    beta: BelowOne = 0.9
    """Share of the velocity that is kept from round to round."""

    name: ClassVar[str] = "momentum"

    @property
    def optimizer(self) -> optax.GradientTransformation:
        return optax.sgd(self.lr, self.beta)


@dataclass(frozen=True)
class _Adaptive(ServerOptimizer):
    """Settings that Adam and Yogi have in common."""

    lr: StepSize = 1e-2
    """Step size of the server."""
    b1: BelowOne = 0.9
    """Decay of the average change."""
    b2: BelowOne = 0.99
    """Decay of the average squared change."""
    eps: StepSize = 1e-3
    """Added to the denominator: smaller changes are not blown up."""


@dataclass(frozen=True)
class Adam(_Adaptive):
    """Scale the agents' average change by its size in earlier rounds (FedAdam)."""

    name: ClassVar[str] = "adam"

    @property
    def optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.lr, self.b1, self.b2, self.eps)


@dataclass(frozen=True)
class Yogi(_Adaptive):
    """Adam whose scale grows only where changes do (FedYogi)."""

    name: ClassVar[str] = "yogi"

    @property
    def optimizer(self) -> optax.GradientTransformation:
        return optax.yogi(self.lr, self.b1, self.b2, self.eps)
