"""Gradients without calculus."""

import numpy as np


def slopes(f, leaves, h=1e-6):
    """The gradient of f by central differences."""
    gradient = [np.zeros_like(leaf) for leaf in leaves]
    for leaf, slope in zip(leaves, gradient, strict=True):
        for index in np.ndindex(leaf.shape):
            here = leaf[index]
            leaf[index] = here + h
            above = f(leaves)
            leaf[index] = here - h
            below = f(leaves)
            leaf[index] = here
            slope[index] = (above - below) / (2 * h)
    return gradient
