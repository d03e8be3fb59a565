"""DQN: what an agent with discrete actions does between two communications."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import optax

from fedrl.arguments import Count, Probability, StepSize
from fedrl.errors import FedrlError
from fedrl.launches import either
from fedrl.learners.learner import Correct, Learned, Learner, Output
from fedrl.learners.personalisation import ADAM, LARGEST_ADAM_STEP, Model, through_the_eyes_of
from fedrl.learners.replay import Transition


@dataclass(frozen=True)
class DQN(Learner):
    """Deep Q-learning with experience replay; the server averages Q-networks."""

    lr: StepSize = 1e-3
    """Step size of Adam."""
    target_every: Count = 10
    """Updates between two copies of the network to the target network."""
    loss: Literal["mse", "huber"] = "mse"
    """What is made small: the squared error, or Huber's, which is linear from 1 on."""
    double: bool = False
    """Choose the next action with the online network and value it with the target network."""
    exploration: Literal["exponential", "linear"] = "exponential"
    """How epsilon falls from `epsilon_start` to `epsilon_end`."""
    epsilon_start: Probability = 1.0
    """Probability of a random action at the beginning."""
    epsilon_end: Probability = 0.05
    """Probability of a random action at the end."""
    epsilon_decay: Probability = 0.99
    """Exponential exploration: factor for each update."""
    epsilon_updates: Count = 1000
    """Linear exploration: updates until the end value."""

    name: ClassVar[str] = "dqn"
    continuous: ClassVar[bool] = False
    largest_direction: ClassVar[float | None] = LARGEST_ADAM_STEP

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon_end > self.epsilon_start:
            raise FedrlError(
                f"learner.epsilon_end = {self.epsilon_end} is above learner.epsilon_start = "
                f"{self.epsilon_start}: exploration can only fall"
            )

    def init(self, key: jax.Array, observation_size: int, actions: int) -> Learned:
        """A fresh network, its copy as the target, and Adam's zeros."""
        return self.adopt(self.mlp(key, observation_size, actions))

    def adopt(self, params: Any) -> Learned:
        return Learned(params, params, ADAM.init(params))

    def experienced(self) -> "DQN":
        return replace(self, epsilon_start=self.epsilon_end)

    def epsilon(self, updates: jax.Array) -> jax.Array:
        """Probability of a random action after so many updates."""
        n = updates.astype(jnp.float32)
        if self.exploration == "exponential":
            return jnp.maximum(self.epsilon_end, self.epsilon_start * self.epsilon_decay**n)
        share = jnp.minimum(n / self.epsilon_updates, 1.0)
        return self.epsilon_start + share * (self.epsilon_end - self.epsilon_start)

    def acting_draws(self, key: jax.Array, actions: int) -> jax.Array:
        return jax.random.uniform(key, (2,))

    def act(
        self, params: Any, observation: jax.Array, noise: Any, draws: jax.Array, updates: jax.Array
    ) -> tuple[jax.Array, Any]:
        """An epsilon-greedy action, from two uniform numbers."""
        q = params(observation)
        exploring = (draws[1] * q.shape[-1]).astype(jnp.int32)
        return jnp.where(draws[0] < self.epsilon(updates), exploring, jnp.argmax(q, -1)), noise

    def acting(self, params: Any) -> tuple[Model, Output]:
        return params, "argmax"

    def update(
        self,
        learned: Learned,
        batch: Transition,
        draws: Any,
        updates: jax.Array,
        correct: Correct | None = None,
    ) -> tuple[Learned, jax.Array]:
        loss = partial(self._loss, batch=batch, y=self._targets(learned, batch))
        learned, value = self.descend(learned, loss, ADAM, self.lr, correct)
        copy = updates % self.target_every == 0
        return learned._replace(target=either(copy, learned.params, learned.target)), value

    @property
    def largest_step(self) -> float:
        return LARGEST_ADAM_STEP * self.lr

    def _targets(self, learned: Learned, batch: Transition) -> jax.Array:
        """r + gamma max_a' Q_target(s', a'), nothing after a terminal state."""
        next_q = through_the_eyes_of(learned.params, learned.target)(batch.next_observation)
        if self.double:
            choice = jnp.argmax(learned.params(batch.next_observation), -1)
            best = _picked(next_q, choice)
        else:
            best = jnp.max(next_q, -1)
        # Not a product: a terminal state may not even be a number.
        return batch.reward + jnp.where(batch.terminated > 0, 0.0, self.gamma * best)

    def _loss(self, params: Any, batch: Transition, y: jax.Array) -> jax.Array:
        error = _picked(params(batch.observation), batch.action[..., 0].astype(jnp.int32)) - y
        if self.loss == "huber":
            return jnp.mean(optax.losses.huber_loss(error))
        return jnp.mean(error**2)


def _picked(q: jax.Array, action: jax.Array) -> jax.Array:
    """q[..., action]; a masked sum, because the gradient of a gather is a slow scatter."""
    return jnp.sum(jnp.where(action[..., None] == jnp.arange(q.shape[-1]), q, 0.0), -1)
