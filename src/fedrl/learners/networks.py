"""Networks as plain trees of arrays."""

from itertools import pairwise
from math import sqrt
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from fedrl.launches import few_launches

# Inputs or outputs up to which a layer's product can be a plain sum.
NARROW = 8


class Affine(eqx.Module):
    """x W + b. Not equinox's `Linear`, because the layout of W matters for small networks on CPUs.

    Hidden layers are fastest with W as (inputs, outputs), the few outputs of a last layer as
    (outputs, inputs): together a quarter more updates per second for 4-128-2.
    """

    weight: jax.Array
    bias: jax.Array
    outputs_first: bool = eqx.field(static=True)

    def __init__(
        self, inputs: int, outputs: int, key: jax.Array, *, outputs_first: bool, fan_in: int
    ) -> None:
        w, b = jax.random.split(key)
        bound = 1 / sqrt(fan_in)
        shape = (outputs, inputs) if outputs_first else (inputs, outputs)
        self.weight = jax.random.uniform(w, shape, minval=-bound, maxval=bound)
        self.bias = jax.random.uniform(b, (outputs,), minval=-bound, maxval=bound)
        self.outputs_first = outputs_first

    def __call__(self, x: jax.Array) -> jax.Array:
        if few_launches() and min(self.weight.shape) <= NARROW:
            # A sum becomes part of the kernels around it, a product is one of its own.
            if self.outputs_first:
                return jnp.sum(x[..., None, :] * self.weight, -1) + self.bias
            return jnp.sum(x[..., :, None] * self.weight, -2) + self.bias
        return x @ (self.weight.T if self.outputs_first else self.weight) + self.bias


def _layers(widths: tuple[int, ...], fan_in: list[int], keys: Any) -> tuple[Affine, ...]:
    last = len(widths) - 2
    return tuple(
        Affine(*sizes, keys[i], outputs_first=i == last, fan_in=fan_in[i])
        for i, sizes in enumerate(pairwise(widths))
    )


class MLP(eqx.Module):
    """Fully connected layers with ReLU between them; takes any number of leading axes."""

    layers: tuple[Affine, ...]

    def __init__(self, widths: tuple[int, ...], key: jax.Array) -> None:
        self.layers = _layers(widths, list(widths), jax.random.split(key, len(widths) - 1))

    def __call__(self, x: jax.Array) -> jax.Array:
        *hidden, last = self.layers
        for layer in hidden:
            x = jax.nn.relu(layer(x))
        return last(x)


class Critic(eqx.Module):
    """Q(s, a): fully connected layers with ReLU between them, one of which the action enters.

    The action has weights of its own instead of being joined to the layer's input: the gradient
    with respect to the action, which the actor needs, is then a small product, not a large one.
    """

    layers: tuple[Affine, ...]
    action_weight: jax.Array
    action_layer: int = eqx.field(static=True)

    def __init__(
        self,
        observation_size: int,
        actions: int,
        hidden: tuple[int, ...],
        action_layer: int,
        key: jax.Array,
    ) -> None:
        action_key, *keys = jax.random.split(key, len(hidden) + 2)
        widths = (observation_size, *hidden, 1)
        fan_in = list(widths)
        fan_in[action_layer] += actions
        self.layers = _layers(widths, fan_in, keys)
        bound = 1 / sqrt(fan_in[action_layer])
        shape = (actions, widths[action_layer + 1])
        self.action_weight = jax.random.uniform(action_key, shape, minval=-bound, maxval=bound)
        self.action_layer = action_layer

    def __call__(self, observation: jax.Array, action: jax.Array) -> jax.Array:
        x = observation
        for i, layer in enumerate(self.layers):
            x = layer(jax.nn.relu(x) if i > 0 else x)
            if i == self.action_layer:
                x = x + action @ self.action_weight
        return x[..., 0]
