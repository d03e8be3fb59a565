"""An agent in a Gymnasium environment, whatever it is made of: steps on the host, one at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.engine.agent import Keys, OneAgent
from fedrl.errors import FedrlError
from fedrl.families.control_family import ControlFamily
from fedrl.families.gymnasium_making import executed, observed
from fedrl.files import Array
from fedrl.keys import Purpose
from fedrl.learners.learner import Correct, Learned, Learner
from fedrl.learners.replay import Transition, store
from fedrl.strategies.corrections import Broadcast, Correction, NoCorrection

if TYPE_CHECKING:
    import gymnasium


@dataclass(frozen=True)
class Adapted:
    """What came out of an adaptation to one Gymnasium environment."""

    policy: Callable[[Any], Any]
    """The greedy action of the environment for an observation."""
    model: Any
    """Parameters of the agent's networks."""
    updates: Array
    """Where in training it was evaluated."""
    returns: Array
    """Mean return of greedy episodes there."""


def adapt_in(
    env: "gymnasium.Env[Any, Any]",
    family: ControlFamily,
    learner: Learner,
    params: Any,
    *,
    updates: int,
    unit: Literal["updates", "episodes"],
    every: int,
    episodes: int,
    seed: int,
    told: Callable[[int, float], None],
) -> Adapted:
    """Train an agent with these parameters; `told` hears every evaluation.

    `updates` and `every` are in units. An environment that does not say when an episode is too long
    gets the family's time limit.
    """
    actions = actions_of(env, family)
    spec = getattr(env, "spec", None)
    limited = spec is not None and spec.max_episode_steps is not None
    longest = inf if limited else family.time_limit
    keys = Keys(*jax.random.split(jax.random.key(seed)))
    act, learn = host_programs(family, learner, keys)
    greedy = jax.jit(learner.policy)
    state = learner.adopt(params), learner.empty(*family.remembered)

    def evaluate(trained: int) -> float:
        total = 0.0
        for leaf in jax.tree.leaves(state[0].params):
            _refuse_not_finite(f"a parameter after {trained:,} {unit} is", leaf)
        for episode in range(episodes):
            # The same beginnings for every method.
            start = episode_seed(seed, Purpose.EVALUATION, trained, episode)
            observation, over, age = reset(env, seed=start), False, 0
            while not over:
                action = np.asarray(greedy(state[0].params, observation))
                observation, reward, terminated, truncated = step(env, actions(action))
                total, age = total + reward, age + 1
                over = terminated or truncated or age >= longest
        told(trained, total / episodes)
        return total / episodes

    found = [(0, evaluate(0))]
    steps = learnt = done = age = 0
    observation = reset(env, seed=episode_seed(seed, Purpose.ACTING, steps))
    noise = learner.noise(family.actions)
    while done < updates and learner.trains != "nothing":
        action, noise = act(state[0], observation, noise, steps, learnt)
        following, reward, terminated, truncated = step(
            env, actions(np.asarray(learner.executed(action)))
        )
        transition = Transition(
            observation, action, jnp.float32(reward), following, jnp.asarray(terminated)
        )
        steps, age = steps + 1, age + 1
        due = steps >= learner.learning_starts and steps % learner.update_every == 0
        learnt += due
        over = terminated or truncated or age >= longest
        one_more = due if unit == "updates" else over
        done += one_more
        evaluated = one_more and (done % every == 0 or done == updates)
        # An evaluation cuts the episode off, too.
        state = learn(*state, transition, over or evaluated, steps - 1, learnt, due)
        observation = following
        anew = None
        if evaluated:
            found.append((done, evaluate(done)))
            # The evaluation has seeded the environment; training is not to repeat itself.
            anew = episode_seed(seed, Purpose.ACTING, steps)
        if over or evaluated:
            observation, noise = reset(env, seed=anew), learner.noise(family.actions)
            age = 0
    model = jax.device_get(state[0].params)

    def policy(observation: Any) -> Any:
        action = np.asarray(greedy(model, jnp.asarray(observation, jnp.float32)))
        return actions(action)

    at, returns = (np.array(x) for x in zip(*found, strict=True))
    return Adapted(policy, model, at, returns)


def host_programs(
    family: ControlFamily,
    learner: Learner,
    keys: Keys,
    correction: Correction | None = None,
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What is compiled: an action that explores; remembering, and learning when it is due."""
    correction, agent = correction or NoCorrection(), OneAgent(family, learner)
    plain = type(correction) is NoCorrection

    @jax.jit
    def act(
        learned: Learned, observation: jax.Array, noise: Any, step: jax.Array, updates: jax.Array
    ) -> tuple[jax.Array, Any]:
        draws = learner.acting_draws(jax.random.fold_in(keys.acting, step), family.actions)
        return learner.act(learned.params, observation, noise, draws, updates)

    def learn(
        learned: Learned,
        rows: jax.Array,
        transition: Transition,
        cut: jax.Array,
        stored: jax.Array,
        number: jax.Array,
        due: jax.Array,
        received: Broadcast = Broadcast(None),  # noqa: B008
    ) -> tuple[Learned, jax.Array]:
        learned, row = agent.remember(learned, transition, cut)
        rows = store(rows, row, stored)

        def update() -> Learned:
            draws = agent.batch_draws(keys, number)
            correct = None if plain else Correct(correction, received)
            return agent.improve(learned, rows, stored + 1, number, draws, correct)[0]

        return jax.lax.cond(due, update, lambda: learned), rows

    return act, jax.jit(learn, donate_argnums=1)


def actions_of(env: Any, family: ControlFamily) -> Callable[[Array], Any]:
    """From a learner's action to the environment's; an environment of another shape is refused."""
    from gymnasium import spaces

    seen, does = env.observation_space, env.action_space
    shape = (family.observation_size,)
    if not isinstance(seen, spaces.Box) or seen.shape != shape:
        raise FedrlError(f"the run's policies observe Box{shape}, this environment gives {seen}")
    if not family.continuous:
        if not isinstance(does, spaces.Discrete) or does.n != family.actions:
            raise FedrlError(
                f"the run's policies choose from Discrete({family.actions}), this environment "
                f"takes {does}"
            )
        return partial(executed, does)
    if not isinstance(does, spaces.Box) or does.shape != (family.actions,):
        raise FedrlError(
            f"the run's policies act in Box({family.actions},), this environment takes {does}"
        )
    if not does.is_bounded():
        raise FedrlError(f"actions must be bounded, this environment takes {does}")
    return partial(executed, does)


def episode_seed(*numbers: int) -> int:
    """The seed of an episode: what it is for and after how much work, below a root."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] >> 1)


def reset(env: Any, seed: int | None = None) -> jax.Array:
    """The first observation of an episode."""
    observation, _ = env.reset(seed=seed)
    return _observed(env, observation)


def _refuse_not_finite(what: str, numbers: Any) -> None:
    if not np.isfinite(numbers).all():
        raise FedrlError(
            f"training has diverged, {what} not a finite number: mend the environment, or lower "
            "the step size"
        )


def step(env: Any, action: Any) -> tuple[jax.Array, float, bool, bool]:
    """(observation, reward, terminated, truncated); what is not finite is refused."""
    _refuse_not_finite("the action is", action)
    observation, reward, terminated, truncated, _ = env.step(action)
    _refuse_not_finite("the reward is", reward)
    seen = _observed(env, observation)
    if not terminated:  # of what follows a terminal state nothing is learnt
        _refuse_not_finite("an observation is", seen)
    return seen, float(reward), bool(terminated), bool(truncated)


def _observed(env: Any, observation: Any) -> jax.Array:
    return jnp.asarray(observed(str(env), observation, *env.observation_space.shape))
