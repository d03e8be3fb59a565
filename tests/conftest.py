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


HASTE = "jax_disable_most_optimizations"
# XLA's newer generator of code takes most of the time that small programs are compiled in.
OLDER_GENERATOR = {"xla_cpu_use_fusion_emitters": False}
# Both for another process.
HASTY = {
    HASTE.upper(): "1",
    "XLA_FLAGS": " ".join(f"--{name}={value}" for name, value in OLDER_GENERATOR.items()).lower(),
}


@pytest.fixture(scope="module")
def unoptimised():
    """For programs that run once or twice: compiled in half the time."""
    import jax

    before = jax.config.read(HASTE)
    # Programs of both kinds differ in their last bits: neither is to be met among the other's.
    jax.clear_caches()
    jax.config.update(HASTE, True)
    yield
    jax.config.update(HASTE, before)
    jax.clear_caches()


@pytest.fixture(scope="module")
def hasty(unoptimised):
    """In a fifth of the time, by another generator of code, which rounds differently."""
    import jax
    from jax._src import compiler

    options = compiler.get_compile_options

    def hasty_options(*given, env_options_overrides=None, **more):
        changed = OLDER_GENERATOR if jax.config.read(HASTE) else {}
        return options(
            *given, env_options_overrides=changed | (env_options_overrides or {}), **more
        )

    compiler.get_compile_options = hasty_options
    yield
    compiler.get_compile_options = options


@pytest.fixture
def thorough():
    """Programs as users get them, also where others are hasty: for those that run for long."""
    import jax

    before = jax.config.read(HASTE)
    jax.config.update(HASTE, False)
    yield
    jax.config.update(HASTE, before)
