"""What an agent sees of its environment, against NumPy and finite differences."""

from dataclasses import replace
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedrl import Experiment, FedrlError
from fedrl.engine.local_engine import LocalEngine
from fedrl.families import CartPoles
from fedrl.learners.ddpg import DDPG, ActingDraws, ActorCritic
from fedrl.learners.dqn import DQN
from fedrl.learners.personalisation import ADAM, MOST_COUNTED, Model, Normaliser, Personal, View
from fedrl.learners.replay import Transition
from finite_differences import slopes
from probes import Pendulum

OBSERVATIONS, ACTIONS, EMBEDDING, BATCH = 3, 2, 4, 6
pytestmark = pytest.mark.usefixtures("hasty")
EVERYTHING = Personal(embedding=EMBEDDING, head=True, normalisation=True)
SIZES = {"hidden": (6, 5), "gamma": 0.9, "batch": BATCH, "personal": EVERYTHING}
DISCRETE = DQN(**SIZES, lr=0.01)
CONTINUOUS = DDPG(**SIZES, actor_lr=0.01, critic_lr=0.03, twin=True)
BOTH = pytest.mark.parametrize("learner", [DISCRETE, CONTINUOUS], ids=["dqn", "ddpg"])


def same(one, other):
    one, other = jax.tree.leaves(one), jax.tree.leaves(other)
    return len(one) == len(other) and all(map(np.array_equal, one, other))


def doubles(tree):
    return jax.tree.map(lambda leaf: np.array(leaf, np.float64), tree)


def random_batch(rng, learner):
    discrete = rng.integers(ACTIONS, size=(BATCH, 1))
    continuous = rng.uniform(-1, 1, size=(BATCH, ACTIONS))
    batch = Transition(
        observation=rng.normal(size=(BATCH, OBSERVATIONS)),
        action=continuous if learner.continuous else discrete,
        reward=rng.normal(size=BATCH),
        next_observation=rng.normal(size=(BATCH, OBSERVATIONS)),
        terminated=np.array([0, 1, 0, 0, 1, 0]),
    )
    return jax.tree.map(np.float32, batch)


def models(params):
    return [params] if isinstance(params, Model) else [params.actor, *params.critics]


def changed(params, where, change):
    """The same, but for what is somewhere in each of the models."""
    return eqx.tree_at(lambda params: list(map(where, models(params))), params, replace_fn=change)


@cache
def agent(learner):
    """An agent that has seen something, and whose target is another network with another view."""
    shapes = jax.eval_shape(lambda: learner.init(jax.random.key(0), OBSERVATIONS, ACTIONS).params)

    def params(seed, further):
        rng = np.random.default_rng(seed)
        drawn = jax.tree.map(lambda x: rng.uniform(-1, 1, x.shape).astype(np.float32), shapes)
        mean, variance = np.float32([[1, 0, -2], [0.9, 2, 0.5]])
        seen = Normaliser(np.float32(9 + further), mean + further, variance)
        return changed(drawn, lambda model: model.view.normaliser, lambda _: seen)

    return learner.adopt(params(9, 0))._replace(target=params(3, 1))


@cache
def compiled_update(learner):
    return jax.jit(learner.update)


def updated(learner, learned, batch):
    """The agent after its first update, and the loss."""
    return jax.device_get(compiled_update(learner)(learned, batch, (), np.int32(1)))


# Statistics of observations.


def normalisers(seen):
    """After each of the observations."""
    found = [Normaliser.of_nothing(len(seen[0]))]
    for observation in np.array(seen, np.float32):
        found.append(found[-1].including(observation))
    return found[1:]


def numpy_normalised(x, seen):
    seen = np.array(seen, np.float64)
    return np.clip((x - seen.mean(0)) / np.sqrt(seen.var(0) + 1e-8), -10, 10)


def test_mean_and_variance_are_numpys_after_every_observation(rng):
    seen = rng.normal([0, 5, -300], [1, 0.01, 40], size=(200, 3)).astype(np.float32)
    for n, normaliser in enumerate(normalisers(seen), start=1):
        past = seen[:n].astype(np.float64)
        assert normaliser.count == n
        np.testing.assert_allclose(normaliser.mean, past.mean(0), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(normaliser.variance, past.var(0), rtol=2e-3, atol=1e-6)


def test_until_two_observations_are_known_nothing_is_changed():
    first, second = normalisers([[100.0, -3.0], [102.0, -3.5]])
    some = np.array([[-5e3, 0.0], [7.0, 1e-3]], np.float32)
    for normaliser in (Normaliser.of_nothing(2), first):
        np.testing.assert_array_equal(normaliser(some), some)
    np.testing.assert_allclose(second(np.float32([101.5, -3.5])), [0.5, -1], atol=1e-3)


def test_what_is_further_than_ten_deviations_is_cut_off_there():
    normaliser = normalisers([[-1.0], [1.0]])[-1]
    for seen, given in ((9.9, 9.9), (-9.9, -9.9), (10.1, 10), (-1e6, -10), (1e30, 10)):
        assert float(normaliser(np.float32([seen]))[0]) == pytest.approx(given, rel=1e-6)


def test_a_component_that_never_changes_becomes_zero_and_the_others_are_scaled():
    normaliser = normalisers([[0.1, 1.0], [0.1, 2.0], [0.1, 6.0]])[-1]
    expected = [0, 1 / np.std([1, 2, 6])]
    np.testing.assert_allclose(normaliser(np.float32([0.1, 4])), expected, rtol=1e-6)
    assert np.isfinite(normaliser(np.float32([0.2, 4]))).all()


def test_statistics_stay_right_when_there_is_more_than_can_be_counted():
    observations = jnp.asarray(np.random.default_rng(0).normal(3, 2, (2000, 1)), jnp.float32)
    mean, variance = observations.mean(0), observations.var(0)
    full = Normaliser(jnp.float32(MOST_COUNTED), mean, variance)

    @jax.jit
    def after_many(normaliser):
        def step(number, seen):
            return seen.including(observations[number % len(observations)])

        return jax.lax.fori_loop(0, 3 * 2**20, step, normaliser)

    assert full.including(observations[0]).count == MOST_COUNTED
    found = after_many(full)
    np.testing.assert_allclose(found.mean, mean, atol=0.01)
    np.testing.assert_allclose(found.variance, variance, rtol=0.01)


@pytest.mark.parametrize("counts", [(50, 50, 50), (3, 200, 1), (40, 0, 7), (0, 0, 0)])
def test_pooled_statistics_are_numpys_of_all_that_was_seen(rng, counts):
    offsets = rng.normal(scale=5, size=(len(counts), 2))
    seen = [offset + rng.normal(size=(n, 2)) for n, offset in zip(counts, offsets, strict=True)]
    each = [
        Normaliser(np.float32(len(x)), x.mean(0), x.var(0)) if len(x) else Normaliser.of_nothing(2)
        for x in seen
    ]
    stacked = jax.tree.map(lambda *leaves: np.float32(leaves), *each)
    pooled, everything = Normaliser.pooled(stacked), np.concatenate(seen)
    assert pooled.count == len(everything)
    if len(everything):
        np.testing.assert_allclose(pooled.mean, everything.mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(pooled.variance, everything.var(0), rtol=1e-5)
    else:
        assert not any(map(np.any, jax.tree.leaves(pooled)))


def test_equal_statistics_are_pooled_to_the_last_bit(rng):
    one = Normaliser(np.float32(7), *rng.uniform(size=(2, 5)).astype(np.float32))
    pooled = Normaliser.pooled(jax.tree.map(lambda leaf: np.stack([leaf] * 3), one))
    assert same((pooled.mean, pooled.variance), (one.mean, one.variance))


@BOTH
def test_the_averaged_model_has_pooled_statistics_and_the_mean_of_the_rest(learner):
    family = CartPoles() if isinstance(learner, DQN) else Pendulum()
    experiment = Experiment("pooled", family=family, learner=learner, agents=3)
    numbers = iter(range(1, 1000))
    params = jax.eval_shape(LocalEngine(experiment).first_params, jnp.int32(0))
    params = jax.tree.map(lambda x: np.full(x.shape, next(numbers), np.float32), params)
    params = jax.tree.map(lambda x: x + np.arange(3).reshape(-1, *(1,) * (x.ndim - 1)), params)
    average = LocalEngine(experiment).average(params)
    for new, old in zip(models(average), models(params), strict=True):
        for a, b in zip(jax.tree.leaves(new.network), jax.tree.leaves(old.network), strict=True):
            np.testing.assert_allclose(a, b.mean(0), rtol=1e-6)
        assert same(new.view.normaliser, Normaliser.pooled(old.view.normaliser))


def test_statistics_taken_over_from_others_count_for_a_thousand_observations():
    learner = replace(DQN(hidden=(4,)), personal=Personal(normalisation=True))
    params = learner.init(jax.random.key(0), 2, 2).params
    for count, wanted in ((5e5, 1000), (10, 10)):
        seen = Normaliser(np.float32(count), np.ones(2), np.ones(2))
        old = Model(View(None, seen), params.network)
        new = learner.personal.taken_over(old)
        assert new.view.normaliser.count == wanted
        np.testing.assert_array_equal(new.view.normaliser.mean, seen.mean)
        np.testing.assert_array_equal(new.view.normaliser.variance, seen.variance)


@BOTH
def test_every_network_of_an_agent_counts_what_the_agent_sees_and_nothing_else_changes(
    rng, learner
):
    nothing = Normaliser.of_nothing(OBSERVATIONS)
    learned = before = learner.adopt(
        changed(agent(learner).params, lambda model: model.view.normaliser, lambda _: nothing)
    )
    seen = rng.normal(size=(4, OBSERVATIONS)).astype(np.float32)
    for observation in seen:
        learned = learner.witness(learned, observation)
    assert same(learned[1:], before[1:])
    for new, old in zip(models(learned.params), models(before.params), strict=True):
        assert same((new.view.embedding, new.network), (old.view.embedding, old.network))
        np.testing.assert_allclose(new.view.normaliser.mean, seen.mean(0), atol=1e-6)
        np.testing.assert_allclose(new.view.normaliser.variance, seen.var(0), atol=1e-6)


# What a network gets to see.


@pytest.mark.parametrize("shape", [(), (5,), (4, 5)])
def test_the_embedding_comes_before_the_observation_which_alone_is_normalised(rng, shape):
    seen = rng.normal([0, 5, -30], [1, 2, 4], size=(20, 3)).astype(np.float32)
    some = rng.normal([0, 5, -30], [1, 2, 4], size=(*shape, 3)).astype(np.float32)
    embedding = np.array([70.0, -80.0], np.float32)
    own = np.broadcast_to(embedding, (*shape, 2))
    np.testing.assert_array_equal(View(None, None)(some), some)
    expected = np.concatenate([own, some], -1)
    np.testing.assert_array_equal(View(embedding, None)(some), expected)
    normaliser, scaled = normalisers(seen)[-1], numpy_normalised(some, seen)
    np.testing.assert_allclose(View(None, normaliser)(some), scaled, atol=1e-5)
    expected = np.concatenate([own, scaled], -1)
    np.testing.assert_allclose(View(embedding, normaliser)(some), expected, atol=1e-5)


# Losses once more, one by one. `views` are those that the target's networks look through.


def numpy_values(model, observation, action=None):
    view, network = model.view, model.network
    mean, variance = view.normaliser.mean, view.normaliser.variance
    x = np.clip((observation - mean) / np.sqrt(variance + 1e-8), -10, 10)
    x = np.concatenate([np.tile(view.embedding, (len(x), 1)), x], -1)
    for number, layer in enumerate(network.layers):
        x = np.maximum(x, 0) if number else x
        last = number == len(network.layers) - 1
        x = x @ (layer.weight.T if last else layer.weight) + layer.bias
        if action is not None and number == network.action_layer:
            x = x + action @ network.action_weight
    return x


def numpy_targets(learner, learned, batch, views):
    networks = [model.network for model in models(learned.target)]
    target, *critics = map(Model, views, networks)
    values = numpy_values(target, batch.next_observation)
    if learner.continuous:
        given = batch.next_observation, np.tanh(values)
        value = np.min([numpy_values(critic, *given)[:, 0] for critic in critics], 0)
    else:
        choosing = learned.params if learner.double else target
        choice = np.argmax(numpy_values(choosing, batch.next_observation), -1)
        value = values[np.arange(BATCH), choice]
    return batch.reward + 0.9 * (1 - batch.terminated) * value


def numpy_loss(learner, model, batch, y):
    """Of a critic, or of a network of Q-values."""
    if learner.continuous:
        q = numpy_values(model, batch.observation, batch.action)[:, 0]
    else:
        q = numpy_values(model, batch.observation)[np.arange(BATCH), batch.action[:, 0].astype(int)]
    return ((q - y) ** 2).mean()


def numpy_actor_loss(actor, critic, observation):
    return -numpy_values(critic, observation, np.tanh(numpy_values(actor, observation))).mean()


@BOTH
def test_an_agent_acts_on_what_it_sees_through_its_view(rng, learner):
    params, some = agent(learner).params, rng.normal(0, 8, (12, 3)).astype(np.float32)
    values = numpy_values(models(doubles(params))[0], some)
    expected = np.tanh(values) if learner.continuous else np.argmax(values, -1)
    np.testing.assert_allclose(learner.policy(params, some), expected, atol=1e-5)
    never = ActingDraws(np.zeros(ACTIONS), np.zeros(ACTIONS)) if learner.continuous else np.ones(2)
    for observation, action in zip(some, expected, strict=True):
        found, _ = learner.act(params, observation, (), never, np.int32(1))
        np.testing.assert_allclose(found, action, atol=1e-5)
    assert learner.continuous or len(np.unique(expected)) == ACTIONS


# Targets.


def seen_otherwise(params):
    """The same networks behind other embeddings, or behind other statistics."""
    return (
        changed(params, lambda model: model.view.embedding, lambda e: e[::-1] + 1),
        changed(params, lambda model: model.view.normaliser.mean, lambda mean: mean + 1),
        changed(params, lambda model: model.view.normaliser.variance, lambda x: 2 * x),
    )


def other_heads(params):
    return changed(params, lambda model: model.network.layers[-1].weight, lambda w: -w)


@pytest.mark.parametrize(
    "learner",
    [DISCRETE, replace(DISCRETE, double=True), CONTINUOUS],
    ids=["dqn", "double dqn", "ddpg"],
)
def test_the_targets_old_network_with_its_old_head_sees_with_the_views_of_today(rng, learner):
    batch, first = random_batch(rng, learner), agent(learner)

    def loss(learned):
        return float(updated(learner, learned, batch)[1])

    def expected(learned, seen_as):
        learned, exact, views = doubles((learned, batch, [m.view for m in models(seen_as)]))
        y = numpy_targets(learner, learned, exact, views)
        valuing = learned.params.critics if learner.continuous else [learned.params]
        return sum(numpy_loss(learner, model, exact, y) for model in valuing)

    for params in (first.params, *seen_otherwise(first.params)):
        for target in (first.target, other_heads(first.target)):
            learned = first._replace(params=params, target=target)
            found = loss(learned)
            assert found == pytest.approx(expected(learned, params), rel=1e-5)
            assert found != pytest.approx(expected(learned, target), rel=1e-3)
            for same_networks in seen_otherwise(target):
                assert loss(learned._replace(target=same_networks)) == found


# Gradients and steps.


def gradients(optimizer):
    """Of each model, from what Adam remembers after one update."""
    if isinstance(optimizer, ActorCritic):
        moments = [optimizer.actor.mu, *optimizer.critics.mu]
    else:
        moments = [optimizer.mu]
    return jax.tree.map(lambda moment: moment / 0.1, moments)


@BOTH
def test_gradients_reach_embeddings_and_not_statistics(rng, learner):
    first, batch = agent(learner), random_batch(rng, learner)
    learned, _ = updated(learner, first, batch)
    old, new, exact = doubles((first, learned, batch))
    y = numpy_targets(learner, old, exact, [model.view for model in models(old.params)])
    of_values = partial(numpy_loss, learner, batch=exact, y=y)
    losses = [of_values]
    if learner.continuous:
        # The actor follows the critic as it is now.
        of_actor = partial(
            numpy_actor_loss, critic=new.params.critics[0], observation=exact.observation
        )
        losses = [of_actor, of_values, of_values]

    def slope(loss, model, where):
        def of_leaf(leaves):
            return loss(eqx.tree_at(where, model, leaves[0]))

        (found,) = slopes(of_leaf, [where(model).copy()])
        assert np.abs(found).max() > 1e-3
        return found

    for loss, model, gradient in zip(
        losses, models(old.params), gradients(learned.optimizer), strict=True
    ):
        expected = slope(loss, model, lambda model: model.view.embedding)
        np.testing.assert_allclose(gradient.view.embedding, expected, rtol=1e-3, atol=1e-5)
        # Although the losses do depend on the statistics:
        slope(loss, model, lambda model: model.view.normaliser.mean)
        assert not any(map(np.any, jax.tree.leaves(gradient.view.normaliser)))
    for before, after in zip(models(first.params), models(learned.params), strict=True):
        assert same(before.view.normaliser, after.view.normaliser)


@BOTH
def test_the_first_step_is_as_long_as_its_step_size_also_that_of_an_embedding(rng, learner):
    learner = replace(learner, personal=replace(EVERYTHING, embedding_lr=0.002))
    first = agent(learner)
    learned, _ = updated(learner, first, random_batch(rng, learner))
    sizes = [0.01, 0.03, 0.03] if learner.continuous else [0.01]
    trees = gradients(learned.optimizer), models(first.params), models(learned.params)
    for lr, *of_model in zip(sizes, *trees, strict=True):
        for where, size in (
            (lambda model: model.view.embedding, 0.002),
            (lambda model: model.network, lr),
        ):
            leaves = (jax.tree.leaves(where(model)) for model in of_model)
            for gradient, before, after in zip(*leaves, strict=True):
                steep = np.abs(gradient) > 1e-4
                assert steep.any()
                step, direction = (after - before)[steep], np.sign(gradient[steep])
                np.testing.assert_allclose(step, -size * direction, rtol=5e-3)


def test_adam_is_optax_adam_for_each_step_size(rng):
    params = agent(DISCRETE).params
    slopes_of_steps = [
        jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), params)
        for _ in range(3)
    ]

    @partial(jax.jit, static_argnums=0)
    def steps(adam):
        state = adam.init(params)
        for gradient in slopes_of_steps:
            found, state = adam.update(gradient, state)
        return found

    plain, own = steps(optax.adam(0.01)), steps(optax.adam(0.25))
    for embedding_lr, expected in ((None, plain), (0.01, plain), (0.25, own)):
        personal = replace(EVERYTHING, embedding_lr=embedding_lr)
        found = jax.jit(partial(personal.scaled, lr=0.01))(steps(ADAM))
        assert same(found.network, plain.network)
        assert same(found.view.embedding, expected.view.embedding)


# Settings.


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("embedding", -1, "an integer of at least 0 and at most 1024, got -1"),
        ("embedding", 1.5, "an integer of at least 0 and at most 1024, got 1.5"),
        ("embedding", 1025, "an integer of at least 0 and at most 1024, got 1025"),
        ("embedding", True, "an integer"),
        ("embedding_lr", 0, "a number from 1e-30 to 1e30, got 0"),
        ("embedding_lr", -1e-3, "a number from 1e-30 to 1e30"),
        ("embedding_lr", float("nan"), "a number from 1e-30 to 1e30"),
        ("embedding_range", -1, "a number from 0 to 1e30"),
        ("embedding_range", float("inf"), "a number from 0 to 1e30"),
        ("head", 1, "true or false"),
        ("normalisation", "yes", "true or false"),
    ],
)
def test_a_bad_setting_is_refused_by_its_name(field, value, allowed):
    with pytest.raises(FedrlError, match=rf"^learner\.personal\.{field} must be {allowed}"):
        Personal(**{field: value})


@pytest.mark.parametrize("kind", [DQN, DDPG])
def test_only_something_private_can_be_all_that_is_trained(kind):
    with pytest.raises(FedrlError, match=r"trains = 'private', but nothing is: .*embedding.*head"):
        kind(trains="private")
    with pytest.raises(
        FedrlError, match=r"unknown learner.trains 'privat': did you mean 'private'"
    ):
        kind(trains="privat", personal=EVERYTHING)
    with pytest.raises(FedrlError, match=r"learner.personal must be Personal"):
        kind(personal={"embedding": 2})
    for personal in (Personal(embedding=1), Personal(head=True), Personal(normalisation=True)):
        assert kind(trains="private", personal=personal).trains == "private"


def test_a_head_that_is_all_there_is_is_refused():
    with pytest.raises(FedrlError, match="nothing would be shared"):
        DQN(hidden=(), personal=Personal(head=True))
