"""The private average: what it lets through, its noise, and the privacy that it promises."""

import subprocess
import sys
from functools import cache
from math import exp, inf, log, sqrt

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import strategies as st

from fedrl.errors import FedrlError
from fedrl.federation.aggregate import Communication
from fedrl.federation.private import MISSING, Private

SHAPES = {"w": (4, 3), "b": (3,), "scale": ()}


def model(rng, size=1.0):
    return {k: np.asarray(rng.normal(size=s) * size, np.float32) for k, s in SHAPES.items()}


def stack(trees):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def plus(one, other):
    return jax.tree.map(np.add, one, other)


def minus(one, other):
    return jax.tree.map(lambda a, b: np.asarray(a, np.float64) - b, one, other)


def norm(tree):
    return sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(tree)))


@cache
def compiled(aggregator):
    return jax.jit(aggregator.apply)


def aggregate(aggregator, agents, before, key=0):
    about = Communication(before, jnp.arange(len(agents)), jax.random.key(key))
    return jax.device_get(compiled(aggregator)(stack(agents), about))


@pytest.mark.parametrize("clip", [0.3, 2.0, 100.0])
def test_without_noise_it_is_the_average_of_updates_shortened_to_the_limit(rng, clip):
    before = model(rng)
    updates = [model(rng, size) for size in (0.01, 0.5, 1.0, 20.0)]
    agents = [plus(before, update) for update in updates]
    expected = before
    for agent in agents:
        update = minus(agent, before)
        factor = min(1.0, clip / norm(update)) / len(agents)
        expected = plus(expected, jax.tree.map(lambda leaf, f=factor: f * leaf, update))
    result = aggregate(Private(clip, noise=0.0), agents, before)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), result, expected
    )


def test_the_limit_is_on_all_parameters_together(rng):
    before = model(rng, 0.0)
    agent = jax.tree.map(lambda leaf: np.full_like(leaf, 3.0), before)
    result = aggregate(Private(clip=1.0, noise=0.0), [agent], before)
    # 12 + 3 + 1 parameters.
    for leaf in jax.tree.leaves(result):
        np.testing.assert_allclose(leaf, 1 / sqrt(16), rtol=1e-6)


def test_clipping_is_flowers(rng):
    from flwr.supercore import differential_privacy as privacy

    # As a vector: a single number, an array without axes, Flower does not shorten (1.41).
    before = {"w": rng.normal(size=(4, 3)), "b": rng.normal(size=1)}
    sizes = (0.05, 1.0, 7.0)
    agents = [jax.tree.map(lambda x, s=s: x + s * rng.normal(size=x.shape), before) for s in sizes]
    clipped = []
    for agent in agents:
        arrays = [np.array(leaf) for leaf in jax.tree.leaves(agent)]
        privacy.compute_clip_model_update(arrays, jax.tree.leaves(before), 1.5)
        clipped.append(arrays)
    result = aggregate(Private(1.5, noise=0.0), agents, before)
    for leaf, *theirs in zip(jax.tree.leaves(result), *clipped, strict=True):
        np.testing.assert_allclose(leaf, np.mean(theirs, 0), rtol=1e-5, atol=1e-6)


values = st.one_of(
    st.sampled_from([np.nan, np.inf, -np.inf, 1e30, -3e38, 1e-38]), st.floats(width=32)
)


@hypothesis.given(st.lists(values, min_size=4, max_size=4), st.sampled_from([1e-6, 0.1, 1.0, 1e3]))
@hypothesis.settings(max_examples=100)
def test_whatever_an_agent_sends_it_moves_the_model_by_its_share_of_the_limit(sent, clip):
    rng = np.random.default_rng(3)
    before = {"w": np.zeros(4, np.float32)}
    others = [{"w": rng.normal(size=4).astype(np.float32)} for _ in range(2)]
    aggregator = Private(clip, noise=0.0)
    silent = aggregate(aggregator, [*others, before], before)
    moved = aggregate(aggregator, [*others, {"w": np.array(sent, np.float32)}], before)
    assert norm(minus(moved, silent)) <= clip / 3 * (1 + 1e-5)
    assert norm(minus(moved, before)) <= clip * (1 + 1e-5)


def test_an_update_whose_length_is_no_number_counts_as_none(rng):
    before = model(rng)
    other = plus(before, model(rng, 0.1))
    silent = aggregate(Private(noise=0.0), [other, before], before)
    for bad in (np.nan, np.inf, 1e30):
        broken = {**other, "scale": np.float32(bad)}
        result = aggregate(Private(noise=0.0), [other, broken], before)
        jax.tree.map(np.testing.assert_array_equal, result, silent)


@cache
def drawn(clip, noise, n, keys=4000):
    """What is added to a model that nobody has changed, for many keys: (keys, parameters)."""
    before = {k: jnp.zeros(s) for k, s in SHAPES.items()}
    stacked = {k: jnp.zeros((n, *s)) for k, s in SHAPES.items()}

    def one(key):
        about = Communication(before, jnp.arange(n), key)
        leaves = jax.tree.leaves(Private(clip, noise).apply(stacked, about))
        return jnp.concatenate([leaf.ravel() for leaf in leaves])

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(11), keys)))


@pytest.mark.parametrize(("clip", "noise", "n"), [(1.0, 1.0, 1), (2.0, 0.7, 5), (0.1, 8.0, 20)])
def test_the_noise_is_normal_with_the_deviation_of_the_mechanism(clip, noise, n):
    numbers = drawn(clip, noise, n)
    for column in numbers.T:
        # 16 of them: below 1e-4 one of 600 times.
        fit = scipy.stats.kstest(column, "norm", (0, noise * clip / n), method="asymp")
        assert fit.pvalue > 1e-4
    # 64,000 numbers know their deviation to 0.3 %.
    np.testing.assert_allclose(numbers.std(), noise * clip / n, rtol=0.012)


def test_the_noise_of_any_two_parameters_is_independent():
    correlations = np.corrcoef(drawn(1.0, 1.0, 1).T)
    off = correlations[~np.eye(len(correlations), dtype=bool)]
    # Deviation 1 / sqrt(4000) = 0.016.
    assert np.abs(off).max() < 0.08


def test_the_noise_follows_from_the_key_and_covers_the_update(rng):
    before = model(rng)
    agents = [plus(before, model(rng, 0.1)) for _ in range(3)]
    quiet = aggregate(Private(1.0, noise=0.0), agents, before)
    once, again, other = (aggregate(Private(1.0, 0.5), agents, before, key) for key in (1, 1, 2))
    jax.tree.map(np.testing.assert_array_equal, once, again)
    alone = aggregate(Private(1.0, 0.5), [before] * 3, before, 1)
    for name in SHAPES:
        assert not np.any(once[name] == other[name])
        # The same noise whatever the updates are.
        noise, of_nothing = once[name] - quiet[name], alone[name] - before[name]
        np.testing.assert_allclose(noise, of_nothing, atol=1e-6)


def test_leaf_i_has_the_ith_key_below_that_of_the_communication():
    before = {"a": np.zeros(3, np.float32), "b": np.zeros(3, np.float32)}
    result = aggregate(Private(2.0, 1.5), [before] * 4, before, 9)
    for i, name in enumerate("ab"):
        numbers = jax.random.normal(jax.random.fold_in(jax.random.key(9), i), (3,))
        np.testing.assert_allclose(result[name], 1.5 * 2.0 / 4 * numbers, rtol=1e-6)


def test_agents_that_began_apart_have_no_update_to_clip(rng):
    with pytest.raises(FedrlError, match='initialisation = "shared"'):
        aggregate(Private(), [model(rng)], None)


def exact_epsilon(noise, rounds, delta):
    """Theorem 8 of Balle & Wang (2018); so many Gaussians are one with so much less noise."""
    sigma = noise / sqrt(rounds)
    below = scipy.stats.norm.logcdf

    def too_much(epsilon):
        first = exp(below(1 / (2 * sigma) - epsilon * sigma))
        return first - exp(epsilon + below(-1 / (2 * sigma) - epsilon * sigma)) - delta

    if too_much(0.0) <= 0:
        return 0.0
    return scipy.optimize.brentq(too_much, 0.0, 1 / (2 * sigma**2) + 40 / sigma)


def classic_epsilon(noise, rounds, delta):
    """Mironov (2017): rounds a / (2 noise^2) + log(1 / delta) / (a - 1), at the best order a."""
    return rounds / (2 * noise**2) + sqrt(2 * rounds * log(1 / delta)) / noise


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
@pytest.mark.parametrize("rounds", [1, 10, 100])
@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0, 30.0])
def test_the_privacy_loss_is_between_the_exact_one_and_the_classic_bound(noise, rounds, delta):
    spent = Private(7.0, noise, delta).epsilon(rounds)
    exact, classic = exact_epsilon(noise, rounds, delta), classic_epsilon(noise, rounds, delta)
    assert exact <= spent <= classic
    # And the two are near enough for that to say something.
    assert classic < 1.6 * exact + 0.1


def test_the_privacy_loss_depends_on_the_noise_and_not_on_the_limit():
    assert Private(0.1, 2.0).epsilon(50) == Private(10.0, 2.0).epsilon(50)
    assert (
        Private(0.1, 4.0).epsilon(50)
        < Private(0.1, 2.0).epsilon(50)
        < Private(0.1, 2.0).epsilon(51)
    )


def test_nothing_sent_costs_nothing_and_no_noise_hides_nothing():
    assert Private().epsilon(0) == 0.0
    assert Private(noise=0.0).epsilon(0) == 0.0
    assert Private(noise=0.0).epsilon(1) == inf


@pytest.mark.parametrize("rounds", [1, 10**9])
@pytest.mark.parametrize("noise", [1e-6, 1e6])
def test_the_privacy_loss_of_the_extremes_is_a_number_not_far_from_the_bound(noise, rounds):
    least = rounds / (2 * noise**2) if noise < 1 else exact_epsilon(noise, rounds, 1e-5)
    # The best order is near 1 or very large, where the accountant tries few.
    most = 1.2 * classic_epsilon(noise, rounds, 1e-5) + 0.1
    assert least <= Private(noise=noise).epsilon(rounds) <= most


def test_the_accountant_is_loaded_when_it_is_asked_and_says_nothing(tmp_path):
    program = """
import sys
from fedrl.federation.private import Private
assert "dp_accounting" not in sys.modules
print(0 < Private().epsilon(10) < 100, "dp_accounting" in sys.modules)
"""
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert (finished.stdout, finished.stderr) == ("True True\n", "")


def test_without_the_accountant_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(FedrlError) as missing:
        Private().epsilon(10)
    assert str(missing.value) == MISSING
    assert MISSING.endswith("pip install 'fedrl[privacy]'")


@pytest.mark.parametrize("rounds", [-1, 1.5, "3", True])
def test_rounds_are_counted(rounds):
    with pytest.raises(FedrlError, match="rounds must be an integer of at least 0"):
        Private().epsilon(rounds)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(({"clip": x}, "clip must be a number from 1e-12 to 1e12") for x in (0, -1, inf, "1")),
        *(({"noise": x}, "noise must be 0 or a number from 1e-6") for x in (-1, 1e-9, inf, None)),
        *(({"delta": x}, "delta must be a probability between") for x in (0, 1, -0.1, True)),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(FedrlError, match=rf"aggregator\.{message}"):
        Private(**settings)


def test_any_number_of_agents_will_do(rng):
    Private().check(agents=1, participants=1)
    before = model(rng)
    agent = plus(before, model(rng, 0.01))
    result = aggregate(Private(noise=0.0), [agent], before)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), result, agent)
