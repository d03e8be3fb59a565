"""What an agent keeps to itself: private parts of its networks, which are never communicated.

A learner wraps each of its networks into a `Model`. Which leaves of a tree of models are private
follows from the settings, so that learners, engines and aggregators need no variants.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import sqrt
from typing import Annotated, Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from fedrl.arguments import Check, NotNegative, StepSize, check_fields, whole

# Further from the mean than so many deviations an observation is cut off.
FURTHEST = 10.0
# Added to a variance: a component that never changes is not divided by zero.
SMALLEST_VARIANCE = 1e-8
# From then on the statistics forget: in 32 bits more could not be counted exactly for long.
MOST_COUNTED = 1 << 20
# Observations that the statistics an agent takes over from others count for in a new environment.
TAKEN_OVER = 1000
LARGEST_EMBEDDING = 1 << 10


class Normaliser(eqx.Module):
    """Mean and variance of the observations an agent has seen."""

    count: jax.Array
    mean: jax.Array
    variance: jax.Array

    @classmethod
    def of_nothing(cls, size: int) -> "Normaliser":
        return cls(jnp.float32(0), jnp.zeros(size), jnp.zeros(size))

    def including(self, observation: jax.Array) -> "Normaliser":
        """The same after one more observation (Welford's recursion, as means instead of sums)."""
        count = jnp.minimum(self.count + 1, MOST_COUNTED)
        distance = observation - self.mean
        mean = self.mean + distance / count
        squared = distance * (observation - mean)
        return Normaliser(count, mean, self.variance + (squared - self.variance) / count)

    @classmethod
    def pooled(cls, stacked: "Normaliser") -> "Normaliser":
        """Mean and variance of all that several agents have seen, stacked along the first axis."""
        share = stacked.count / jnp.maximum(stacked.count.sum(), 1)

        def mean(leaves: jax.Array) -> jax.Array:
            # Around the first agent: equal statistics then stay exactly as they are.
            return leaves[0] + jnp.tensordot(share, leaves - leaves[0], 1)

        middle = mean(stacked.mean)
        spread = jnp.tensordot(share, (stacked.mean - middle) ** 2, 1)
        count = jnp.minimum(stacked.count.sum(), MOST_COUNTED)
        return cls(count, middle, mean(stacked.variance) + spread)

    def __call__(self, observation: jax.Array) -> jax.Array:
        # Until two observations are known, nothing is changed.
        scaled = (observation - self.mean) / jnp.sqrt(self.variance + SMALLEST_VARIANCE)
        return jnp.where(self.count > 1, jnp.clip(scaled, -FURTHEST, FURTHEST), observation)


class View(eqx.Module):
    """How an agent sees its environment; all of it is private."""

    embedding: jax.Array | None
    normaliser: Normaliser | None

    def __call__(self, observation: jax.Array) -> jax.Array:
        """What a network gets to see: the embedding, then the observation."""
        if self.normaliser is not None:
            # Statistics are counted, not learnt.
            observation = jax.lax.stop_gradient(self.normaliser)(observation)
        if self.embedding is None:
            return observation
        shape = (*observation.shape[:-1], self.embedding.shape[0])
        return jnp.concatenate([jnp.broadcast_to(self.embedding, shape), observation], -1)


class Model(eqx.Module):
    """A network behind an agent's view of its environment."""

    view: View
    network: Any

    def __call__(self, observation: jax.Array, *action: jax.Array) -> jax.Array:
        values: jax.Array = self.network(self.view(observation), *action)
        return values


# Of the moments, as optax has them.
ADAM_B1, ADAM_B2 = 0.9, 0.999
ADAM = optax.scale_by_adam(ADAM_B1, ADAM_B2)
"""Adam's steps before they are scaled by a step size."""
LARGEST_ADAM_STEP = (1 - ADAM_B1) / sqrt((1 - ADAM_B2) * (1 - ADAM_B1**2 / ADAM_B2))
"""How many step sizes Adam can move a weight at once, whatever the gradients: Cauchy-Schwarz for
its two moments. Gradients that grow by b2 / b1 from update to update come near it."""


@dataclass(frozen=True)
class Personal:
    """What of an agent's networks is private; nothing, unless said: the plain algorithms."""

    embedding: Annotated[int, Check(partial(whole, smallest=0, largest=LARGEST_EMBEDDING))] = 0
    """Numbers that stand for the agent's environment, put before each observation and learnt."""
    embedding_range: NotNegative = 1.0
    """An embedding begins uniform between minus this and this."""
    embedding_lr: StepSize | None = None
    """Step size of the embedding's Adam; its network's unless given."""
    head: bool = False
    """Whether each agent has an output layer of its own."""
    normalisation: bool = False
    """Whether each agent centres and scales observations by mean and deviation of its own."""

    def __post_init__(self) -> None:
        check_fields(self, "learner.personal")

    def __bool__(self) -> bool:
        """Whether anything is private."""
        return bool(self.embedding or self.head or self.normalisation)

    def model(self, network: Callable[[int], Any], key: jax.Array, observation_size: int) -> Model:
        """A model whose network is made for what it gets to see, so many numbers."""
        normaliser = Normaliser.of_nothing(observation_size) if self.normalisation else None
        embedding = self._embedding(key) if self.embedding else None
        return Model(View(embedding, normaliser), network(self.embedding + observation_size))

    def _embedding(self, key: jax.Array) -> jax.Array:
        limit = self.embedding_range
        return jax.random.uniform(key, (self.embedding,), minval=-limit, maxval=limit)

    def with_new_embeddings(self, params: Any, key: jax.Array) -> Any:
        """The same models, each with an embedding drawn anew."""
        if not self.embedding:
            return params
        numbers = count()

        def anew(model: Model) -> Model:
            embedding = self._embedding(jax.random.fold_in(key, next(numbers)))
            return Model(View(embedding, model.view.normaliser), model.network)

        return _of_each(Model, anew, params)

    def taken_over(self, params: Any) -> Any:
        """Models of others, for an agent whose own observations are to count soon."""

        def less_sure(seen: Normaliser) -> Normaliser:
            return Normaliser(jnp.minimum(seen.count, TAKEN_OVER), seen.mean, seen.variance)

        return _of_each(Normaliser, less_sure, params)

    def private(self, params: Any) -> Any:
        """Which leaves are private: a tree of truth values."""

        def of_model(model: Model) -> Any:
            private = Model(_everywhere(True, model.view), _everywhere(False, model.network))
            if not self.head:
                return private
            own = _everywhere(True, model.network.layers[-1])
            return eqx.tree_at(lambda private: private.network.layers[-1], private, own)

        return _of_each(Model, of_model, params, otherwise=False)

    def scaled(self, steps: Any, lr: float) -> Any:
        """Steps down of this size; an embedding may have a step size of its own."""

        def of_model(model: Model) -> Model:
            own = lr if self.embedding_lr is None else self.embedding_lr
            return Model(_everywhere(own, model.view), _everywhere(lr, model.network))

        sizes = _of_each(Model, of_model, steps, otherwise=lr)
        return jax.tree.map(lambda size, step: -size * step, sizes, steps)

    def seeing(self, params: Any, observation: jax.Array) -> Any:
        """The models after the agent has seen one more observation."""
        return _of_each(Normaliser, lambda seen: seen.including(observation), params)


Part = Literal["everything", "private", "shared", "nothing"]


def only(part: Part, private: Any, tree: Any) -> Any:
    """A tree of steps or gradients with zeros but in the part that may be trained."""
    if part == "everything":
        return tree

    def trained(own: bool, leaf: jax.Array) -> jax.Array:
        return leaf if part == ("private" if own else "shared") else jnp.zeros_like(leaf)

    return jax.tree.map(trained, private, tree)


def through_the_eyes_of(params: Any, target: Any) -> Any:
    """The target's networks behind today's views: embeddings and statistics have no old copy."""
    return jax.tree.map(
        lambda new, old: Model(new.view, old.network) if isinstance(new, Model) else old,
        params,
        target,
        is_leaf=lambda node: isinstance(node, Model),
    )


def statistics(params: Any) -> list[Normaliser]:
    """Those of every model that has some."""
    nodes = jax.tree.leaves(params, is_leaf=lambda node: isinstance(node, Normaliser))
    return [node for node in nodes if isinstance(node, Normaliser)]


def with_statistics(params: Any, found: list[Normaliser]) -> Any:
    """The models with these statistics, in the same order."""
    given = iter(found)
    return _of_each(Normaliser, lambda _: next(given), params)


Node = TypeVar("Node", Model, Normaliser)


def _of_each(
    kind: type[Node], function: Callable[[Node], Node], tree: Any, otherwise: Any = None
) -> Any:
    """A tree with each `kind` in it replaced; leaves outside become `otherwise`, if given."""

    def of_node(node: Any) -> Any:
        if isinstance(node, kind):
            return function(node)
        return node if otherwise is None else otherwise

    return jax.tree.map(of_node, tree, is_leaf=lambda node: isinstance(node, kind))


def _everywhere(value: Any, tree: Any) -> Any:
    return jax.tree.map(lambda _: value, tree)
