"""Gymnasium environments on the host, called from compiled programs.

Unlike the robots these cannot be put into arrays: the host keeps them, and a state says which one
it is. A state that another process has made, before a run was resumed, names an environment that is
no longer there. `rejoin` finds that out, before an action is chosen, and begins a new episode.

A state: process, number, seed in two parts, steps, then the observation.
"""

import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.errors import CodeNotAllowedError, FedrlError
from fedrl.families.control_family import stretched
from fedrl.registry import imported, permit

if TYPE_CHECKING:
    from fedrl.families.gymnasium_family import GymnasiumFamily

Array = np.ndarray[Any, Any]

HEAD = 5
PROCESS, NUMBER, HIGH, LOW, STEPS = range(HEAD)
# Whole numbers that 32-bit floats can hold.
_MOST = 1 << 24
_HALF = 1 << 15
# Times its width that an observation may be outside of its space before it is warned of.
FAR = 10.0


class Shape(NamedTuple):
    """What a learner needs to know of an environment."""

    observation_size: int
    actions: int
    continuous: bool
    time_limit: int | None
    first: int = 0
    """The number of the first discrete action."""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    """Bounds of continuous actions."""

    @property
    def words(self) -> str:
        actions = "numbers" if self.continuous else "choices"
        return f"{self.observation_size} observations, {self.actions} {actions}"


def make(environment: str, keywords: dict[str, Any]) -> Any:
    """An environment, by id or from a function."""
    import gymnasium

    module, colon, function = environment.partition(":")
    if colon:
        permit(environment)
    maker: Callable[..., Any] | None = None
    try:
        if colon and function.isidentifier():
            maker = imported(environment)
            env = maker(**keywords)
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
    except CodeNotAllowedError:
        raise
    except Exception as error:  # an author's module may raise anything
        raise FedrlError(_no_pictures(environment, _in_a_line(error))) from None
    if np.ndim(picture) != 3 or np.shape(picture)[2] != 3 or picture.dtype != np.uint8:
        got = (
            f"render() returned {type(picture).__name__}, not an array (height, width, 3) of bytes"
        )
        raise FedrlError(_no_pictures(environment, got))
    return env


def _no_pictures(environment: str, why: str) -> str:
    return (
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


@contextmanager
def _asked(what: str, method: str) -> Iterator[None]:
    """An environment is asked for something; what goes wrong is its author's to hear of."""
    try:
        yield
    except Exception as error:
        hint = (
            ". It must be: def reset(self, *, seed=None, options=None)"
            if isinstance(error, TypeError) and method == "reset" and "argument" in str(error)
            else ""
        )
        raise FedrlError(f"{method} of {what} raised {_in_a_line(error)}{hint}") from error


def _reward(what: str, reward: Any) -> float:
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
def _shape_of(environment: str, keywords: tuple[tuple[str, float], ...]) -> Shape:
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
        return Shape(size, int(does.n), False, limit, first=int(does.start))
    if isinstance(does, spaces.Box) and len(does.shape) == 1:
        if not does.is_bounded():
            raise FedrlError(f"{environment} takes {does}: actions must be bounded")
        low, high = (tuple(float(x) for x in end) for end in (does.low, does.high))
        return Shape(size, does.shape[0], True, limit, low=low, high=high)
    raise FedrlError(f"{environment} takes {does}: we learn Discrete actions or vectors (Box)")


def shape_of(environment: str, keywords: dict[str, float]) -> Shape:
    """What an environment looks like; others of the family must look the same."""
    return _shape_of(environment, tuple(keywords.items()))


class Hall:
    """The environments of a family in this process, and who is in which."""

    def __init__(self, family: "GymnasiumFamily") -> None:
        self._family = family
        self._process = int(np.random.SeedSequence().generate_state(1)[0] % (_MOST - 1)) + 1
        self._taken: dict[int, Any] = {}
        self._states: dict[int, Array] = {}
        """Where the environments that are taken are."""
        self._free: dict[bytes, list[Any]] = {}
        self._next = 0
        self._lock = threading.Lock()
        self.trouble: FedrlError | None = None
        """What an environment did wrong. Compiled programs cannot be left by an exception without a
        page about JAX, so they go on with what is no number until somebody asks."""
        self.warning: str | None = None
        """What an environment did that is hardly right, once."""
        self._allowed: tuple[Array, Array] | None = None
        self._warned = False

    def begin(self, theta: Array, state: Array) -> Array:
        """An episode from its seed, in an environment of its own."""
        with self._lock:
            waiting = self._free.get(theta.tobytes())
            env = waiting.pop() if waiting else None
            number = self._next = (self._next + 1) % _MOST
        if env is None:
            env = make(self._family.environment, self._family.keywords(theta))
        self._taken[number] = env
        return self._first(env, number, state[[HIGH, LOW]], theta)

    def rejoin(self, theta: Array, state: Array, seed: Array) -> Array:
        """(whether a new episode has begun, state): the same if the environment is still there."""
        number = int(state[NUMBER]) if state[PROCESS] == self._process else None
        if number is None or number not in self._taken:
            return np.append(1.0, self.begin(theta, seed))
        if np.array_equal(self._states[number], state, equal_nan=True):
            return np.append(0.0, state)
        # It has moved on since, with a later state than the one that is taken up again.
        return np.append(1.0, self._first(self._taken[number], number, seed[[HIGH, LOW]], theta))

    def _name(self, theta: Array) -> str:
        return f"{self._family.environment} with {self._family.keywords(theta)}"

    def step(self, theta: Array, action: Array, state: Array, seed: Array | None) -> Array:
        """(reward, terminated, state after, state renewed); without a seed it ends for good."""
        family = self._family
        if state[PROCESS] != self._process or int(state[NUMBER]) not in self._taken:
            raise FedrlError(
                f"a state of {self._name(theta)} is of an environment that is not in this process: "
                "begin an episode with reset() and begin()"
            )
        number = int(state[NUMBER])
        env = self._taken[number]
        what = self._name(theta)
        if not np.isfinite(action).all():  # of an agent that has diverged
            return np.full(3 + 2 * len(state), np.nan, np.float32)
        with _asked(what, "step"):
            seen, reward, terminated, truncated, _ = env.step(executed(env.action_space, action))
        after = state.copy()
        after[STEPS] += 1
        after[HEAD:] = self._looked_at(env, observed(what, seen, family.observation_size), what)
        # Shorter limits of its own are cuts as well: what follows is a new episode.
        over = terminated or truncated or after[STEPS] >= family.time_limit
        self._states[number] = renewed = after
        if over and seed is not None:
            renewed = self._first(env, number, seed, theta)
        elif over:
            del self._taken[number], self._states[number]
            with self._lock:
                self._free.setdefault(theta.tobytes(), []).append(env)
        told = [_reward(what, reward), float(terminated), float(over and not terminated)]
        return np.concatenate([told, after, renewed]).astype(np.float32)

    def _first(self, env: Any, number: int, seed: Array, theta: Array) -> Array:
        what = self._name(theta)
        with _asked(what, "reset"):
            seen, _ = env.reset(seed=int(seed[0]) * _HALF + int(seed[1]))
        head = [self._process, number, *seed, 0]
        vector = self._looked_at(env, observed(what, seen, self._family.observation_size), what)
        state = np.concatenate([head, vector]).astype(np.float32)
        self._states[number] = state
        return state

    def _looked_at(self, env: Any, seen: Array, what: str) -> Array:
        """An observation; it is noted, once, if it lies far outside of its space."""
        if self._warned:
            return seen
        if self._allowed is None:
            self._allowed = far_outside(env.observation_space)
        low, high = self._allowed
        inside = (low <= seen) & (seen <= high)
        if not inside.all():
            self._warned = True
            worst, space = int(np.argmin(inside)), env.observation_space
            self.warning = (
                f"number {worst} of an observation of {what} is {seen[worst]:g}, far outside of "
                f"its space (from {space.low[worst]:g} to {space.high[worst]:g}), and networks "
                "hardly learn from such numbers: correct the space, or scale the observations"
            )
        return seen


def far_outside(space: Any) -> tuple[Array, Array]:
    """What observations lie between, if they are no further outside than `FAR` spaces are wide."""
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    room = FAR * np.where(np.isfinite(high - low), high - low, np.inf)
    return low - room, high + room


@cache
def hall(family: "GymnasiumFamily") -> Hall:
    """Where a family's environments are."""
    return Hall(family)


def unbegun(family: "GymnasiumFamily", key: jax.Array) -> jax.Array:
    """A state that has only a seed."""
    bits = jax.random.bits(key, (), jnp.uint32) >> 2
    seed = [(bits // _HALF).astype(jnp.float32), (bits % _HALF).astype(jnp.float32)]
    zero = jnp.float32(0)
    head = jnp.stack([zero, zero, *seed, zero])
    return jnp.concatenate([head, jnp.zeros(family.observation_size)])


def begin(family: "GymnasiumFamily", state: jax.Array, theta: jax.Array) -> jax.Array:
    """The first state of an episode."""
    row = jnp.concatenate([theta, state])
    begun: jax.Array = jax.pure_callback(
        partial(_begin_rows, family), state, row, vmap_method="broadcast_all"
    )
    return begun


def rejoin(
    family: "GymnasiumFamily", state: jax.Array, theta: jax.Array, reset: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The state, or the first one of a new episode where there is no such environment; which."""
    row = jnp.concatenate([theta, state, reset])
    told = jax.pure_callback(
        partial(_rejoin_rows, family),
        jnp.zeros(1 + state.size),
        row,
        vmap_method="broadcast_all",
    )
    return told[1:], told[0] > 0


def step(
    family: "GymnasiumFamily",
    state: jax.Array,
    action: jax.Array,
    theta: jax.Array,
    reset: jax.Array | None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]:
    """(state, reward, terminated, cut off, state of a new episode if this one is over)."""
    seed = jnp.zeros(0) if reset is None else reset[jnp.array([HIGH, LOW])]
    row = jnp.concatenate([theta, jnp.atleast_1d(action).astype(jnp.float32), state, seed])
    size = state.size
    like = jnp.zeros(3 + 2 * size)
    told = jax.pure_callback(
        partial(_step_rows, family, reset is not None), like, row, vmap_method="broadcast_all"
    )
    return told[3 : 3 + size], told[0], told[1] > 0, told[2] > 0, told[3 + size :]


def _begin_rows(family: "GymnasiumFamily", rows: Any) -> Array:
    v = len(family.vary)
    size = HEAD + family.observation_size
    return _each(family, rows, size, lambda place, row: place.begin(row[:v], row[v:]))


def _rejoin_rows(family: "GymnasiumFamily", rows: Any) -> Array:
    v, size = len(family.vary), HEAD + family.observation_size

    def of_row(place: Hall, row: Array) -> Array:
        return place.rejoin(row[:v], row[v : v + size], row[v + size :])

    return _each(family, rows, 1 + size, of_row)


def _step_rows(family: "GymnasiumFamily", renews: bool, rows: Any) -> Array:
    v, u = len(family.vary), family.remembered[1]
    size = HEAD + family.observation_size

    def of_row(place: Hall, row: Array) -> Array | None:
        state = row[v + u : v + u + size]
        if np.isnan(state[NUMBER]):  # waiting, or over in an evaluation
            return None
        seed = row[v + u + size :] if renews else None
        return place.step(row[:v], row[v : v + u], state, seed)

    return _each(family, rows, 3 + 2 * size, of_row)


def _each(
    family: "GymnasiumFamily",
    rows: Any,
    width: int,
    of_row: Callable[[Hall, Array], Array | None],
) -> Array:
    """What comes of every row; no numbers where nothing does, and after something went wrong."""
    rows = np.asarray(rows)
    flat = rows.reshape(-1, rows.shape[-1])
    place = hall(family)
    told = np.full((len(flat), width), np.nan, np.float32)
    try:
        for i, row in enumerate(flat if place.trouble is None else ()):
            if (found := of_row(place, row)) is not None:
                told[i] = found
    except FedrlError as error:
        place.trouble = error
    return told.reshape(*rows.shape[:-1], width)


def executed(space: Any, action: Array) -> Any:
    """An environment's own action; ours are numbers from 0 on, or vectors in [-1, 1]."""
    if hasattr(space, "n"):
        return int(np.ravel(action)[0]) + int(space.start)
    return stretched(action, space.low, space.high)


def refuse_what_cannot_be_learnt_in(family: "GymnasiumFamily") -> None:
    """Make the environments at the ends of the ranges, play a little, and say what is wrong."""
    ends = ([low for _, low, _ in family.vary], [high for _, _, high in family.vary])
    envs = [make(family.environment, family.keywords(theta)) for theta in ends]
    try:
        first, last = (shape_of(family.environment, family.keywords(theta)) for theta in ends)
        if first[:3] != last[:3]:
            raise FedrlError(
                f"{family.environment} looks different at the ends of its range ({first.words}; "
                f"{last.words}): agents that share a policy must have the same observations and "
                "actions"
            )
        for env, theta in zip(envs, ends, strict=True):
            _try(env, f"{family.environment} with {family.keywords(theta)}")
        same = envs[0].unwrapped is envs[1].unwrapped
        if same:
            raise FedrlError(
                f"{family.environment} gives the same environment twice: it must make a new one "
                "each time"
            )
    finally:
        for env in envs:
            env.close()


def _try(env: Any, what: str) -> None:
    """A few steps, twice from the same seed."""
    played = []
    for _ in range(2):
        with _asked(what, "reset"):
            result = env.reset(seed=7)
        if not isinstance(result, tuple) or len(result) != 2:
            raise FedrlError(f"reset of {what} must return (observation, info), got {result!r}")
        env.action_space.seed(7)
        seen = [result[0]]
        for _ in range(5):
            with _asked(what, "step"):
                told = env.step(env.action_space.sample())
            if not isinstance(told, tuple) or len(told) != 5:
                raise FedrlError(
                    f"step of {what} must return (observation, reward, terminated, truncated, "
                    f"info), got {told!r}"
                )
            seen.append(told[0])
            if not np.isfinite(_reward(what, told[1])):
                raise FedrlError(f"{what} gave the reward {told[1]}")
            if told[2] or told[3]:
                break
        for one in seen:
            vector = np.asarray(one)
            if vector.shape != env.observation_space.shape:
                raise FedrlError(
                    f"{what} gave an observation of shape {vector.shape}, its space says "
                    f"{env.observation_space.shape}"
                )
            if vector.dtype.kind not in "fiu" or not np.isfinite(vector).all():
                raise FedrlError(f"{what} gave an observation that is not of finite numbers")
        played.append(np.concatenate([np.ravel(one) for one in seen]))
    if played[0].shape != played[1].shape or not np.allclose(played[0], played[1]):
        raise FedrlError(
            f"{what} does not repeat itself from the same seed: draw all random numbers from "
            "self.np_random, after super().reset(seed=seed), or results cannot be reproduced"
        )
