"""What an environment shows after the end is nobody's business, and may not even be a number."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from doc_blocks import ROOT, blocks
from engines import engine_of
from fedrl.learners.ddpg import DDPG
from fedrl.learners.dqn import DQN
from fedrl.learners.personalisation import Personal
from fedrl.learners.ppo import PPO
from fedrl.learners.replay import Memory
from probes import Probe
from tiny import begin, go_on

pytestmark = pytest.mark.usefixtures("kept", "hasty")


@dataclass(frozen=True)
class Ends(Probe):
    """A walk that ends with probability 1/4 or so; `shown` is what one sees then."""

    shown: float = 0.0
    continuous: ClassVar[bool] = False
    actions: ClassVar[int] = 2

    def reset(self, key):
        return jax.random.uniform(key, (1,), minval=-1.0)

    def step(self, state, action, constants):
        after = jnp.sin(100 * (state + 0.1 * jnp.sum(action)))
        over = after[0] > 0.7
        return jnp.where(over, self.shown, after), state[0], over


class EndsSmoothly(Ends):
    continuous = True
    actions = 1


def example():
    """The learner in the documentation."""
    (text,) = [b.text for b in blocks(Path(ROOT / "docs/extending.md")) if b.file == "soft_q.py"]
    names = {"__name__": "soft_q"}
    exec(compile(text, "soft_q.py", "exec"), names)
    return names["SoftQ"]


EVERYTHING = Personal(embedding=2, head=True, normalisation=True)
SMALL = {"hidden": (6,), "batch": 8, "replay": 32, "learning_starts": 16}
ROLLOUTS = {"hidden": (6,), "rollout": 16, "batch": 8, "epochs": 2}
LEARNERS = {
    "dqn": DQN(**SMALL),
    "double": DQN(**SMALL, double=True, loss="huber"),
    "private parts": DQN(**SMALL, personal=EVERYTHING),
    "half numbers": DQN(**SMALL, memory=Memory("float16")),
    "example": example()(**SMALL),
    "private parts of the example": example()(**SMALL, personal=EVERYTHING),
    "ppo": PPO(**ROLLOUTS),
    "private parts of ppo": PPO(**ROLLOUTS, personal=EVERYTHING),
    "continuous ppo": PPO(**ROLLOUTS, actions="continuous"),
    "ddpg": DDPG(**SMALL, action_layer=0),
    "td3": DDPG(**SMALL, action_layer=0, twin=True, actor_every=2, smoothing=0.2),
    "private parts of ddpg": DDPG(**SMALL, action_layer=0, personal=EVERYTHING),
}


def learned(learner, shown):
    family = (EndsSmoothly if learner.continuous else Ends)(shown=shown)
    engine = engine_of(family, learner, agents=2)
    done = jax.jit(lambda: go_on(engine, begin(engine, 0), 0, 2, 5))()
    assert done.agents.seen.episodes.min() > 3
    return jax.device_get(done.agents)


@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
def test_a_terminal_observation_that_is_not_a_number_changes_nothing(learner):
    plain = learned(learner, 0.0)
    for shown in (np.nan, np.inf):
        strange = learned(learner, float(shown))
        for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(strange), strict=True):
            assert np.isfinite(a).all()
            np.testing.assert_array_equal(a, b)
