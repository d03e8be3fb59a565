"""One Stable-Baselines3 DDPG per agent, one after another.

SB3's DDPG is its TD3 with one critic, an actor updated as often as the critic, and noise on the
target's actions that is drawn and then clipped to 0. Its actor is that of the other peers. Its
critic takes the action beside the observation, in the first layer, where the others let it join in
the second one; with 400-300 that is 600 weights more of 129,000, and the actor's gradient goes
through all of the critic. As SB3 has them: Adam goes through the parameters in Python, an update
of the actor also computes a gradient of the critic that nobody uses, and the noise of a step is
also added to the random actions before learning starts.
"""

from typing import Any

import numpy as np

from benchmarks.peers.baselines import StableBaselines
from benchmarks.peers.ddpg import common
from benchmarks.peers.ddpg.common import ROBOTS, environment
from benchmarks.peers.group import Work, need


def model(work: Work, agent: int) -> Any:
    _, action = ROBOTS[work.robot]
    # SB3 has no noise of its own; without one a deterministic policy would not explore.
    noise = need("stable_baselines3.common.noise").NormalActionNoise(
        np.zeros(action), np.full(action, common.SIGMA)
    )
    one = need("stable_baselines3").DDPG(
        "MlpPolicy",
        environment(work),
        learning_rate=common.LEARNING_RATE,
        buffer_size=common.CAPACITY,
        learning_starts=common.LEARNING_STARTS,
        batch_size=work.batch,
        tau=common.TAU,
        gamma=common.GAMMA,
        train_freq=1,
        gradient_steps=1,
        action_noise=noise,
        policy_kwargs={"net_arch": list(work.hidden)},
        seed=work.seed,  # all agents begin with the same parameters
        device="cpu",
    )
    one.set_random_seed(work.seed + 1 + agent)
    return one


def build(work: Work, agents: list[int]) -> StableBaselines:
    models = [model(work, agent) for agent in agents]
    return StableBaselines(work, models, lambda one: (one.actor, one.critic))
