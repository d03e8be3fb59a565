"""Server optimizers: optax by hand, the formulas of the papers, and settings that are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedrl.errors import FedrlError
from fedrl.strategies import (
    Adam,
    Communication,
    Momentum,
    NoCorrection,
    Offer,
    Replace,
    Strategy,
    Yogi,
)
from fedrl.strategies.aggregators import Mean

ROUNDS = 6
AGENTS = 3
BY_HAND = {
    "momentum": (Momentum(lr=0.7, beta=0.6), optax.sgd(0.7, momentum=0.6)),
    "adam": (
        Adam(lr=0.05, b1=0.8, b2=0.95, eps=1e-2),
        optax.adam(0.05, b1=0.8, b2=0.95, eps=1e-2),
    ),
    "yogi": (
        Yogi(lr=0.05, b1=0.8, b2=0.95, eps=1e-2),
        optax.yogi(0.05, b1=0.8, b2=0.95, eps=1e-2),
    ),
}


def tree(rng, *stacked):
    shapes = {"w": (3, 2), "b": (2,), "scale": ()}
    return {k: jnp.asarray(rng.normal(size=(*stacked, *s)), jnp.float32) for k, s in shapes.items()}


def same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("kind", BY_HAND)
def test_a_step_is_that_of_optax_down_the_model_sent_minus_the_one_offered(rng, kind):
    ours, optimizer = BY_HAND[kind]
    model = theirs = tree(rng)
    state, their_state = ours.init(model), optimizer.init(theirs)
    for _ in range(ROUNDS):
        offered = tree(rng)
        model, state = ours.step(model, offered, state)
        gradient = jax.tree.map(lambda sent, mean: sent - mean, theirs, offered)
        updates, their_state = optimizer.update(gradient, their_state, theirs)
        theirs = optax.apply_updates(theirs, updates)
        same(model, theirs)


def momentum(settings, sent, rounds):
    """FedAvgM (Hsu et al., 2019): v <- beta v + gradient, then down lr v."""
    velocity = 0.0
    for offered in rounds:
        velocity = settings.beta * velocity + (sent - offered)
        sent = sent - settings.lr * velocity
    return sent


def adaptive(settings, sent, rounds):
    """FedAdam and FedYogi (Reddi et al., 2021), with Adam's correction of the first rounds."""
    # optax begins Yogi's averages with a small number instead of zero.
    m = v = 1e-6 if isinstance(settings, Yogi) else 0.0
    for t, offered in enumerate(rounds, start=1):
        gradient = sent - offered
        square = gradient**2
        m = settings.b1 * m + (1 - settings.b1) * gradient
        if isinstance(settings, Yogi):
            v = v - (1 - settings.b2) * np.sign(v - square) * square
        else:
            v = settings.b2 * v + (1 - settings.b2) * square
        size = np.sqrt(v / (1 - settings.b2**t)) + settings.eps
        sent = sent - settings.lr * m / (1 - settings.b1**t) / size
    return sent


@pytest.mark.parametrize("kind", BY_HAND)
def test_over_many_rounds_the_formulas_of_the_papers_say_the_same(rng, kind):
    ours, _ = BY_HAND[kind]
    formula = momentum if kind == "momentum" else adaptive
    model, offers = tree(rng), [tree(rng) for _ in range(ROUNDS)]
    begun, state = model, ours.init(model)
    for offered in offers:
        model, state = jax.jit(ours.step)(model, offered, state)
    for name, leaf in begun.items():
        rounds = [np.float64(offered[name]) for offered in offers]
        expected = formula(ours, np.float64(leaf), rounds)
        np.testing.assert_allclose(model[name], expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", BY_HAND)
def test_a_strategy_steps_to_where_the_optimizer_goes_from_the_mean_offer(rng, kind):
    ours, optimizer = BY_HAND[kind]
    strategy = Strategy(server_optimizer=ours)
    server = strategy.begin(tree(rng), {})
    theirs, their_state = server.sent.model, optimizer.init(server.sent.model)
    for number in range(ROUNDS):
        offers = tree(rng, AGENTS)
        about = Communication(server.sent.model, jnp.arange(AGENTS), jax.random.key(number))
        server = strategy.step(server, Offer(offers), about)
        mean = Mean().apply(offers, about)
        gradient = jax.tree.map(jnp.subtract, theirs, mean)
        updates, their_state = optimizer.update(gradient, their_state, theirs)
        theirs = optax.apply_updates(theirs, updates)
        same(server.sent.model, theirs)
    assert int(server.rounds) == ROUNDS


# A step of 1.0 from one to the other rounds: 1e8 - (1e8 - 1e-3) is 0 in 32 bits.
EXTREMES = {"w": jnp.float32([1e8, -3e38, 1e-30, 0.1]), "b": jnp.float32(np.nan)}
OFFERED = {"w": jnp.float32([1e-3, 3e38, -0.0, 0.3]), "b": jnp.float32(np.inf)}


def bits(tree):
    return jax.tree.map(lambda leaf: np.asarray(leaf).tobytes(), tree)


@pytest.mark.parametrize("compiled", [False, True])
def test_replace_takes_what_is_offered_to_the_last_bit(compiled):
    step = jax.jit(Replace().step) if compiled else Replace().step
    model, state = step(EXTREMES, OFFERED, Replace().init(EXTREMES))
    assert bits(model) == bits(OFFERED)
    assert state == ()


def test_so_does_the_plain_strategy_of_one_agent():
    strategy = Strategy()
    server = strategy.begin(EXTREMES, {})
    about = Communication(EXTREMES, jnp.arange(1), jax.random.key(0))
    offers = {"w": OFFERED["w"][None], "b": jnp.float32([2.5])}
    server = strategy.step(server, Offer(offers), about)
    np.testing.assert_array_equal(server.sent.model["w"], OFFERED["w"])
    assert server.sent.model["b"] == 2.5


# Of the three, only optax's Yogi begins with averages that are not zero.
@pytest.mark.parametrize("kind", ["momentum", "adam"])
def test_where_agents_offer_what_they_were_sent_nothing_moves(rng, kind):
    ours, _ = BY_HAND[kind]
    model = begun = tree(rng)
    state = ours.init(model)
    for _ in range(ROUNDS):
        model, state = ours.step(model, model, state)
    same(model, begun)


def test_momentum_without_memory_and_of_full_steps_is_replace_to_rounding(rng):
    before, offered = tree(rng), tree(rng)
    ours = Momentum(lr=1.0, beta=0.0)
    model, _ = ours.step(before, offered, ours.init(before))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), model, offered)


def test_a_velocity_goes_on_where_agents_agree_with_the_server():
    """After one change by d the next steps are beta d, beta^2 d, ..."""
    ours = Momentum(lr=1.0, beta=0.5)
    model, state = {"w": jnp.float32([0.0])}, ours.init({"w": jnp.float32([0.0])})
    places = []
    for change in (8.0, 0.0, 0.0, 0.0):
        model, state = ours.step(model, {"w": model["w"] + change}, state)
        places.append(float(model["w"][0]))
    assert places == [8.0, 12.0, 14.0, 15.0]


@pytest.mark.parametrize("kind", BY_HAND)
def test_seeds_side_by_side_are_stepped_as_each_is_alone(rng, kind):
    ours, _ = BY_HAND[kind]
    befores, offers = tree(rng, 4), tree(rng, 4)
    states = jax.vmap(ours.init)(befores)
    together, _ = jax.vmap(ours.step)(befores, offers, states)
    for i in range(4):
        before, offered = (jax.tree.map(lambda leaf, i=i: leaf[i], x) for x in (befores, offers))
        alone, _ = ours.step(before, offered, ours.init(before))
        for name in alone:
            np.testing.assert_allclose(together[name][i], alone[name], rtol=1e-6)


@pytest.mark.parametrize("kind", [Replace, Momentum, Adam, Yogi])
def test_all_but_replace_compare_with_the_model_before(kind):
    assert kind().compares_with_before == (kind is not Replace)
    needs = Strategy(NoCorrection(), Mean(), kind()).needs_one_beginning
    assert needs == (None if kind is Replace else f"server optimizer {kind.name!r}")


def test_settings_are_plain_numbers_that_can_be_compared_and_hashed():
    assert Momentum(np.float32(1), 0) == Momentum(1.0, 0.0)
    assert type(Adam(lr=np.float64(0.5)).lr) is float
    assert len({settings for settings, _ in BY_HAND.values()}) == len(BY_HAND)


NO_STEP = [0, -1.0, 1e-31, 1e31, np.nan, np.inf, "1", None, True]
NO_DECAY = [-0.1, 1.0, 2, np.nan, np.inf, "0.9", None, True]
BAD = [
    *((kind, "lr", x, "a number from 1e-30 to 1e30") for kind in (Momentum, Adam) for x in NO_STEP),
    *((Momentum, "beta", x, r"a number in \[0, 1\)") for x in NO_DECAY),
    *((Yogi, name, x, r"a number in \[0, 1\)") for name in ("b1", "b2") for x in NO_DECAY),
    *((Adam, "eps", x, "a number from 1e-30 to 1e30") for x in NO_STEP),
]


@pytest.mark.parametrize(("kind", "name", "value", "allowed"), BAD)
def test_settings_that_make_no_sense_are_refused_in_a_sentence(kind, name, value, allowed):
    with pytest.raises(FedrlError, match=rf"^server_optimizer\.{name} must be {allowed}, got"):
        kind(**{name: value})
