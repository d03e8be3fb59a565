"""Gymnasium environments by name: making them, and checking what they are and what they give."""

import traceback
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from fedrl.errors import CodeNotAllowedError, FedrlError
from fedrl.families.control_family import Shape, stretched
from fedrl.files import Array
from fedrl.registry import imported, permit


def make(environment: str, keywords: dict[str, Any]) -> Any:
    """An environment, by id or from a function."""
    import gymnasium

    module, colon, function = environment.partition(":")
    if colon:
        permit(environment)
    maker: Any = None
    try:
        if colon and function.isidentifier():
            maker = imported(environment)
        else:
            maker = partial(gymnasium.make, environment, disable_env_checker=True)
            if colon:  # found from the folder of the command, as all modules are
                imported(f"{module}:__name__")
        env = maker(**keywords)
    except Exception as error:  # an author's module may raise anything
        given = f" with {keywords}" if keywords else ""
        raise FedrlError(
            f"cannot make the environment {environment!r}{given} ({_in_a_line(error)}): "
            f"{_advice(error, module, maker, bool(keywords))}"
        ) from None
    if not all(hasattr(env, name) for name in ("observation_space", "action_space", "step")):
        raise FedrlError(
            f"{environment} returned {env!r}, which is not a Gymnasium environment: a function "
            "that makes one must return it"
        )
    return env


def make_rendered(environment: str, keywords: dict[str, Any]) -> Any:
    """An environment whose `render` returns pictures, reset; one without pictures is refused."""
    try:
        env = make(environment, {**keywords, "render_mode": "rgb_array"})
        env.reset(seed=0)
        picture = env.render()
        if np.ndim(picture) == 3 and np.shape(picture)[2] == 3 and picture.dtype == np.uint8:
            return env
        got = type(picture).__name__
        why = f"render() returned {got}, not an array (height, width, 3) of bytes"
    except CodeNotAllowedError:
        raise
    except Exception as error:  # an author's module may raise anything
        why = _in_a_line(error)
    raise FedrlError(
        f'{environment} cannot be shown, since it does not render with render_mode="rgb_array" '
        f"({why}): it, or the function that makes it, must take the keyword render_mode, and "
        "render() must return a picture"
    )


def _advice(error: Exception, module: str, maker: Any, varies: bool) -> str:
    """What to do about an environment that cannot be made; `maker`: what the name led to."""
    from gymnasium.error import DependencyNotInstalled, UnregisteredEnv

    if isinstance(error, UnregisteredEnv):
        return (
            "give the id of a registered one (module:id imports the module that registers it), or "
            "module:function for a function that returns it"
        )
    if isinstance(error, ModuleNotFoundError) and error.name == module:
        return "Python must find the module: run from its folder, or install it"
    if isinstance(error, (DependencyNotInstalled, ImportError)):
        return "install what it needs"
    if not callable(maker):
        return "module:function must name a function that returns it"
    if isinstance(error, TypeError) and "argument" in str(error):
        return "family.vary must name keywords that it has, and all that it needs"
    if varies:
        return (
            "it must take every value of the ranges in family.vary, also both ends: make them "
            "smaller, or mend the environment"
        )
    return "it must be made without an error: mend the environment"


def _in_a_line(error: Exception) -> str:
    """What was raised, and where."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error}; {Path(where.filename).name}, line {where.lineno}"


RETURNED = {
    "reset": "(observation, info)",
    "step": "(observation, reward, terminated, truncated, info)",
}


def asked(env: Any, what: str, method: str, *given: Any, **named: Any) -> Any:
    """What `reset` or `step` returns; what goes wrong is its author's to hear of."""
    form = RETURNED[method]
    try:
        told = getattr(env, method)(*given, **named)
    except Exception as error:
        hint = (
            ". It must be: def reset(self, *, seed=None, options=None)"
            if isinstance(error, TypeError) and method == "reset" and "argument" in str(error)
            else ""
        )
        raise FedrlError(f"{method} of {what} raised {_in_a_line(error)}{hint}") from error
    if not isinstance(told, tuple) or len(told) != 1 + form.count(","):
        raise FedrlError(f"{method} of {what} must return {form}, got {told!r}")
    return told


def one_number(what: str, reward: Any) -> float:
    """A reward; what is not a number is refused."""
    if np.ndim(reward) or not isinstance(reward, (int, float, np.number, np.ndarray)):
        raise FedrlError(f"{what} gave the reward {reward!r}, which is not one number")
    return float(reward)


def observed(what: str, seen: Any, size: int) -> Array:
    """An observation in 32 bits; one of another shape than at the beginning is refused."""
    if np.shape(seen) != (size,):
        raise FedrlError(
            f"{what} gave an observation of shape {np.shape(seen)}, and its policy sees ({size},): "
            "an environment must always give observations of the shape of its observation_space"
        )
    return np.asarray(seen, np.float32)


@cache
def shape_of(environment: str, *keywords: tuple[str, float]) -> tuple[Shape, int | None]:
    """What an environment looks like, as others of the family must, and its time limit."""
    from gymnasium import spaces

    env = make(environment, dict(keywords))
    seen, does, spec = env.observation_space, env.action_space, getattr(env, "spec", None)
    env.close()
    if not isinstance(seen, spaces.Box) or len(seen.shape or ()) != 1:
        what = "an image" if isinstance(seen, spaces.Box) else type(seen).__name__
        raise FedrlError(
            f"{environment} observes {seen}: we learn from vectors. Wrap the environment so that "
            f"{what} becomes one (gymnasium.wrappers.FlattenObservation), in a function that "
            "module:function names"
        )
    limit = spec.max_episode_steps if spec is not None else None
    (size,) = seen.shape
    if isinstance(does, spaces.Discrete):
        return Shape(size, int(does.n), False, int(does.start), (), ()), limit
    if isinstance(does, spaces.Box) and len(does.shape) == 1:
        if not does.is_bounded():
            raise FedrlError(f"{environment} takes {does}: actions must be bounded")
        low, high = (tuple(float(x) for x in end) for end in (does.low, does.high))
        return Shape(size, does.shape[0], True, 0, low, high), limit
    raise FedrlError(f"{environment} takes {does}: we learn Discrete actions or vectors (Box)")


def executed(space: Any, action: Array) -> Any:
    """An environment's own action; ours are numbers from 0 on, or vectors in [-1, 1]."""
    if hasattr(space, "n"):
        return int(np.ravel(action)[0]) + int(space.start)
    return stretched(action, space.low, space.high)


def try_out(env: Any, what: str) -> None:
    """Play a few steps, twice from the same seed, and say what is wrong."""
    played = []
    for _ in range(2):
        observation, _ = asked(env, what, "reset", seed=7)
        env.action_space.seed(7)
        seen, over = [np.asarray(observation)], False
        while len(seen) <= 5 and not over:
            action = env.action_space.sample()
            observation, reward, terminated, truncated, _ = asked(env, what, "step", action)
            seen.append(np.asarray(observation))
            over = terminated or truncated
            if not np.isfinite(one_number(what, reward)):
                raise FedrlError(f"{what} gave the reward {reward}")
        for vector in seen:
            if vector.shape != env.observation_space.shape:
                raise FedrlError(
                    f"{what} gave an observation of shape {vector.shape}, its space says "
                    f"{env.observation_space.shape}"
                )
            if vector.dtype.kind not in "fiu" or not np.isfinite(vector).all():
                raise FedrlError(f"{what} gave an observation that is not of finite numbers")
        played.append(np.concatenate(seen))
    if played[0].shape != played[1].shape or not np.allclose(played[0], played[1]):
        raise FedrlError(
            f"{what} does not repeat itself from the same seed: draw all random numbers from "
            "self.np_random, after super().reset(seed=seed), or results cannot be reproduced"
        )
