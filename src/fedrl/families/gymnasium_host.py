"""Gymnasium environments on the host, called from compiled programs.

Unlike the robots these cannot be put into arrays: the host keeps them, and a state says which one
it is. A state that another process has made, before a run was resumed, names an environment that is
no longer there. `rejoin` finds that out, before an action is chosen, and begins a new episode.

A state: process, number, seed in two parts, steps, then the observation.
"""

import threading
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.errors import FedrlError
from fedrl.families.gymnasium_making import asked, executed, make, observed, one_number

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
        with asked(what, "step"):
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
        told = [one_number(what, reward), float(terminated), float(over and not terminated)]
        return np.concatenate([told, after, renewed]).astype(np.float32)

    def _first(self, env: Any, number: int, seed: Array, theta: Array) -> Array:
        what = self._name(theta)
        with asked(what, "reset"):
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
