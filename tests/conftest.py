"""What all tests may use; random problems are drawn with NumPy and owe nothing to the package."""

import warnings
from typing import NamedTuple

import hypothesis
import numpy as np
import pytest

with warnings.catch_warnings():
    # Flower's command line warns about itself when it is first imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    import flwr.serverapp  # noqa: F401

# The time of an example is mostly compilation; and no example database in the working tree.
hypothesis.settings.register_profile("fedrl", deadline=None, database=None, derandomize=True)
hypothesis.settings.load_profile("fedrl")


class Problem(NamedTuple):
    P: np.ndarray  # (seeds, n, S, A, S)
    R: np.ndarray  # (seeds, S, A)
    d0: np.ndarray  # (S,)
    table: np.ndarray  # (seeds, S, A), entries U[0, 1]
    policy: np.ndarray  # (seeds, S, A), rows sum to 1


def random_problem(rng: np.random.Generator, seeds=2, n=3, S=4, A=3) -> Problem:
    P = rng.dirichlet(np.full(S, 0.5), size=(seeds, n, S, A))
    P /= P.sum(axis=-1, keepdims=True)
    return Problem(
        P=P,
        R=rng.normal(size=(seeds, S, A)),
        d0=rng.dirichlet(np.ones(S)),
        table=rng.random((seeds, S, A)),
        policy=rng.dirichlet(np.ones(A), size=(seeds, S)),
    )


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Compiled programs, shared with all other tests that keep them."""
    from tiny import compilations_kept

    with compilations_kept(tmp_path_factory):
        yield


@pytest.fixture(scope="module")
def hasty():
    """For programs that run once or twice: compiled in half the time, with few optimisations."""
    import jax

    name = "jax_disable_most_optimizations"
    before = jax.config.read(name)
    # Programs of both kinds differ in their last bits: neither is to be met among the other's.
    jax.clear_caches()
    jax.config.update(name, True)
    yield
    jax.config.update(name, before)
    jax.clear_caches()
