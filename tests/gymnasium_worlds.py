"""Environments of Gymnasium that are easy to reason about, and some that are wrong."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Line(gymnasium.Env):
    """The observation counts steps; the reward is theta; it ends or is cut off when told to."""

    def __init__(self, theta=1.0, ends=None, cut=None, action_space=None):
        self.observation_space = spaces.Box(-1e6, 1e6, (2,), np.float32)
        self.action_space = action_space or spaces.Discrete(2, start=3)
        self.theta, self.ends, self.cut = theta, ends, cut
        self.done: list[Any] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.salt = 0, self.np_random.uniform()
        return self._seen(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.done.append(action)
        self.t += 1
        ended, cut = self.t == self.ends, self.t == self.cut
        return self._seen(), self.theta, ended, cut, {}

    def _seen(self):
        return np.array([self.t, self.salt], np.float32)


def line(theta=1.0):
    return Line(theta)


def ending(theta=1.0):
    return Line(theta, ends=7)


def cut(theta=1.0):
    return Line(theta, cut=5)


def steered(theta=1.0):
    return Line(theta, action_space=spaces.Box(np.array([-2, 0]), np.array([2, 10]), (2,)))


class Unseeded(Line):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.salt = np.random.default_rng().uniform()
        return self._seen(), {}


class Image(Line):
    def __init__(self, theta=1.0):
        super().__init__(theta)
        self.observation_space = spaces.Box(0, 255, (8, 8, 3), np.uint8)


class Words(Line):
    def __init__(self, theta=1.0):
        super().__init__(theta)
        self.observation_space = spaces.Dict({"x": spaces.Box(0, 1, (2,))})


class Unbounded(Line):
    def __init__(self, theta=1.0):
        super().__init__(theta, action_space=spaces.Box(-np.inf, np.inf, (1,)))


class Many(Line):
    def __init__(self, theta=1.0):
        super().__init__(theta, action_space=spaces.MultiDiscrete([2, 2]))


class Growing(Line):
    """More actions where theta is larger."""

    def __init__(self, theta=1.0):
        super().__init__(theta, action_space=spaces.Discrete(2 + int(theta > 1)))


class OldReset(Line):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class OldStep(Line):
    def step(self, action):
        seen, reward, ended, _, info = super().step(action)
        return seen, reward, ended, info


class NoReward(Line):
    def step(self, action):
        seen, _, *rest = super().step(action)
        return seen, np.nan, *rest


class Larger(Line):
    def _seen(self):
        return np.zeros(3, np.float32)


ONLY = Line()


def the_same(theta=1.0):
    return ONLY


def anything(**keywords):
    """Made with whatever names a family varies."""
    return Line(next(iter(keywords.values())), cut=5)


class NoSeed(Line):
    def reset(self):
        return super().reset()


class ManyRewards(Line):
    def step(self, action):
        seen, _, *rest = super().step(action)
        return seen, np.array([1.0]), *rest


class Forgotten(Line):
    def step(self, action):
        return 1 / 0


class Bursts(Line):
    """Only after a while."""

    def step(self, action):
        if self.t > 6:
            raise ValueError("the tank has burst")
        return super().step(action)


class Drawn(Line):
    """Pictures whose brightness is the step; cut off by itself after five of them."""

    def __init__(self, theta=1.0, render_mode=None):
        super().__init__(theta, cut=5)
        self.render_mode = render_mode

    def render(self):
        return np.full((40, 60, 3), 50 * self.t, np.uint8) if self.render_mode else None


class DrawsNothing(Drawn):
    def render(self):
        return None


class Grows(Line):
    """Observes more after a while."""

    def _seen(self):
        return np.zeros(2 if self.t < 7 else 3, np.float32)


class Late(Line):
    """Of another shape when its second episode begins."""

    episodes = 0

    def __init__(self, theta=1.0):
        super().__init__(theta, ends=7)

    def reset(self, *, seed=None, options=None):
        seen, info = super().reset(seed=seed)
        self.episodes += 1
        return (np.zeros((2, 1)) if self.episodes > 3 else seen), info


def below_three(theta=1.0):
    """Refuses one end of the usual range."""
    assert theta < 3, f"theta must be below 3, got {theta}"
    return Line(theta, cut=5)


def returns_nothing(theta=1.0):
    Line(theta)


def breaks(theta=1.0):
    return {}["no such key"]


LOG: list[tuple[Any, ...]] = []
"""All that has really happened in a `Recorded` world: (theta, observation, action, reward, next
observation, terminated)."""


class Recorded(Line):
    """Episodes of irregular length; what happens is written down."""

    def reset(self, *, seed=None, options=None):
        first, info = super().reset(seed=seed)
        self.ends = int(self.np_random.integers(3, 12))
        return first, info

    def step(self, action):
        before = self._seen()
        seen, _, ended, cut, info = super().step(action)
        reward = float(np.float32(self.theta + self.t / 64))
        action = int(action) - 3
        LOG.append((self.theta, *before.tolist(), action, reward, *seen.tolist(), ended))
        return seen, reward, ended, cut, info


class Far(Line):
    """What is seen is far outside of what the space says."""

    def _seen(self):
        return np.array([-1e9, self.salt], np.float32)


class Huge(Line):
    """Rewards of which a few do not fit into 32 bits, nor the square of one."""

    def step(self, action):
        seen, _, *rest = super().step(action)
        return seen, 1e30, *rest
