"""How programs are written and compiled for a kind of device.

On accelerators a kernel that has little to do takes as long as its launch, and a loop or branch
that the host decides takes several launches. Small programs are therefore traced in a form with
fewer kernels; the form changes the last bits of numbers, never their meaning, and CPUs do not use
it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import jax
import jax.numpy as jnp

Tree = TypeVar("Tree")

# What XLA puts into CUDA graphs: what it does anyway, and loops and branches.
GRAPHS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,WHILE,CONDITIONAL"
# Versions before fail when a loop in a graph is run again.
FIRST_WITH_LOOPS = (0, 11)

_FEW_LAUNCHES: ContextVar[bool] = ContextVar("few_launches", default=False)


def options(platform: str, *, graphs: bool) -> dict[str, str] | None:
    """Options of `jax.jit`; with `graphs` an accelerator itself decides when loops end."""
    if platform == "gpu" and graphs and jax.__version_info__ >= FIRST_WITH_LOOPS:
        return {"xla_gpu_enable_command_buffer": GRAPHS}
    return None


@contextmanager
def with_few_launches() -> Iterator[None]:
    """What is traced meanwhile, or in a program so decorated, is in the form with fewer kernels."""
    token = _FEW_LAUNCHES.set(True)
    try:
        yield
    finally:
        _FEW_LAUNCHES.reset(token)


def few_launches() -> bool:
    """Whether what is being traced should become few kernels, at the price of more work."""
    return _FEW_LAUNCHES.get()


def wide_vectors(platform: str) -> dict[str, int] | None:
    """Options of `jax.jit` for arithmetic alone: vectors as wide as a processor has them.

    XLA stops at 256 bits, because the first processors with more had to slow down for it.
    """
    return {"xla_cpu_prefer_vector_width": 512} if platform == "cpu" else None


def either(condition: jax.Array, yes: Tree, no: Tree) -> Tree:
    """One of two trees that are there already."""
    chosen: Tree
    if few_launches():
        chosen = jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
    else:
        # The branch copies nothing where nothing changes.
        chosen = jax.lax.cond(condition, lambda: yes, lambda: no)
    return chosen
