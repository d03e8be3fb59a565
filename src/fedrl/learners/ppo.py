"""PPO: what an agent that learns from its latest steps only does between two communications.

One update goes several times over a rollout, the steps since the update before. The memory is that
rollout, so updates, rollouts and memory are equally long. What the policy that acts thinks of a
step is recorded with it: parameters that come later cannot be taken for that policy.
"""

from dataclasses import dataclass
from functools import partial
from math import log
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from fedrl.arguments import NotNegative, Positive, Probability, StepSize, settle, whole
from fedrl.errors import FedrlError
from fedrl.learners.learner import LARGEST, Correct, Learned, Learner, Output, Size
from fedrl.learners.personalisation import ADAM, LARGEST_ADAM_STEP, Model
from fedrl.learners.replay import Memory, Transition

# Actors begin with nearly the same output everywhere: no action is preferred.
FIRST_OUTPUTS = 0.01
LOG_TWO_PI = log(2 * jnp.pi)


class PolicyAndValue(NamedTuple):
    """What the agents average."""

    actor: Model
    """Logits of actions, or their means."""
    critic: Model
    """V(s)."""
    log_deviation: jax.Array
    """Of each continuous action; nothing for discrete ones."""


class Samples(NamedTuple):
    """Steps of a rollout, with what the update needs to know of them."""

    observation: jax.Array
    action: jax.Array
    log_probability: jax.Array
    """Under the policy that took the action."""
    advantage: jax.Array
    value: jax.Array
    """What the critic should say."""


@dataclass(frozen=True)
class PPO(Learner):
    """Proximal policy optimisation; the server averages policies and value functions."""

    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of actor and critic."""
    actions: Literal["discrete", "continuous"] = "discrete"
    """What kind of actions the family has."""
    rollout: int = 256
    """Steps between two updates; an update goes over these and then forgets them."""
    batch: int = 64
    """Steps in a gradient step."""
    epochs: Size = 4
    """How often an update goes over its rollout."""
    lr: StepSize = 3e-4
    """Step size of Adam."""
    gae_lambda: Probability = 0.95
    """Weight of later steps in an advantage (GAE): 0 trusts the critic, 1 the returns."""
    clip: Positive = 0.2
    """How far the probability of an action may move in an update, as a ratio."""
    value_weight: NotNegative = 0.5
    """Weight of the critic's loss."""
    entropy_weight: NotNegative = 0.0
    """Weight of the policy's entropy, which keeps it from settling early."""
    largest_gradient: Positive = 0.5
    """Longer gradients are shortened to this norm."""
    first_deviation: Positive = 0.6
    """Continuous actions: standard deviation at the beginning; actions are in [-1, 1]."""

    replay: int = 256
    """As `rollout`: it follows from it."""
    learning_starts: int = 256
    """As `rollout`: it follows from it."""
    update_every: int = 256
    """As `rollout`: it follows from it."""

    name: ClassVar[str] = "ppo"
    on_policy: ClassVar[bool] = True
    records: ClassVar[tuple[str, ...]] = ("log_probability", "value", "next_value", "cut")
    largest_direction: ClassVar[float | None] = LARGEST_ADAM_STEP

    def __post_init__(self) -> None:
        rollout = whole("learner.rollout", self.rollout, smallest=2, largest=LARGEST)
        same = dict.fromkeys(("rollout", "replay", "learning_starts", "update_every"), rollout)
        settle(self, **same)
        super().__post_init__()
        if self.memory != Memory():
            raise FedrlError(
                "learner.memory is about what is remembered for long, and ppo goes over its "
                "latest steps only, exactly as they were: leave it out"
            )
        if rollout % self.batch:
            raise FedrlError(
                f"learner.rollout = {rollout} is not a multiple of learner.batch = {self.batch}: "
                "an update goes over whole batches"
            )

    @classmethod
    def for_actions(cls, continuous: bool) -> "PPO":
        return cls(actions="continuous" if continuous else "discrete")

    def check(self, family: str, continuous: bool, unit: str) -> None:
        if continuous != self.continuous:
            kind = "continuous" if continuous else "discrete"
            raise FedrlError(f"{family} has {kind} actions: set learner.actions = {kind!r}")
        super().check(family, continuous, unit)

    @property
    def continuous(self) -> bool:  # type: ignore[override]
        return self.actions == "continuous"

    @property
    def samples(self) -> int:
        return self.rollout * self.epochs

    def init(self, key: jax.Array, observation_size: int, actions: int) -> Learned:
        """Fresh networks, and Adam's zeros."""
        actor_key, critic_key = jax.random.split(key)
        actor = eqx.tree_at(
            lambda model: model.network.layers[-1].weight,
            self.mlp(actor_key, observation_size, actions),
            replace_fn=lambda weight: FIRST_OUTPUTS * weight,
        )
        critic = self.mlp(critic_key, observation_size, 1)
        deviations = jnp.full(actions if self.continuous else 0, log(self.first_deviation))
        return self.adopt(PolicyAndValue(actor, critic, deviations))

    def adopt(self, params: PolicyAndValue) -> Learned:
        """There is no target network."""
        return Learned(params, (), self._optimizer.init(params))

    def acting_draws(self, key: jax.Array, actions: int) -> jax.Array:
        if self.continuous:
            return jax.random.normal(key, (actions,))
        return jax.random.gumbel(key, (actions,))

    def act(
        self,
        params: PolicyAndValue,
        observation: jax.Array,
        noise: Any,
        draws: jax.Array,
        updates: jax.Array,
    ) -> tuple[jax.Array, Any]:
        """An action drawn from the policy."""
        outputs = params.actor(observation)
        if self.continuous:
            return outputs + jnp.exp(params.log_deviation) * draws, noise
        return jnp.argmax(outputs + draws, -1), noise

    def executed(self, action: jax.Array) -> jax.Array:
        return jnp.clip(action, -1.0, 1.0) if self.continuous else action

    def acting(self, params: PolicyAndValue) -> tuple[Model, Output]:
        return params.actor, "clip" if self.continuous else "argmax"

    def recalled(
        self, rows: jax.Array, pick: jax.Array, stored: jax.Array, observation_size: int
    ) -> Transition:
        """All of the rollout, in its order: the memory is written from its beginning each time."""
        return self.memory.transitions(rows, observation_size, self.records)

    def witness(self, learned: Learned, observation: jax.Array) -> Learned:
        """As it was: an update counts its rollout, so that one policy takes all of the next."""
        return learned

    def record(
        self, params: PolicyAndValue, step: Transition, cut: jax.Array
    ) -> dict[str, jax.Array]:
        """What the policy that acts thinks of a step, and whether it was cut off after it."""
        action = jnp.atleast_1d(step.action)
        log_probability, _ = self._of_actions(params, step.observation, action)
        both = jnp.stack([step.observation, step.next_observation])
        value, next_value = params.critic(both)[..., 0]
        return {
            "log_probability": log_probability,
            "value": value,
            "next_value": next_value,
            "cut": cut,
        }

    def update_draws(self, key: jax.Array, actions: int) -> jax.Array:
        """An order of the rollout's steps for each epoch."""
        keys = jax.random.split(key, self.epochs)
        return jax.vmap(lambda key: jax.random.permutation(key, self.rollout))(keys)

    def update(
        self,
        learned: Learned,
        batch: Transition,
        draws: jax.Array,
        updates: jax.Array,
        correct: Correct | None = None,
    ) -> tuple[Learned, jax.Array]:
        """Epochs of clipped policy gradients over the rollout."""
        samples = self._samples(batch)
        batches = draws.reshape(-1, self.batch)

        def step(learned: Learned, rows: jax.Array) -> tuple[Learned, jax.Array]:
            some = jax.tree.map(lambda leaf: leaf[rows], samples)
            loss = partial(self._loss, samples=some)
            return self.descend(learned, loss, self._optimizer, self.lr, correct)

        learned, losses = jax.lax.scan(step, learned, batches)
        if self.personal.normalisation:
            witness = super().witness
            learned, _ = jax.lax.scan(
                lambda learned, seen: (witness(learned, seen), None), learned, batch.observation
            )
        return learned, losses.mean()

    @property
    def largest_step(self) -> float:
        return LARGEST_ADAM_STEP * self.lr * self.epochs * (self.rollout // self.batch)

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(self.largest_gradient), ADAM)

    def _samples(self, rollout: Transition) -> Samples:
        advantage = advantages(rollout, self.gamma, self.gae_lambda)
        recorded = rollout.recorded
        return Samples(
            rollout.observation,
            rollout.action,
            recorded["log_probability"],
            (advantage - advantage.mean()) / (advantage.std() + 1e-8),
            advantage + recorded["value"],
        )

    def _of_actions(
        self, params: PolicyAndValue, observation: jax.Array, action: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """log pi(a | s), and the entropy of pi(. | s)."""
        outputs = params.actor(observation)
        if self.continuous:
            log_deviation = params.log_deviation
            distance = (action - outputs) * jnp.exp(-log_deviation)
            density = -0.5 * distance**2 - log_deviation - 0.5 * LOG_TWO_PI
            entropy = jnp.sum(log_deviation + 0.5 * (1 + LOG_TWO_PI))
            return density.sum(-1), jnp.broadcast_to(entropy, density.shape[:-1])
        logs = jax.nn.log_softmax(outputs)
        # A masked sum, because the gradient of a gather is a slow scatter.
        taken = action[..., :1].astype(jnp.int32) == jnp.arange(outputs.shape[-1])
        return jnp.sum(jnp.where(taken, logs, 0.0), -1), -jnp.sum(jnp.exp(logs) * logs, -1)

    def _loss(self, params: PolicyAndValue, samples: Samples) -> jax.Array:
        """-min(rho A, clip(rho) A) with rho = pi / pi_old, the critic's error, the entropy."""
        log_probability, entropy = self._of_actions(params, samples.observation, samples.action)
        ratio = jnp.exp(log_probability - samples.log_probability)
        near = jnp.clip(ratio, 1 - self.clip, 1 + self.clip)
        gain = jnp.minimum(ratio * samples.advantage, near * samples.advantage)
        error = params.critic(samples.observation)[..., 0] - samples.value
        return (
            -gain.mean()
            + self.value_weight * jnp.mean(error**2)
            - self.entropy_weight * entropy.mean()
        )


def advantages(rollout: Transition, gamma: float, gae_lambda: float) -> jax.Array:
    """Generalised advantage estimates: sum_l (gamma lambda)^l delta_{t+l} within an episode."""
    recorded, ended = rollout.recorded, rollout.terminated > 0
    # Not a product: a terminal state may not even be a number.
    following = jnp.where(ended, 0.0, recorded["next_value"])
    delta = rollout.reward + gamma * following - recorded["value"]
    # An episode that was cut off goes on in its value, but the next row is not its next step.
    follows = ~ended & (recorded["cut"] == 0)

    def backwards(later: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[Any, jax.Array]:
        delta, follows = now
        advantage = delta + gamma * gae_lambda * jnp.where(follows, later, 0.0)
        return advantage, advantage

    last = jnp.zeros(())
    _, found = jax.lax.scan(backwards, last, (delta, follows), reverse=True)
    return found
