"""What an agent keeps to itself: private parts of its networks, which are never communicated.

A learner wraps each of its networks into a `Model`. Which leaves of a tree of models are private
follows from the settings, so that learners, engines and aggregators need no variants.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import sqrt
from typing import Annotated, Any, Literal

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
        numbers = count()

        def anew(model: Model) -> Model:
            embedding = self._embedding(jax.random.fold_in(key, next(numbers)))
            return Model(View(embedding, model.view.normaliser), model.network)

        return of_each(Model, anew, params) if self.embedding else params

    def taken_over(self, params: Any) -> Any:
        """Models of others, for an agent whose own observations are to count soon."""
        return of_each(
            Normaliser,
            lambda seen: Normaliser(jnp.minimum(seen.count, TAKEN_OVER), seen.mean, seen.variance),
            params,
        )

    def private(self, params: Any) -> Any:
        """Which leaves are private: a tree of truth values."""
        return _marked(params, views=True, networks=False, heads=self.head)

    def scaled(self, steps: Any, lr: float) -> Any:
        """Steps down of this size; an embedding may have a step size of its own."""
        own = lr if self.embedding_lr is None else self.embedding_lr
        sizes = _marked(steps, views=own, networks=lr, heads=lr)
        return jax.tree.map(lambda size, step: -size * step, sizes, steps)

    def seeing(self, params: Any, observation: jax.Array) -> Any:
        """The models after the agent has seen one more observation."""
        return of_each(Normaliser, lambda seen: seen.including(observation), params)


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
    return of_each(Model, lambda new, old: Model(new.view, old.network), params, target)


def of_each(kind: type, function: Callable[..., Any], *trees: Any) -> Any:
    """The last of some trees, with what a function says of every `kind` in them."""

    def of_node(*nodes: Any) -> Any:
        return function(*nodes) if isinstance(nodes[0], kind) else nodes[-1]

    return jax.tree.map(of_node, *trees, is_leaf=lambda node: isinstance(node, kind))


def _marked(tree: Any, *, views: Any, networks: Any, heads: Any) -> Any:
    """A tree of these in place of the leaves of models; what is outside counts as network."""

    def everywhere(mark: Any, tree: Any) -> Any:
        return jax.tree.map(lambda _: mark, tree)

    def of_model(model: Model) -> Model:
        network = model.network
        if heads != networks:
            own = everywhere(heads, network.layers[-1])
            network = eqx.tree_at(lambda network: network.layers[-1], network, own)
        return Model(everywhere(views, model.view), network)

    return of_each(Model, of_model, everywhere(networks, tree))
