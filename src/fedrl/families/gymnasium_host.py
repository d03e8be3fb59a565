"""Gymnasium environments on the host, called from compiled programs.

Unlike the robots these cannot be put into arrays: the host keeps them, and a state says which one
it is. A state that another process has made, before a run was resumed, names an environment that is
no longer there. `rejoin` finds that out, before an action is chosen, and begins a new episode.

A state: process, number, seed in two parts, steps, then the observation.
"""

import threading
from collections import defaultdict
from functools import cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.errors import FedrlError
from fedrl.families.gymnasium_making import asked, executed, make, observed, one_number
from fedrl.files import Array

if TYPE_CHECKING:
    from fedrl.families.gymnasium_family import GymnasiumFamily

HEAD = 5
PROCESS, NUMBER, HIGH, LOW, STEPS = range(HEAD)
SEED = slice(HIGH, LOW + 1)
# Whole numbers that 32-bit floats can hold.
MOST = 1 << 24
HALF = 1 << 15
# Times its width that an observation may be outside of its space before it is warned of.
FAR = 10.0
# Stands for as many numbers as are asked for.
NOTHING = np.array(np.nan, np.float32)


class Hall:
    """The environments of a family in this process, and who is in which."""

    def __init__(self, family: "GymnasiumFamily") -> None:
        self._family = family
        self._process = int(np.random.SeedSequence().generate_state(1)[0] % (MOST - 1)) + 1
        self._taken: dict[int, Any] = {}
        self._states: dict[int, Array] = {}
        """Where the environments that are taken are."""
        self._free: dict[bytes, list[Any]] = defaultdict(list)
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
            waiting = self._free[theta.tobytes()]
            env = waiting.pop() if waiting else None
            number = self._next = (self._next + 1) % MOST
        if env is None:
            env = make(self._family.environment, self._family.keywords(theta))
        self._taken[number] = env
        return self._first(number, state[SEED], theta)

    def rejoin(self, theta: Array, state: Array, reset: Array) -> Array:
        """(whether a new episode has begun, state): the same if the environment is still there."""
        if not self._has(state):
            return np.append(1.0, self.begin(theta, reset))
        number = int(state[NUMBER])
        if np.array_equal(self._states[number], state, equal_nan=True):
            return np.append(0.0, state)
        # It has moved on since, with a later state than the one that is taken up again.
        return np.append(1.0, self._first(number, reset[SEED], theta))

    def step(self, theta: Array, action: Array, state: Array, seed: Array | None = None) -> Array:
        """(reward, terminated, cut off, state after, state renewed); no seed: an end is final."""
        if np.isnan(state[NUMBER]):  # waiting, or over in an evaluation
            return NOTHING
        family, what = self._family, self._family.words(theta)
        if not self._has(state):
            raise FedrlError(
                f"a state of {what} is of an environment that is not in this process: begin an "
                "episode with reset() and begin()"
            )
        if not np.isfinite(action).all():  # of an agent that has diverged
            return NOTHING
        number = int(state[NUMBER])
        env = self._taken[number]
        done = executed(env.action_space, action)
        seen, reward, terminated, truncated, _ = asked(env, what, "step", done)
        after = state.copy()
        after[STEPS] += 1
        after[HEAD:] = self._looked_at(env, seen, what)
        # Shorter limits of its own are cuts as well: what follows is a new episode.
        over = terminated or truncated or after[STEPS] >= family.time_limit
        self._states[number] = renewed = after
        if over and seed is not None:
            renewed = self._first(number, seed, theta)
        elif over:
            del self._taken[number], self._states[number]
            with self._lock:
                self._free[theta.tobytes()].append(env)
        told = [one_number(what, reward), float(terminated), float(over and not terminated)]
        return np.concatenate([told, after, renewed]).astype(np.float32)

    def _has(self, state: Array) -> bool:
        """Whether the environment that a state names is there."""
        return bool(state[PROCESS] == self._process) and int(state[NUMBER]) in self._taken

    def _first(self, number: int, seed: Array, theta: Array) -> Array:
        """The first state of an episode."""
        env, what = self._taken[number], self._family.words(theta)
        seen, _ = asked(env, what, "reset", seed=int(seed[0]) * HALF + int(seed[1]))
        head = [self._process, number, *seed, 0]
        state = np.concatenate([head, self._looked_at(env, seen, what)]).astype(np.float32)
        self._states[number] = state
        return state

    def _looked_at(self, env: Any, seen: Any, what: str) -> Array:
        """An observation; it is noted, once, if it lies far outside of its space."""
        vector, space = observed(what, seen, self._family.observation_size), env.observation_space
        if self._warned:
            return vector
        if self._allowed is None:
            low, high = space.low.astype(np.float64), space.high.astype(np.float64)
            room = FAR * np.where(np.isfinite(high - low), high - low, np.inf)
            self._allowed = low - room, high + room
        inside = (self._allowed[0] <= vector) & (vector <= self._allowed[1])
        if not inside.all():
            self._warned = True
            worst = int(np.argmin(inside))
            self.warning = (
                f"number {worst} of an observation of {what} is {vector[worst]:g}, far outside of "
                f"its space (from {space.low[worst]:g} to {space.high[worst]:g}), and networks "
                "hardly learn from such numbers: correct the space, or scale the observations"
            )
        return vector


hall = cache(Hall)
"""Where a family's environments are."""


def ask(family: "GymnasiumFamily", method: str, width: int, *given: jax.Array) -> jax.Array:
    """What a method of the family's `Hall` answers, so many numbers."""
    given = tuple(jnp.atleast_1d(part).astype(jnp.float32) for part in given)
    parts = [slice(*ends) for ends in pairwise(accumulate(map(len, given), initial=0))]

    def answered(rows: Any) -> Array:
        rows, place = np.asarray(rows), hall(family)
        # Nothing is a number after something went wrong.
        answers = np.full((*rows.shape[:-1], width), np.nan, np.float32)
        try:
            if place.trouble is None:
                for index in np.ndindex(rows.shape[:-1]):
                    answers[index] = getattr(place, method)(*(rows[index][part] for part in parts))
        except FedrlError as error:
            place.trouble = error
        return answers

    answer: jax.Array = jax.pure_callback(
        answered, jnp.zeros(width), jnp.concatenate(given), vmap_method="broadcast_all"
    )
    return answer
