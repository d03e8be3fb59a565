"""DDPG: what an agent with continuous actions does between two communications.

With `twin`, `actor_every` and `smoothing` it becomes TD3.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedrl.arguments import AboveZero, Count, NotNegative, Probability, StepSize, settle, whole
from fedrl.learners.learner import Correct, Learned, Learner, Output
from fedrl.learners.networks import Critic
from fedrl.learners.personalisation import ADAM, LARGEST_ADAM_STEP, Model, through_the_eyes_of
from fedrl.learners.replay import Transition


class ActorCritic(NamedTuple):
    """What the agents average."""

    actor: Model
    critics: tuple[Model, ...]
    """One, or two with `twin`."""


class ActingDraws(NamedTuple):
    """Random numbers of one action."""

    normal: jax.Array
    uniform: jax.Array


@dataclass(frozen=True)
class DDPG(Learner):
    """Deterministic policy gradients with replay; the server averages actors and critics."""

    hidden: tuple[int, ...] = (400, 300)
    """Widths of the hidden layers of actor and critic."""
    action_layer: int = 1
    """The layer of the critic that the action enters, beside what the layer before gives (0: the
    first one, beside the observation)."""
    actor_lr: StepSize = 1e-3
    """Step size of the actor's Adam."""
    critic_lr: StepSize = 1e-3
    """Step size of the critic's Adam."""
    batch: int = 64
    """Transitions in an update."""
    replay: int = 100_000
    """Transitions an agent remembers."""
    learning_starts: int = 1000
    """Steps an agent explores before its first update, and again when its replay was emptied."""
    tau: AboveZero = 5e-3
    """Share of the way that the targets go towards the networks at an update."""
    warmup: Literal["uniform", "policy"] = "uniform"
    """How actions are chosen before the first update: at random, or by policy and noise."""
    exploration: Literal["gaussian", "ou"] = "gaussian"
    """Noise on actions: independent, or an Ornstein-Uhlenbeck process that starts anew with an
    episode."""
    sigma: NotNegative = 0.1
    """Size of the noise of a step; actions are in [-1, 1]."""
    ou_theta: Probability = 0.15
    """Ornstein-Uhlenbeck exploration: share of the noise that is forgotten in a step."""
    twin: bool = False
    """Two critics, of which the smaller value is believed (TD3)."""
    actor_every: Count = 1
    """Updates of the critic for each one of actor and targets (TD3: 2)."""
    smoothing: NotNegative = 0.0
    """Size of the noise on the target's actions (TD3: 0.2)."""
    smoothing_clip: NotNegative = 0.5
    """The largest noise on a target's action (TD3: 0.5)."""

    name: ClassVar[str] = "ddpg"
    continuous: ClassVar[bool] = True
    stepped: ClassVar[tuple[str, ...]] = ActorCritic._fields
    largest_direction: ClassVar[float | None] = LARGEST_ADAM_STEP

    def __post_init__(self) -> None:
        super().__post_init__()
        # In the last layer, the best action would be the same everywhere.
        last = max(len(self.hidden) - 1, 0)
        layer = whole("learner.action_layer", self.action_layer, smallest=0, largest=last)
        settle(self, action_layer=layer)

    def init(self, key: jax.Array, observation_size: int, actions: int) -> Learned:
        """Fresh networks, their copies as targets, and Adam's zeros."""
        actor_key, *critic_keys = jax.random.split(key, 3)

        def critic(key: jax.Array) -> Model:
            return self.personal.model(
                lambda inputs: Critic(inputs, actions, self.hidden, self.action_layer, key),
                key,
                observation_size,
            )

        actor = self.mlp(actor_key, observation_size, actions)
        critics = tuple(critic(key) for key in critic_keys[: 2 if self.twin else 1])
        return self.adopt(ActorCritic(actor, critics))

    def adopt(self, params: ActorCritic) -> Learned:
        optimizer = ActorCritic(ADAM.init(params.actor), ADAM.init(params.critics))
        return Learned(params, params, optimizer)

    def experienced(self) -> "DDPG":
        return replace(self, warmup="policy")

    def acting_draws(self, key: jax.Array, actions: int) -> ActingDraws:
        normal, uniform = jax.random.split(key)
        return ActingDraws(
            jax.random.normal(normal, (actions,)),
            jax.random.uniform(uniform, (actions,), minval=-1.0, maxval=1.0),
        )

    def noise(self, actions: int) -> Any:
        return jnp.zeros(actions) if self.exploration == "ou" else ()

    def act(
        self,
        params: ActorCritic,
        observation: jax.Array,
        noise: Any,
        draws: ActingDraws,
        updates: jax.Array,
    ) -> tuple[jax.Array, Any]:
        """The actor's action with noise; before the first update possibly any action."""
        move = self.sigma * draws.normal
        if self.exploration == "ou":
            noise = move = (1 - self.ou_theta) * noise + move
        action = jnp.clip(self.policy(params, observation) + move, -1.0, 1.0)
        if self.warmup == "uniform":
            action = jnp.where(updates == 0, draws.uniform, action)
        return action, noise

    def acting(self, params: ActorCritic) -> tuple[Model, Output]:
        return params.actor, "tanh"

    def update_draws(self, key: jax.Array, actions: int) -> Any:
        return jax.random.normal(key, (self.batch, actions)) if self.smoothing else ()

    def update(
        self,
        learned: Learned,
        batch: Transition,
        draws: Any,
        updates: jax.Array,
        correct: Correct | None = None,
    ) -> tuple[Learned, jax.Array]:
        """A step of the critic; then one of the actor, with the new critic, and of the targets."""
        target = learned.target
        y = self._targets(through_the_eyes_of(learned.params, target), batch, draws)
        of_critics = partial(critic_loss, batch=batch, y=y)
        learned, loss = self.descend(learned, of_critics, ADAM, self.critic_lr, correct, "critics")
        critic, observation = learned.params.critics[0], batch.observation
        of_actor = partial(actor_loss, critic=critic, observation=observation)

        def improve() -> Learned:
            better, _ = self.descend(learned, of_actor, ADAM, self.actor_lr, correct, "actor")
            nearer = jax.tree.map(
                lambda old, now: old + self.tau * (now - old), target, better.params
            )
            return better._replace(target=nearer)

        if self.actor_every == 1:
            return improve(), loss
        after: Learned = jax.lax.cond(updates % self.actor_every == 0, improve, lambda: learned)
        return after, loss

    @property
    def largest_step(self) -> float:
        return LARGEST_ADAM_STEP * max(self.actor_lr, self.critic_lr)

    def _targets(self, target: ActorCritic, batch: Transition, draws: Any) -> jax.Array:
        """r + gamma Q_target(s', mu_target(s')), nothing after a terminal state."""
        action = _actions(target.actor, batch.next_observation)
        if self.smoothing:
            clip = self.smoothing_clip
            action = jnp.clip(action + jnp.clip(self.smoothing * draws, -clip, clip), -1.0, 1.0)
        values = [critic(batch.next_observation, action) for critic in target.critics]
        value = jnp.minimum(*values) if self.twin else values[0]
        # Not a product: a terminal state may not even be a number.
        value = jnp.where(batch.terminated > 0, 0.0, value)
        return batch.reward + self.gamma * value


def critic_loss(critics: tuple[Model, ...], batch: Transition, y: jax.Array) -> jax.Array:
    """Mean squared distance of Q(s, a) from y, added up over critics."""
    errors = [critic(batch.observation, batch.action) - y for critic in critics]
    return jnp.sum(jnp.stack([jnp.mean(error**2) for error in errors]))


def actor_loss(actor: Model, critic: Model, observation: jax.Array) -> jax.Array:
    """-Q(s, mu(s)), so that its descent is the deterministic policy gradient's ascent."""
    return -jnp.mean(critic(observation, _actions(actor, observation)))


def _actions(actor: Model, observation: jax.Array) -> jax.Array:
    """mu(s), in [-1, 1]."""
    return jnp.tanh(actor(observation))
