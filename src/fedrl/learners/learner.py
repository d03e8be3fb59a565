"""What learners that remember transitions have in common, and what an engine asks of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from fedrl.arguments import BelowOne, Check, Count, check_fields, whole
from fedrl.errors import FedrlError
from fedrl.learners import replay
from fedrl.learners.networks import MLP
from fedrl.learners.personalisation import Model, Part, Personal, only
from fedrl.learners.replay import Memory, Transition
from fedrl.registry import Group
from fedrl.strategies.corrections import Broadcast, Correction, Step
from fedrl.strategies.purity import hiding_nothing
from fedrl.strategies.strategy import ALL

# Of a layer, a batch, or the steps for an update: more is a mistake, and would not fit the memory.
LARGEST = 1 << 16
Size = Annotated[int, Check(partial(whole, largest=LARGEST))]

Output = Literal["argmax", "tanh", "clip"]
OUTPUTS: Mapping[Output, Callable[[jax.Array], jax.Array]] = {
    "argmax": lambda outputs: jnp.argmax(outputs, -1),
    "tanh": jnp.tanh,
    "clip": lambda outputs: jnp.clip(outputs, -1.0, 1.0),
}
"""How the outputs of a network become an action."""


class Learned(NamedTuple):
    """What an agent has learnt so far."""

    params: Any
    """What is communicated, but for its private leaves."""
    target: Any
    optimizer: Any
    memory: Any = ()
    """What the correction remembers, by the parts of the parameters; never communicated."""


class Correct(NamedTuple):
    """A correction that is ready to bend steps: with what the server has sent."""

    correction: Correction
    received: Broadcast


def _widths(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, (tuple, list)):
        raise FedrlError(f"{name} must be a list of widths, got {value!r}")
    return tuple(whole(name, width, largest=LARGEST) for width in value)


@dataclass(frozen=True)
class Learner(ABC):
    """What an agent does between two communications; knows neither files nor other agents."""

    registered_in: ClassVar[Group] = "learners"
    name: ClassVar[str]
    continuous: ClassVar[bool]
    """Whether actions are vectors in [-1, 1] instead of numbers 0, 1, ..."""
    on_policy: ClassVar[bool] = False
    """Whether an update learns from the `update_every` steps before it, so that the parameters that
    took them must not be averaged in between: an agent then acts first in every unit of work."""
    records: ClassVar[tuple[str, ...]] = ()
    """Names of the numbers that `record` gives."""
    stepped: ClassVar[tuple[str, ...]] = ()
    """Fields of the parameters that `descend` steps one by one; none: all are stepped together."""
    largest_direction: ClassVar[float | None] = None
    """The most that a direction in `descend` says of one weight; None if that is not known."""

    hidden: Annotated[tuple[int, ...], Check(_widths)] = (128,)
    """Widths of the hidden layers."""
    gamma: BelowOne = 0.99
    """Discount factor."""
    batch: Size = 16
    """Transitions in an update."""
    # The most of which every one can be picked with 23 random bits.
    replay: Annotated[int, Check(partial(whole, largest=1 << 23))] = 10_000
    """Transitions an agent remembers."""
    memory: Memory = field(default_factory=Memory)
    """How it stores them."""
    learning_starts: Count = 100
    """Steps an agent explores before its first update, and again when its replay was emptied."""
    update_every: Size = 1
    """Environment steps for each update."""
    personal: Personal = field(default_factory=Personal)
    """What of an agent's networks is private."""
    trains: Part = "everything"
    """What an update may change: shared and private leaves, either of them, or nothing."""

    def __post_init__(self) -> None:
        check_fields(self, "learner")
        if self.personal.head and not self.hidden:
            raise FedrlError(
                "learner.personal.head = True, but without hidden layers the head is all there is: "
                "nothing would be shared"
            )
        if self.trains == "private" and not self.personal:
            raise FedrlError(
                "learner.trains = 'private', but nothing is: give the agents an embedding "
                "(learner.personal.embedding), a head or a normalisation of their own"
            )

    @classmethod
    def for_actions(cls, continuous: bool) -> "Learner":
        """With its default settings, for actions of this kind if it knows both."""
        return cls()

    def check(self, family: str, continuous: bool, unit: str) -> None:
        """Refuse a family whose actions it does not learn, or a unit that it cannot count in."""
        if continuous != self.continuous:
            kind = "continuous" if continuous else "discrete"
            raise FedrlError(
                f"{family} has {kind} actions, which {self.name} does not learn: choose another "
                f"learner ({'ddpg' if continuous else 'dqn'}, or ppo with learner.actions = "
                f"{kind!r})"
            )
        if self.on_policy and unit == "episodes":
            raise FedrlError(
                f'{self.name} learns from rollouts of fixed length: use unit = "updates"'
            )

    def split(self, params: Any) -> tuple[Any, Any]:
        """(shared, private): the parameters twice, each with None where the other has leaves."""
        private = self.personal.private(params)
        own, shared = eqx.partition(params, private)
        return shared, own

    def parts(self, params: Any) -> dict[str, Any]:
        """The parameters, or the shared leaves of them, by what is stepped separately."""
        return {name: getattr(params, name) for name in self.stepped} or {ALL: params}

    def descend(
        self,
        learned: Learned,
        loss: Callable[[Any], jax.Array],
        optimizer: optax.GradientTransformation,
        lr: float,
        correct: Correct | None,
        part: str = ALL,
    ) -> tuple[Learned, jax.Array]:
        """Step all parameters, or a part of them, down a loss; also the loss.

        theta <- theta + lr * direction, where the direction is the optimizer's, corrected.
        """
        params, state = (self.parts(x)[part] for x in (learned.params, learned.optimizer))
        private = self.personal.private(params)

        def downhill(params: Any) -> tuple[jax.Array, Any, Any]:
            value, gradient = jax.value_and_grad(loss)(params)
            return value, *optimizer.update(only(self.trains, private, gradient), state)

        value, steps, state = downhill(params)
        memory = learned.memory
        if correct is not None:
            sent = correct.received
            received = Broadcast(self.parts(sent.model)[part], sent.correction[part])
            own, shared = eqx.partition(params, private)
            correction = correct.correction

            def direction(steps: Any) -> Any:
                return jax.tree.map(jnp.negative, eqx.partition(steps, private)[1])

            with hiding_nothing(correction):
                points = correction.points(shared, received)
                elsewhere = tuple(
                    direction(downhill(eqx.combine(point, own))[1]) for point in points
                )
                step = Step(direction(steps), shared, received, elsewhere)
                bent, after = correction.correct(step, memory[part])
            unbent, _ = eqx.partition(steps, private)
            steps = eqx.combine(jax.tree.map(jnp.negative, bent), unbent)
            memory = {**memory, part: after}
        steps = only(self.trains, private, self.personal.scaled(steps, lr))
        params = optax.apply_updates(params, steps)
        if part != ALL:
            params = learned.params._replace(**{part: params})
            state = learned.optimizer._replace(**{part: state})
        return Learned(params, learned.target, state, memory), value

    def mlp(self, key: jax.Array, observation_size: int, outputs: int) -> Model:
        """A model of fully connected layers, of which its own are `hidden`."""
        return self.personal.model(
            lambda inputs: MLP((inputs, *self.hidden, outputs), key), key, observation_size
        )

    @abstractmethod
    def init(self, key: jax.Array, observation_size: int, actions: int) -> Learned:
        """An agent that has learnt nothing yet."""

    @abstractmethod
    def adopt(self, params: Any) -> Learned:
        """The state of an agent that has the parameters and no history."""

    def experienced(self) -> "Learner":
        """The same learner for an agent that need not begin with random actions."""
        return self

    def witness(self, learned: Learned, observation: jax.Array) -> Learned:
        """The agent has seen an observation."""
        if self.trains in ("shared", "nothing"):  # statistics are private
            return learned
        return learned._replace(params=self.personal.seeing(learned.params, observation))

    @abstractmethod
    def acting_draws(self, key: jax.Array, actions: int) -> Any:
        """The random numbers of one action."""

    def noise(self, actions: int) -> Any:
        """What exploration remembers from step to step, at the beginning of an episode."""
        return ()

    @abstractmethod
    def act(
        self, params: Any, observation: jax.Array, noise: Any, draws: Any, updates: jax.Array
    ) -> tuple[jax.Array, Any]:
        """An action that explores, and what exploration then remembers."""

    @abstractmethod
    def acting(self, params: Any) -> tuple[Model, Output]:
        """The model behind the greedy policy, and how its outputs become an action."""

    def policy(self, params: Any, observation: jax.Array) -> jax.Array:
        """The greedy action for one observation or many."""
        model, output = self.acting(params)
        return OUTPUTS[output](model(observation))

    def executed(self, action: jax.Array) -> jax.Array:
        """What the environment gets of an action; what is remembered is the action itself."""
        return action

    def record(self, params: Any, step: Transition, cut: jax.Array) -> dict[str, jax.Array]:
        """Numbers to remember beside a step, from the parameters that took it.

        `cut` says whether the episode was cut off after it, as by a time limit. `update` finds them
        in `batch.recorded`; they are stored in 32 bits in every memory.
        """
        return {}

    def row(self, params: Any, step: Transition, cut: jax.Array) -> jax.Array:
        """What the memory stores of a step, from the parameters that took it."""
        recorded = self.record(params, step, cut)
        if set(recorded) != set(self.records):
            raise FedrlError(
                f"{self.name} records {sorted(recorded)}, but its class says records = "
                f"{self.records}: name there what record() gives"
            )
        return self.memory.row(step._replace(recorded=recorded))

    def empty(self, observation_size: int, action_size: int) -> jax.Array:
        """The memory before the first step."""
        return self.memory.empty(self.replay, observation_size, action_size, len(self.records))

    def row_bytes(self, observation_size: int, action_size: int) -> int:
        """Memory of one remembered step."""
        return self.memory.row_bytes(observation_size, action_size, len(self.records))

    def recalled(
        self, rows: jax.Array, pick: jax.Array, stored: jax.Array, observation_size: int
    ) -> Transition:
        """What an update learns from after so many steps; `pick` are numbers in [0, 1)."""
        picked = replay.sample(rows, pick, stored)
        return self.memory.transitions(picked, observation_size, self.records)

    @property
    def largest_step(self) -> float | None:
        """The most that one `update` can change a shared weight; None if that is not known."""
        return None

    @property
    def samples(self) -> int:
        """Transitions that an update goes through."""
        return self.batch

    def update_draws(self, key: jax.Array, actions: int) -> Any:
        """The random numbers of one update, beside those that pick its batch."""
        return ()

    @abstractmethod
    def update(
        self,
        learned: Learned,
        batch: Transition,
        draws: Any,
        updates: jax.Array,
        correct: Correct | None = None,
    ) -> tuple[Learned, jax.Array]:
        """One gradient step; also the loss. `updates` counts this one.

        `correct` is for `descend`; None where there is no correction.
        """
