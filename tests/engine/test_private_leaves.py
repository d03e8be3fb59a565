"""What is private stays with its agent; where nothing is, agents do as if that did not exist."""

from dataclasses import replace
from functools import cache, partial
from math import inf

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.tree_util import keystr, tree_leaves_with_path, tree_map_with_path
from scipy import stats

from engines import changed, engine_of
from fedrl import FedrlError
from fedrl.engine.client import with_own
from fedrl.engine.evaluation import greedy_returns
from fedrl.engine.local_engine import LocalEngine
from fedrl.experiment.settings import Evaluation, Survives
from fedrl.families import CartPoles
from fedrl.keys import Purpose, replicate_key
from fedrl.learners.ddpg import DDPG, ActorCritic
from fedrl.learners.dqn import DQN
from fedrl.learners.learner import Learned
from fedrl.learners.networks import MLP
from fedrl.learners.personalisation import Model, Normaliser, Personal, View
from fedrl.learners.replay import unpack
from fedrl.strategies.strategy import Strategy
from probes import Pendulum
from tiny import TINY, begin, go_on

AGENTS = 3
EVERYTHING = Personal(embedding=5, embedding_range=0.25, head=True, normalisation=True)
KINDS = {
    "nothing": Personal(),
    "embedding": Personal(embedding=5),
    "head": Personal(head=True),
    "normalisation": Personal(normalisation=True),
    "everything": EVERYTHING,
}
SIZES = {"hidden": (6, 4), "gamma": 0.9, "batch": 4, "replay": 300, "learning_starts": 8}
DISCRETE = DQN(**SIZES, lr=0.01, target_every=3, personal=EVERYTHING)
CONTINUOUS = DDPG(**SIZES, tau=0.2, twin=True, actor_every=2, personal=EVERYTHING)
ENGINE = engine_of(CartPoles(time_limit=12), DISCRETE, AGENTS, seed=3)

pytestmark = pytest.mark.usefixtures("kept", "hasty")
ENGINES = {"dqn": ENGINE, "td3": changed(ENGINE, family=Pendulum(), learner=CONTINUOUS)}
ALGORITHMS = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
# Training environments, then held-out ones.
THETAS = np.array([[0.3], [0.9], [1.6], [0.5], [1.2]], np.float32)


def same(one, other):
    one, other = jax.tree.leaves(one), jax.tree.leaves(other)
    return len(one) == len(other) and all(map(np.array_equal, one, other))


def personalised(engine, kind):
    return changed(engine, learner=replace(engine.experiment.learner, personal=KINDS[kind]))


def named(tree):
    """Leaves by the names of their places."""
    return {keystr(path): leaf for path, leaf in tree_leaves_with_path(tree)}


def private_names(learner):
    own, personal = [], learner.personal
    if personal.embedding:
        own += [".view.embedding"]
    if personal.normalisation:
        own += [f".view.normaliser.{part}" for part in ("count", "mean", "variance")]
    if personal.head:
        own += [".network.layers[2].weight", ".network.layers[2].bias"]
    networks = [".actor", ".critics[0]", ".critics[1]"] if learner.continuous else [""]
    return {network + name for network in networks for name in own}


def of_agent(tree, agent):
    return jax.tree.map(lambda leaf: leaf[agent], tree)


@cache
def arbitrary(engine):
    """Agents in the middle of something, all of whose numbers are different."""
    rng = np.random.default_rng(6)

    def draw(path, shape):
        if shape.dtype != jnp.float32:
            return np.full(shape.shape, 7, shape.dtype)
        positive = ".normaliser." in keystr(path) or ".nu" in keystr(path)
        return rng.uniform(*((2, 3) if positive else (-1, 1)), shape.shape).astype(np.float32)

    return tree_map_with_path(draw, jax.eval_shape(partial(begin, engine), 0))


def without_statistics(tree):
    return tree_map_with_path(lambda path, leaf: leaf * (".normaliser." not in keystr(path)), tree)


@cache
def beginning(engine):
    """Such agents, that have counted nothing yet."""
    federation = arbitrary(engine)
    return federation._replace(agents=without_statistics(federation.agents))


@cache
def compiled(engine):
    return jax.jit(engine.advance)


@cache
def environments():
    return jax.jit(ENGINE.environments)(0, THETAS[:AGENTS])


def trained(engine, rounds, E):
    """The same agents after rounds of local work."""
    return jax.device_get(compiled(engine)(beginning(engine), environments(), rounds, E))


@pytest.mark.parametrize("kind", KINDS)
@ALGORITHMS
def test_exactly_embeddings_statistics_and_last_layers_are_private_where_wanted(engine, kind):
    engine = personalised(engine, kind)
    learner, params = engine.experiment.learner, arbitrary(engine).agents.learned.params
    private = learner.personal.private(params)
    assert jax.tree.structure(private) == jax.tree.structure(params)
    assert {name for name, own in named(private).items() if own} == private_names(learner)
    assert bool(learner.personal) == bool(private_names(learner)) == (kind != "nothing")
    shared, own = learner.split(params)
    assert named(own).keys() == private_names(learner)
    assert named(shared).keys() == named(params).keys() - private_names(learner)
    assert jax.tree.structure(eqx.combine(shared, own)) == jax.tree.structure(params)
    assert same(eqx.combine(shared, own), params)


# What is trained.


@cache
def many_updates(learner):
    def step(learned, numbered_batch):
        number, batch = numbered_batch
        return learner.update(learned, batch, (), number)

    return jax.jit(partial(jax.lax.scan, step))


def random_batches(rng, engine):
    size, actions = engine.experiment.family.remembered
    batches = unpack(rng.normal(size=(24, 4, 2 * size + actions + 2)).astype(np.float32), size)
    action = np.tanh(batches.action) if engine.experiment.learner.continuous else batches.action > 0
    terminated = np.float32(batches.terminated > 1)
    return np.arange(1, 25), batches._replace(action=action, terminated=terminated)


def momentum(optimizer):
    """In the shape of the parameters."""
    if isinstance(optimizer, ActorCritic):
        return ActorCritic(optimizer.actor.mu, optimizer.critics.mu)
    return optimizer.mu


@pytest.mark.parametrize("part", ["private", "shared", "nothing"])
@ALGORITHMS
def test_many_updates_change_only_what_is_trained_whatever_the_momentum(rng, engine, part):
    learner, one = (
        replace(engine.experiment.learner, trains=part),
        of_agent(arbitrary(engine).agents, 0),
    )
    before, fresh = named(one.learned.params), learner.adopt(one.learned.params)
    private = private_names(learner)
    wanted = {"private": private, "shared": before.keys() - private, "nothing": set()}[part]
    # Statistics are counted elsewhere, and so have no momentum either.
    wanted = {name for name in wanted if ".normaliser." not in name}
    moving = fresh._replace(optimizer=without_statistics(one.learned.optimizer))
    batches = random_batches(rng, engine)
    for learned in (moving, fresh):
        learned, _ = jax.device_get(many_updates(learner)(learned, batches))
        for after in (named(learned.params), named(learned.target)):
            assert {name for name in before if not same(before[name], after[name])} == wanted
    # Nor does Adam hear of the rest.
    heard = named(momentum(learned.optimizer))
    assert {name for name in before if np.any(heard[name])} == wanted


# Nothing private: DQN, written down without any of this.


class PlainDQN(DQN):
    def init(self, key, observation_size, actions):
        return self.adopt(MLP((observation_size, *self.hidden, actions), key))

    def adopt(self, params):
        return Learned(params, params, optax.adam(self.lr).init(params))

    def witness(self, learned, observation):
        return learned

    def update(self, learned, batch, draws, updates, correct=None):
        best = jnp.max(learned.target(batch.next_observation), -1)
        y = batch.reward + jnp.where(batch.terminated > 0, 0.0, self.gamma * best)
        chosen = batch.action.astype(jnp.int32) == jnp.arange(2)

        def loss(params):
            q = jnp.sum(jnp.where(chosen, params(batch.observation), 0.0), -1)
            return jnp.mean((q - y) ** 2)

        value, gradient = jax.value_and_grad(loss)(learned.params)
        steps, optimizer = optax.adam(self.lr).update(gradient, learned.optimizer)
        params = optax.apply_updates(learned.params, steps)
        copied = updates % self.target_every == 0
        target = jax.lax.cond(copied, lambda: params, lambda: learned.target)
        return learned._replace(params=params, target=target, optimizer=optimizer), value


def test_with_nothing_private_agents_do_what_plain_dqn_does_to_the_last_bit():
    engine = personalised(ENGINE, "nothing")
    plain = changed(engine, learner=PlainDQN(**SIZES, lr=0.01, target_every=3))
    small = (replace(x.experiment.learner, hidden=(1,)) for x in (engine, plain))
    assert same(*(learner.init(jax.random.key(1), 1, 1) for learner in small))
    for rounds, E in ((1, 1), (3, 20)):
        assert same(trained(engine, rounds, E), trained(plain, rounds, E))


# Communication.


def assert_only_what_is_shared_is_averaged(learner, before, after):
    before, after = named(before), named(after)
    assert before.keys() == after.keys()
    for name, leaf in before.items():
        if name in private_names(learner):
            np.testing.assert_array_equal(after[name], leaf)
        else:
            assert len(np.unique(after[name], axis=0)) == 1
            np.testing.assert_allclose(after[name][0], leaf.mean(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", [True, False])
@pytest.mark.parametrize("target", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@ALGORITHMS
def test_a_communication_averages_what_is_shared_and_nothing_else(engine, kind, optimizer, target):
    engine = personalised(engine, kind)
    before = arbitrary(engine)
    engine = changed(engine, survives=Survives(optimizer=optimizer, target=target))
    after = jax.device_get(
        engine.communicate(before, environments(), jnp.arange(engine.experiment.agents))
    )
    old, new = before.agents.learned, after.agents.learned
    assert_only_what_is_shared_is_averaged(engine.experiment.learner, old.params, new.params)
    assert same(new.target, old.target if target else new.params)
    zeros = jax.tree.map(np.zeros_like, old.optimizer)
    assert same(new.optimizer, old.optimizer if optimizer else zeros)
    assert same(*((x.rows, x.clock, x.agents._replace(learned=())) for x in (before, after)))


STEP = Strategy.step


@pytest.mark.parametrize("kind", KINDS)
@ALGORITHMS
def test_nothing_private_leaves_an_agent(engine, kind, monkeypatch):
    received = []

    def step(strategy, server, offers, *args, **kwargs):
        received.append(offers)
        return STEP(strategy, server, offers, *args, **kwargs)

    monkeypatch.setattr(Strategy, "step", step)
    engine = personalised(engine, kind)
    federation = arbitrary(engine)
    agents, private = federation.agents, private_names(engine.experiment.learner)
    params = tree_map_with_path(
        lambda path, leaf: np.full_like(leaf, np.nan) if keystr(path) in private else leaf,
        agents.learned.params,
    )
    spoilt = agents._replace(learned=agents.learned._replace(params=params))
    everybody = jnp.arange(engine.experiment.agents)
    engine.communicate(federation, environments(), everybody)
    engine.communicate(federation._replace(agents=spoilt), environments(), everybody)
    assert same(*received)
    # The same in the whole program.
    jax.eval_shape(partial(go_on, engine), federation, 0, 2, 3)
    assert len(received) > 2
    shared = named(params).keys() - private
    assert all(named(offers.model).keys() == shared for offers in received)


def test_agents_that_train_share_the_average_and_keep_what_is_private():
    before, after = beginning(ENGINE).agents.learned, trained(ENGINE, 1, 0).agents.learned
    assert_only_what_is_shared_is_averaged(DISCRETE, before.params, after.params)
    assert same(before[1:], after[1:])
    for name, leaf in named(trained(ENGINE, 2, 20).agents.learned.params).items():
        differ = name in private_names(DISCRETE) and not name.endswith(".count")
        assert len(np.unique(leaf, axis=0)) == (AGENTS if differ else 1)


@pytest.mark.parametrize(("unit", "E"), [("updates", 20), ("episodes", 3)])
def test_statistics_are_those_of_the_observations_an_agent_has_met(unit, E):
    engine = changed(ENGINE, unit=unit)
    before, after = beginning(engine), trained(engine, 2, E)
    first, last = (np.broadcast_to(x.clock.stored, AGENTS) for x in (before, after))
    assert (last <= DISCRETE.replay).all()
    for agent in range(AGENTS):
        met = unpack(after.rows[agent, first[agent] : last[agent]], 4).observation
        found = of_agent(after.agents.learned.params.view.normaliser, agent)
        assert found.count == len(met) > 5
        np.testing.assert_allclose(found.mean, met.mean(0), atol=1e-5)
        np.testing.assert_allclose(found.variance, met.var(0), rtol=1e-3, atol=1e-5)


# How agents begin.


@pytest.mark.parametrize("initialisation", ["shared", "per-agent"])
def test_agents_begin_with_embeddings_of_their_own_whether_or_not_networks_are_shared(
    initialisation,
):
    learner = replace(DISCRETE, hidden=(2,))
    engine = changed(ENGINE, learner=learner, initialisation=initialisation)
    first, other = map(jax.device_get, map(jax.jit(engine.first_params), (0, 1)))
    for leaf in jax.tree.leaves(first.network):
        assert len(np.unique(leaf, axis=0)) == (1 if initialisation == "shared" else AGENTS)
    embeddings = np.array([first.view.embedding, other.view.embedding])
    assert len(np.unique(embeddings)) == embeddings.size == 2 * AGENTS * 5
    assert np.abs(embeddings).max() <= 0.25
    assert not any(map(np.any, jax.tree.leaves(first.view.normaliser)))


def test_new_embeddings_differ_from_network_to_network_and_leave_the_rest_as_it_is():
    before = of_agent(arbitrary(ENGINES["td3"]).agents.learned.params, 0)
    after = named(jax.jit(EVERYTHING.with_new_embeddings)(before, jax.random.key(0)))
    drawn = [leaf for name, leaf in after.items() if name.endswith("embedding")]
    assert len(drawn) == 3
    assert len(np.unique(drawn)) == 3 * 5
    for name, leaf in named(before).items():
        assert np.array_equal(leaf, after[name]) == (not name.endswith("embedding"))


@pytest.mark.parametrize("limit", [0.25, 3.0])
def test_embeddings_are_uniform_in_their_range(limit):
    nobody, key = Model(View(None, None), None), jax.random.key(0)
    personal = Personal(embedding=1000, embedding_range=limit)
    drawn = personal.with_new_embeddings(nobody, key).view.embedding
    assert stats.kstest(drawn, stats.uniform(-limit, 2 * limit).cdf).pvalue > 1e-6
    none = replace(personal, embedding_range=0).with_new_embeddings(nobody, key)
    np.testing.assert_array_equal(none.view.embedding, np.zeros(1000))


# Evaluation.

EVERYWHERE = Evaluation(every=20, episodes=2)
OWN = Evaluation(every=20, episodes=2, where="own")
TOGETHER = replace(TINY, learner=DISCRETE, agents=AGENTS, held_out=2, evaluation=EVERYWHERE)


def test_an_agents_own_model_is_evaluated_in_its_own_environment_and_the_average_everywhere():
    engine = LocalEngine(TOGETHER)
    federation = arbitrary(engine)
    params = federation.agents.learned.params
    record = jax.device_get(jax.jit(engine.evaluate)(params, federation.server, 0, THETAS, 20))
    models = with_own(record.average, params, TOGETHER)
    average = jax.tree.map(lambda leaf: leaf.mean(0), params)
    pooled = Normaliser.pooled(params.view.normaliser)
    average = eqx.tree_at(lambda model: model.view.normaliser, average, pooled)
    expected = jax.tree.map(lambda one, own: np.concatenate([one[None], own]), average, params)
    for ours, theirs in zip(*map(jax.tree.leaves, (models, expected)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
        np.testing.assert_array_equal(ours[1:], theirs[1:])

    @jax.jit
    def play(models):
        key = jax.random.fold_in(replicate_key(0, 0, Purpose.EVALUATION), 20)
        how = {"episodes": 2, "gamma": 0.9}
        return greedy_returns(TINY.family, DISCRETE.policy, models, THETAS, key, **how)

    for matrix, average, own in zip(play(expected), record.returns, record.own, strict=True):
        # In each environment some are better than others.
        assert (np.ptp(matrix, axis=0) > 0).all()
        np.testing.assert_allclose(average, matrix[:1], rtol=1e-5)
        np.testing.assert_allclose(own, np.diag(matrix[1:]), rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "E", "evaluation", "returns", "own"),
    [
        ("nothing", 10, EVERYWHERE, (1, 5), None),
        ("nothing", inf, EVERYWHERE, (1 + AGENTS, 5), None),
        ("nothing", inf, OWN, None, (AGENTS,)),
        ("head", 10, EVERYWHERE, (1, 5), (AGENTS,)),
        ("head", 10, OWN, None, (AGENTS,)),
        ("head", inf, EVERYWHERE, (1 + AGENTS, 5), None),
    ],
)
def test_every_model_is_evaluated_where_it_is_wanted_and_once(kind, E, evaluation, returns, own):
    learner = replace(DISCRETE, personal=KINDS[kind])
    experiment = replace(TOGETHER, learner=learner, E=E, evaluation=evaluation)
    engine = LocalEngine(experiment)
    federation = arbitrary(engine)
    params = federation.agents.learned.params
    record = jax.eval_shape(engine.evaluate, params, federation.server, 0, THETAS, 20)
    for found, shape in ((record.returns, returns), (record.own, own)):
        assert (found and found.undiscounted.shape) == shape


def test_only_models_of_ones_own_can_be_evaluated_where_they_belong():
    with pytest.raises(FedrlError, match=r"evaluation\.where = 'own' .* these share all"):
        replace(TINY, evaluation=OWN)
    with pytest.raises(FedrlError, match=r"unknown evaluation\.where 'nowhere': .*'everywhere'"):
        Evaluation(where="nowhere")
