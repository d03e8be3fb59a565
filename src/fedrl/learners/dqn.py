"""DQN: what an agent with discrete actions does between two communications."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedrl import arguments
from fedrl.errors import FedrlError
from fedrl.learners.networks import MLP
from fedrl.learners.replay import Transition

# Of a layer, a batch, or the steps for an update: more is a mistake, and would not fit the memory.
LARGEST = 1 << 16


class Learned(NamedTuple):
    """What an agent has learnt so far."""

    params: Any
    """What is communicated."""
    target: Any
    optimizer: Any


@dataclass(frozen=True)
class DQN:
    """Deep Q-learning with experience replay; the server averages Q-networks."""

    hidden: tuple[int, ...] = (128,)
    """Widths of the hidden layers."""
    lr: float = 1e-3
    """Step size of Adam."""
    gamma: float = 0.99
    """Discount factor."""
    batch: int = 16
    """Transitions in an update."""
    replay: int = 10_000
    """Transitions an agent remembers."""
    learning_starts: int = 100
    """Steps an agent explores before its first update, and again when its replay was emptied."""
    update_every: int = 1
    """Environment steps for each update."""
    target_every: int = 10
    """Updates between two copies of the network to the target network."""
    loss: Literal["mse", "huber"] = "mse"
    """What is made small: the squared error, or Huber's, which is linear from 1 on."""
    double: bool = False
    """Choose the next action with the online network and value it with the target network."""
    exploration: Literal["exponential", "linear"] = "exponential"
    """How epsilon falls from `epsilon_start` to `epsilon_end`."""
    epsilon_start: float = 1.0
    """Probability of a random action at the beginning."""
    epsilon_end: float = 0.05
    """Probability of a random action at the end."""
    epsilon_decay: float = 0.99
    """Exponential exploration: factor for each update."""
    epsilon_updates: int = 1000
    """Linear exploration: updates until the end value."""

    name: ClassVar[str] = "dqn"

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, (tuple, list)):
            raise FedrlError(f"learner.hidden must be a list of widths, got {self.hidden!r}")
        whole, number = arguments.whole, arguments.number
        counts = ("learning_starts", "target_every", "epsilon_updates")
        sizes = ("batch", "update_every")
        shares = ("epsilon_start", "epsilon_end", "epsilon_decay")
        arguments.settle(
            self,
            hidden=tuple(whole("learner.hidden", w, largest=LARGEST) for w in self.hidden),
            lr=number(
                "learner.lr", self.lr, "a number from 1e-30 to 1e30", lambda x: 1e-30 <= x <= 1e30
            ),
            gamma=number("learner.gamma", self.gamma, "a number in [0, 1)", lambda x: 0 <= x < 1),
            # The most of which every one can be picked with 23 random bits.
            replay=whole("learner.replay", self.replay, largest=1 << 23),
            double=arguments.flag("learner.double", self.double),
            **{n: whole(f"learner.{n}", getattr(self, n), largest=2**31 - 1) for n in counts},
            **{n: whole(f"learner.{n}", getattr(self, n), largest=LARGEST) for n in sizes},
            **{n: arguments.probability(f"learner.{n}", getattr(self, n)) for n in shares},
        )
        if self.epsilon_end > self.epsilon_start:
            raise FedrlError(
                f"learner.epsilon_end = {self.epsilon_end} is above learner.epsilon_start = "
                f"{self.epsilon_start}: exploration can only fall"
            )
        arguments.choice("learner.loss", self.loss, ("mse", "huber"))
        arguments.choice("learner.exploration", self.exploration, ("exponential", "linear"))

    def init(self, key: jax.Array, observation_size: int, actions: int) -> Learned:
        """A fresh network, its copy as the target, and Adam's zeros."""
        params = MLP((observation_size, *self.hidden, actions), key)
        return self.adopt(params)

    def adopt(self, params: Any) -> Learned:
        """The state of an agent that has the parameters and no history."""
        return Learned(params, params, self._optimizer.init(params))

    def epsilon(self, updates: jax.Array) -> jax.Array:
        """Probability of a random action after so many updates."""
        n = updates.astype(jnp.float32)
        if self.exploration == "exponential":
            return jnp.maximum(self.epsilon_end, self.epsilon_start * self.epsilon_decay**n)
        share = jnp.minimum(n / self.epsilon_updates, 1.0)
        return self.epsilon_start + share * (self.epsilon_end - self.epsilon_start)

    def act(
        self, params: Any, observation: jax.Array, uniform: jax.Array, updates: jax.Array
    ) -> jax.Array:
        """An epsilon-greedy action, from two uniform numbers."""
        q = params(observation)
        exploring = (uniform[1] * q.shape[-1]).astype(jnp.int32)
        return jnp.where(uniform[0] < self.epsilon(updates), exploring, jnp.argmax(q, -1))

    def policy(self, params: Any, observation: jax.Array) -> jax.Array:
        """The greedy action for one observation or many."""
        return jnp.argmax(params(observation), -1)

    def update(
        self, learned: Learned, batch: Transition, updates: jax.Array
    ) -> tuple[Learned, jax.Array]:
        """One gradient step; also the loss. `updates` counts this one."""
        y = self._targets(learned, batch)
        loss, gradient = jax.value_and_grad(self._loss)(learned.params, batch, y)
        steps, optimizer = self._optimizer.update(gradient, learned.optimizer)
        params = optax.apply_updates(learned.params, steps)
        copy = updates % self.target_every == 0
        target = jax.lax.cond(copy, lambda: params, lambda: learned.target)
        return Learned(params, target, optimizer), loss

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.lr)

    def _targets(self, learned: Learned, batch: Transition) -> jax.Array:
        """r + gamma max_a' Q_target(s', a'), nothing after a terminal state."""
        next_q = learned.target(batch.next_observation)
        if self.double:
            choice = jnp.argmax(learned.params(batch.next_observation), -1)
            best = _picked(next_q, choice)
        else:
            best = jnp.max(next_q, -1)
        return batch.reward + self.gamma * (1.0 - batch.terminated) * best

    def _loss(self, params: Any, batch: Transition, y: jax.Array) -> jax.Array:
        error = _picked(params(batch.observation), batch.action[..., 0].astype(jnp.int32)) - y
        if self.loss == "huber":
            return jnp.mean(optax.losses.huber_loss(error))
        return jnp.mean(error**2)


def _picked(q: jax.Array, action: jax.Array) -> jax.Array:
    """q[..., action]; a masked sum, because the gradient of a gather is a slow scatter."""
    return jnp.sum(jnp.where(action[..., None] == jnp.arange(q.shape[-1]), q, 0.0), -1)
