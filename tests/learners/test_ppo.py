"""PPO against sums by hand, SciPy's distributions, finite differences and small problems."""

from dataclasses import replace
from math import inf

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from engines import engine_of
from fedrl import Experiment, FedrlError, train
from fedrl.experiment.settings import Evaluation
from fedrl.families import CartPoles
from fedrl.learners.personalisation import Personal
from fedrl.learners.ppo import PPO, PolicyAndValue, Samples, advantages
from fedrl.learners.replay import Transition
from finite_differences import slopes
from probes import Aim, Choice, Endless
from tiny import begin, go_on

pytestmark = pytest.mark.usefixtures("kept", "hasty")
OBSERVATIONS, ACTIONS = 3, 2
SMALL = PPO(hidden=(8,), rollout=16, batch=4, epochs=3, lr=1e-2)
KINDS = [SMALL, replace(SMALL, actions="continuous")]


def rollout_of(rng, T, learner=SMALL):
    """Steps with an end, a cut and a last step that goes on."""
    observation = rng.normal(size=(T, OBSERVATIONS)).astype(np.float32)
    following = np.roll(observation, -1, 0)
    following[-1] = rng.normal(size=OBSERVATIONS)
    terminated = np.zeros(T, np.float32)
    terminated[3] = 1
    following[3] = np.nan  # a terminal state may not even be a number
    following[7] = observation[8]  # cut off: the next row only looks like the next step
    recorded = rng.normal(size=(3, T)).astype(np.float32)
    recorded[2, 3] = np.nan
    cut = np.arange(T) == 7
    action = (
        rng.normal(size=(T, ACTIONS)) if learner.continuous else rng.integers(0, ACTIONS, (T, 1))
    )
    reward = rng.normal(size=T).astype(np.float32)
    return Transition(
        *(observation, action.astype(np.float32), reward, following, terminated),
        recorded={
            "log_probability": recorded[0],
            "value": recorded[1],
            "next_value": recorded[2],
            "cut": np.float32(cut),
        },
    )


@pytest.mark.parametrize("gae_lambda", [0.0, 0.7, 1.0])
def test_advantages_are_the_sums_of_their_definition(rng, gae_lambda):
    T, gamma = 12, 0.9
    steps = rollout_of(rng, T)
    value, following = (steps.recorded[name] for name in ("value", "next_value"))
    found = advantages(jax.tree.map(jnp.asarray, steps), gamma, gae_lambda)
    expected = np.zeros(T)
    for t in range(T):
        weight = 1.0
        for k in range(t, T):
            bootstrap = 0 if steps.terminated[k] else gamma * following[k]
            expected[t] += weight * (steps.reward[k] + bootstrap - value[k])
            weight *= gamma * gae_lambda
            if k in (3, 7):  # the episode is over, or was cut off
                break
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("learner", KINDS, ids=lambda x: x.actions)
def test_probabilities_and_entropies_are_scipys(rng, learner):
    params = learner.init(jax.random.key(0), OBSERVATIONS, ACTIONS).params
    params = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), "f4"), params)
    steps = rollout_of(rng, 20, learner)
    logs, entropy = learner._of_actions(params, steps.observation, steps.action)
    outputs = np.asarray(params.actor(steps.observation))
    if learner.continuous:
        normal = stats.norm(outputs, np.exp(params.log_deviation))
        np.testing.assert_allclose(logs, normal.logpdf(steps.action).sum(-1), rtol=1e-4)
        np.testing.assert_allclose(entropy, normal.entropy().sum(-1), rtol=1e-5)
    else:
        shares = special.softmax(outputs.astype(float), -1)
        taken = shares[np.arange(20), steps.action[:, 0].astype(int)]
        # Near 1, what 32 bits can tell.
        np.testing.assert_allclose(logs, np.log(taken), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(entropy, stats.entropy(shares, axis=-1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("learner", KINDS, ids=lambda x: x.actions)
def test_actions_are_drawn_from_the_policy(rng, learner):
    params = learner.init(jax.random.key(0), OBSERVATIONS, ACTIONS).params
    params = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), "f4"), params)
    seen, n = jnp.asarray(rng.normal(size=OBSERVATIONS), "f4"), 20_000
    draws = jax.vmap(lambda key: learner.acting_draws(key, ACTIONS))(
        jax.random.split(jax.random.key(1), n)
    )
    act = jax.vmap(lambda draws: learner.act(params, seen, (), draws, jnp.int32(0))[0])
    actions, outputs = np.asarray(act(draws)), np.asarray(params.actor(seen))
    if learner.continuous:
        for i in range(ACTIONS):
            normal = stats.norm(outputs[i], np.exp(params.log_deviation[i]))
            assert stats.kstest(actions[:, i], normal.cdf).pvalue > 1e-6
        assert np.abs(learner.executed(actions)).max() <= 1
    else:
        shares = special.softmax(outputs.astype(float))
        counts = np.bincount(actions, minlength=ACTIONS)
        assert stats.chisquare(counts, n * shares).pvalue > 1e-6


@pytest.mark.parametrize("learner", KINDS, ids=lambda x: x.actions)
def test_the_gradient_of_the_loss_is_its_slope(rng, learner):
    learner = replace(learner, entropy_weight=0.3, hidden=(4,))
    with jax.enable_x64(True):
        params = learner.init(jax.random.key(0), OBSERVATIONS, ACTIONS).params
        leaves, structure = jax.tree.flatten(params)
        leaves = [rng.normal(size=leaf.shape) for leaf in leaves]
        steps = rollout_of(rng, 9, learner)
        old = rng.normal(size=9) * 0.3
        now, _ = learner._of_actions(
            jax.tree.unflatten(structure, leaves), steps.observation, steps.action
        )
        samples = Samples(
            jnp.asarray(steps.observation, "f8"),
            jnp.asarray(steps.action, "f8"),
            now + old,  # so that some ratios are clipped and others not
            jnp.asarray(rng.normal(size=9)),
            jnp.asarray(rng.normal(size=9)),
        )

        def loss(leaves):
            return float(learner._loss(jax.tree.unflatten(structure, leaves), samples))

        gradient = jax.grad(learner._loss)(jax.tree.unflatten(structure, leaves), samples)
        for found, slope in zip(jax.tree.leaves(gradient), slopes(loss, leaves), strict=True):
            np.testing.assert_allclose(found, slope, rtol=1e-4, atol=1e-7)


def test_an_update_goes_over_every_step_once_an_epoch():
    draws = SMALL.update_draws(jax.random.key(0), ACTIONS)
    assert draws.shape == (3, 16)
    assert all(sorted(order) == list(range(16)) for order in draws.tolist())
    assert len({tuple(order) for order in draws.tolist()}) == 3


def test_where_nothing_can_be_gained_the_policy_stays(rng):
    """One gradient step at ratio 1 follows the plain policy gradient; equal rewards give none."""
    learner = replace(SMALL, epochs=1, batch=16, value_weight=0.0, gamma=0.0)
    learned = learner.init(jax.random.key(0), OBSERVATIONS, ACTIONS)
    steps = rollout_of(rng, 16)._replace(
        reward=np.ones(16, np.float32), terminated=np.ones(16, np.float32)
    )
    # A critic that is right everywhere.
    zero = jax.tree.map(jnp.zeros_like, learned.params.critic)
    last = len(learner.hidden)
    bias = zero.network.layers[last].bias + 1
    right = jax.tree.unflatten(
        jax.tree.structure(zero),
        [bias if x is zero.network.layers[last].bias else x for x in jax.tree.leaves(zero)],
    )
    learned = learner.adopt(learned.params._replace(critic=right))
    draws = learner.update_draws(jax.random.key(1), ACTIONS)
    recorded = jax.vmap(lambda step: learner.record(learned.params, step, jnp.bool_(False)))(
        jax.tree.map(jnp.asarray, steps._replace(recorded={}))
    )
    steps = jax.tree.map(jnp.asarray, steps._replace(recorded=recorded))
    after, _ = learner.update(learned, steps, draws, jnp.int32(1))
    for new, old in zip(
        jax.tree.leaves(after.params.actor), jax.tree.leaves(learned.params.actor), strict=True
    ):
        np.testing.assert_allclose(new, old, atol=1e-6)


def trained_alone(family, learner, updates):
    engine = engine_of(family, learner, E=inf)
    done = jax.jit(lambda: go_on(engine, begin(engine, 0), 0, 1, updates))()
    return jax.tree.map(lambda leaf: leaf[0], done.agents.learned.params)


PROBE = PPO(hidden=(16,), rollout=64, batch=16, epochs=4, lr=5e-3, gamma=0.5)


def test_it_learns_which_action_is_right():
    params = trained_alone(Choice(), PROBE, 60)
    logits = params.actor(jnp.ones(1))
    assert jax.nn.softmax(logits)[1] > 0.95
    np.testing.assert_allclose(params.critic(jnp.ones(1)), 1, atol=0.15)


def test_a_time_limit_is_not_an_end():
    """1 + 0.5 + 0.25 + ... = 2, however early episodes are cut off."""
    params = trained_alone(Endless(), PROBE, 150)
    np.testing.assert_allclose(params.critic(jnp.ones(1)), 2, atol=0.1)


def test_continuous_actions_go_where_they_should():
    params = trained_alone(Aim(), replace(PROBE, actions="continuous", hidden=(32,)), 200)
    actions = PROBE.__class__.policy(
        replace(PROBE, actions="continuous"), params, jnp.array([[1.0], [-1.0]])
    )
    np.testing.assert_allclose(actions, [[0.3], [-0.3]], atol=0.1)


EXPERIMENT = Experiment(
    name="ppoavg",
    family=CartPoles(),
    learner=PPO(lr=1e-3),
    agents=2,
    held_out=2,
    E=4,
    updates=40,
    evaluation=Evaluation(every=20),
    seeds=2,
)


@pytest.mark.parametrize("personal", [Personal(), Personal(embedding=2)], ids=["plain", "private"])
def test_federated_agents_balance_their_poles(tmp_path, personal):
    experiment = replace(EXPERIMENT, learner=replace(EXPERIMENT.learner, personal=personal))
    run = train(experiment, out=tmp_path, progress=False)
    frame = run.metrics()
    frame = frame[(frame["metric"] == "return") & (frame["split"] == "train")]
    by_updates = frame.groupby("updates")["value"].mean()
    assert by_updates[0] < 40
    assert by_updates[40] > 150


def test_log_deviations_are_shared_and_embeddings_are_not():
    learner = replace(KINDS[1], personal=Personal(embedding=2, head=True))
    params = learner.init(jax.random.key(0), OBSERVATIONS, ACTIONS).params
    shared, private = learner.split(params)
    assert shared.log_deviation is not None
    assert private.log_deviation is None
    assert shared.actor.view.embedding is None
    assert isinstance(params, PolicyAndValue)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rollout": 100, "batch": 64}, "rollout = 100 is not a multiple of learner.batch = 64"),
        ({"rollout": 1}, "rollout must be an integer of at least 2"),
        ({"epochs": 0}, "epochs must be"),
        ({"clip": 0}, "clip must be a positive number"),
        ({"gae_lambda": 1.1}, "gae_lambda"),
        ({"entropy_weight": -1}, "entropy_weight"),
        ({"actions": "both"}, "actions"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(FedrlError, match=message):
        PPO(**settings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unit": "episodes"}, "rollouts of fixed length"),
        ({"learner": PPO(actions="continuous")}, "learner.actions = 'discrete'"),
    ],
)
def test_experiments_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(FedrlError, match=message):
        replace(EXPERIMENT, **changes)
