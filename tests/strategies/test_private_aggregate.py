"""The private average: what it lets through, its noise, the privacy that it promises, attacks."""

import subprocess
import sys
from fractions import Fraction
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
from fedrl.strategies.aggregators import Communication
from fedrl.strategies.discrete_gaussian import discrete_gaussian
from fedrl.strategies.private import MISSING, Private

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


# A server over a network: integers, and noise from the operating system.


def served(aggregator, agents, before, asked=None):
    about = Communication(before, jnp.arange(len(agents)), jax.random.key(0))
    return aggregator.at_server(stack(agents), about, asked or len(agents))


@pytest.mark.parametrize(("clip", "noise", "n"), [(1.0, 1.0, 1), (2.0, 0.7, 5), (0.1, 8.0, 20)])
def test_at_a_server_the_noise_has_the_deviation_of_the_mechanism(clip, noise, n):
    before = {"w": np.zeros((100, 400), np.float32)}
    result = served(Private(clip, noise), [before] * n, before)["w"].ravel() * n / (clip * noise)
    assert scipy.stats.kstest(result, "norm", method="asymp").pvalue > 1e-4
    again = served(Private(clip, noise), [before] * n, before)["w"].ravel()
    assert abs(np.corrcoef(result, again)[0, 1]) < 0.03


def test_at_a_server_the_sum_is_that_of_the_updates_shortened_to_the_limit(rng):
    clip = 0.5
    before = {k: v.astype(np.float64) for k, v in model(rng).items()}
    updates = [model(rng, size) for size in (0.01, 0.5, 20.0)]
    agents = [plus(before, update) for update in updates]
    expected = before
    for update in updates:
        factor = min(1.0, clip / norm(update)) / 4
        expected = plus(expected, jax.tree.map(lambda leaf, f=factor: f * leaf, update))
    # Four were asked: who sends nothing has sent no change, and how many do is nobody's business.
    result = served(Private(clip, noise=1e-6), agents, before, asked=4)
    for one, other in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
        assert one.shape == other.shape
        # Noise of 1e-6 clips, six times.
        np.testing.assert_allclose(one, other, atol=6e-6 * clip / 4)


@hypothesis.given(
    st.lists(st.floats(width=32), min_size=1, max_size=6),
    st.sampled_from([1e-12, 0.37, 1.0, 1e12]),
    st.sampled_from([1e-6, 0.3, 1.0, 1.5, 77.0, 1e6]),
)
@hypothesis.settings(max_examples=200)
def test_whatever_an_agent_sends_is_not_longer_than_the_sensitivity_in_integers(sent, clip, noise):
    aggregator = Private(clip, noise)
    with np.errstate(invalid="ignore"):
        whole = aggregator.on_grid(np.array(sent, np.float32).astype(np.float64) - 0.0)
    length = sum(int(x) ** 2 for x in whole)  # Python's integers have no limits
    assert length <= aggregator.sensitivity**2
    # The guarantee is that of the settings: sensitivity / deviation is at most 1 / noise.
    assert Fraction(aggregator.sensitivity, 2**aggregator.noise_bits) <= 1 / Fraction(noise)
    if not np.isfinite(sent).all():
        assert not whole.any()
    elif 0 < norm(sent) <= clip * 0.99:
        # Nothing is lost but what is smaller than a step.
        np.testing.assert_allclose(
            whole * aggregator.step, sent, rtol=1e-12, atol=aggregator.step * (1 + 1e-9)
        )
    elif norm(sent) > clip:
        assert sqrt(length) > aggregator.sensitivity * (1 - 2e-9) - sqrt(len(sent))


def test_sums_of_very_many_of_the_longest_updates_do_not_overflow():
    # Deviation and sensitivity have at most 31 and 31 bits, and 2 ** 31 agents are enough.
    for noise in (1e-6, 1.0, 1.999999, 2.0, 1e6):
        aggregator = Private(noise=noise)
        assert 0 <= aggregator.noise_bits <= 31
        assert 2000 < aggregator.sensitivity < 2**31
        whole = aggregator.on_grid(np.array([1e30]))
        assert 0 < int(whole[0]) <= aggregator.sensitivity
        assert int(whole[0]) * 2**31 + (30 << aggregator.noise_bits) < 2**63


NOISE = 10.0
"""Of which the accountant says epsilon 0.375 at delta 1e-5, for one round."""


def hypotheses(size=64):
    """Models of four agents that the observer knows, and of a fifth that has sent one of two."""
    rng = np.random.default_rng(5)
    before = {"w": rng.normal(size=size).astype(np.float32)}
    sent = [{"w": before["w"] + rng.normal(size=size).astype(np.float32) / 20} for _ in range(4)]
    changed = {"w": before["w"] + np.float32(1 / 8)}  # one clip long
    return before, [[*sent, before], [*sent, changed]]


@cache
def normals():
    """All numbers that JAX's normal draws in 32 bits can be, ascending."""
    low = np.nextafter(np.float32(-1), np.float32(0))
    fractions = np.arange(2**23, dtype=np.float32) / np.float32(2**23)
    uniform = jnp.maximum(low, fractions * (1 - low) + low)
    return np.unique(np.asarray(jnp.sqrt(jnp.float32(2)) * jax.lax.erf_inv(uniform)))


def attainable(seen, quiet, before):
    """How many of the numbers seen could come of a hypothesis, if noise were added in 32 bits.

    `quiet` is what would have come of it without noise.
    """
    scale = NOISE / 5
    noise = normals()
    near = np.searchsorted(noise, (seen.astype(np.float64) - quiet) / scale)
    around = np.clip(near[:, None] + np.arange(-8, 8), 0, noise.size - 1)
    total = ((quiet - before) * 5).astype(np.float32)
    added = total[:, None] + np.float32(NOISE) * noise[around]
    made = before[:, None] + added / np.float32(5)
    return int((made == seen[:, None]).any(1).sum())


def guesses(release, trials):
    """How often the attack of gaps is right."""
    before, worlds = hypotheses()
    quiet = [aggregate(Private(1.0, 0.0), agents, before)["w"] for agents in worlds]
    right = 0
    for trial in range(trials):
        truth = trial % 2
        seen = release(worlds[truth], before, trial)["w"]
        fits = [attainable(seen, one, before["w"]) for one in quiet]
        # Of ties every other one is guessed right.
        right += fits[truth] > fits[1 - truth] or (fits[0] == fits[1] and trial % 4 < 2)
    return right


def test_noise_of_floats_has_gaps_by_which_what_an_agent_sent_is_told_every_time():
    # The attack works: it is what a server over a network must not do.
    private = Private(1.0, NOISE)
    assert guesses(lambda *given: aggregate(private, *given), 40) == 40


def most_often_right(epsilon, delta):
    """The best that any test of two hypotheses can do, by definition of privacy."""
    return 1 - (1 - delta) / (1 + exp(epsilon))


def test_at_a_server_neither_gaps_nor_the_best_test_tell_more_than_epsilon_allows():
    private = Private(1.0, NOISE)
    allowed = most_often_right(private.epsilon(1), private.delta)
    assert allowed == pytest.approx(0.593, abs=1e-3)
    trials = 200
    right = guesses(lambda agents, before, _: served(private, agents, before), trials)
    assert scipy.stats.binomtest(right, trials, allowed, alternative="greater").pvalue > 1e-4
    # The best one: which of the two sums makes what was seen likelier?
    before, worlds = hypotheses()
    flat = before["w"].astype(np.float64)
    sums = [
        sum(private.on_grid(agent["w"].astype(np.float64) - flat) for agent in agents)
        for agents in worlds
    ]
    right, trials = 0, 4000
    middle, way = (sums[0] + sums[1]) / 2, (sums[1] - sums[0]).astype(np.float64)
    for trial in range(trials):
        truth = trial % 2
        seen = sums[truth] + discrete_gaussian(flat.size, private.noise_bits)
        right += ((seen - middle) @ way > 0) == truth
    best = scipy.stats.norm.cdf(1 / (2 * NOISE))
    assert best < allowed
    assert scipy.stats.binomtest(right, trials, best).pvalue > 1e-4


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
from fedrl.strategies.private import Private
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
