"""How good models are: returns of their greedy policies, each model in each environment."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedrl.engine.agent import finite
from fedrl.families.control_family import ControlFamily, State, without_idle
from fedrl.keys import numbered

Policy = Callable[[Any, jax.Array], jax.Array]


class Returns(NamedTuple):
    """Means over episodes, one for each (model, environment), or with an axis of all episodes."""

    undiscounted: jax.Array
    discounted: jax.Array


def greedy_returns(
    family: ControlFamily,
    policy: Policy,
    models: Any,
    theta: jax.Array,
    key: jax.Array,
    *,
    episodes: int,
    gamma: float,
    own: bool = False,
    numbers: jax.Array | None = None,
    each: bool = False,
) -> Returns:
    """Play every model (first axis of each leaf) in every environment (rows of theta).

    All models start an environment's episodes from the same states, which depend on the
    environment's number; they are counted from 0 unless `numbers` says otherwise. With `own`, model
    i is played in environment i only; with `each`, episodes are told one by one (last axis). What
    a model does whose parameters are not finite is worth nothing, however often its actions happen
    to be right: its returns are not a number.
    """
    constants = jax.vmap(family.constants)(theta)
    numbers = jnp.arange(theta.shape[0]) if numbers is None else numbers
    n_models = jax.tree.leaves(models)[0].shape[0]

    def starts(number: jax.Array) -> State:
        return jax.vmap(family.reset)(numbered(jax.random.fold_in(key, number), episodes))

    def everywhere(function: Callable[..., Any], of_episode: int) -> Callable[..., Any]:
        """Over (models, environments, episodes), of constants and of what each episode has."""
        each = (0,) * of_episode
        environments = jax.vmap(jax.vmap(function, in_axes=(None, *each)))
        # Models share the environments' constants.
        return jax.vmap(environments, in_axes=(0 if own else None, *each))

    states = jax.vmap(starts)(numbers)
    if own:
        states, constants = jax.tree.map(lambda leaf: leaf[:, None], (states, constants))
    else:
        states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (n_models, *leaf.shape)), states)
    states = everywhere(lambda c, s: family.begin(s, c), 1)(constants, states)
    step = partial(everywhere(lambda c, s, a: family.step(s, a, c), 2), constants)
    zeros = jnp.zeros((n_models, 1 if own else theta.shape[0], episodes), jnp.float32)
    played = _play(family, partial(jax.vmap(policy), models), states, step, zeros, gamma)
    if not each:
        played = Returns(*(values.mean(-1) for values in played))
    usable = jax.vmap(finite)(models)[(...,) + (None,) * (2 if each else 1)]
    played = Returns(*(jnp.where(usable, values, jnp.nan) for values in played))
    return Returns(*(values[:, 0] for values in played)) if own else played


def _play(
    family: ControlFamily,
    act: Callable[[jax.Array], jax.Array],
    states: State,
    step: Callable[[State, jax.Array], tuple[State, jax.Array, jax.Array]],
    zeros: jax.Array,
    gamma: float,
) -> Returns:
    """Greedy episodes of (models, environments, episodes) to their ends."""
    observe = jax.vmap(jax.vmap(jax.vmap(family.observe)))

    def play(carry: Any) -> Any:
        t, discount, states, alive, total, discounted = carry
        states, reward, terminated = step(states, act(observe(states)))
        earned = jnp.where(alive, reward, 0.0)
        alive = alive & ~terminated
        going_on = (t + 1, discount * gamma, without_idle(alive, states), alive)
        return (*going_on, total + earned, discounted + discount * earned)

    def goes_on(carry: Any) -> jax.Array:
        t, _, _, alive, _, _ = carry
        unfinished: jax.Array = (t < family.time_limit) & jnp.any(alive)
        return unfinished

    start = (jnp.int32(0), jnp.float32(1), states, zeros == 0, zeros, zeros)
    *_, total, discounted = jax.lax.while_loop(goes_on, play, start)
    return Returns(total, discounted)
