"""Networks as plain trees of arrays."""

from itertools import pairwise

import equinox as eqx
import jax


class MLP(eqx.Module):
    """Fully connected layers with ReLU between them; takes any number of leading axes."""

    layers: tuple[eqx.nn.Linear, ...]

    def __init__(self, widths: tuple[int, ...], key: jax.Array) -> None:
        keys = jax.random.split(key, len(widths) - 1)
        self.layers = tuple(
            eqx.nn.Linear(inputs, outputs, key=layer_key)
            for (inputs, outputs), layer_key in zip(pairwise(widths), keys, strict=True)
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        *hidden, last = self.layers
        for layer in hidden:
            x = jax.nn.relu(_affine(layer, x))
        return _affine(last, x)


def _affine(layer: eqx.nn.Linear, x: jax.Array) -> jax.Array:
    # The whole batch in one product: a vmap over equinox's single-vector call compiles to the same,
    # but only for one leading axis.
    assert layer.bias is not None
    return x @ layer.weight.T + layer.bias
