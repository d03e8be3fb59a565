"""Trees of arrays: their leaves by name, and a tree again from leaves that were stored."""

from typing import Any, TypeVar

import jax

from fedrl.files import Array

Tree = TypeVar("Tree")


def named_leaves(tree: Any) -> dict[str, Any]:
    """The leaves of a tree under the names of their places, in the order of the tree."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def fits(like: Any, leaves: list[Array]) -> bool:
    """Whether these could be the leaves of such a tree, of which only shapes and types matter."""
    wanted = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(like)]
    return wanted == [(leaf.shape, leaf.dtype) for leaf in leaves]


def refilled(like: Tree, leaves: list[Array]) -> Tree | None:
    """A tree with the structure of another one from leaves; None if they do not fit."""
    if not fits(like, leaves):
        return None
    filled: Tree = jax.tree.unflatten(jax.tree.structure(like), leaves)
    return filled
