"""One Stable-Baselines3 DDPG per agent, one after another.

SB3's DDPG is its TD3 with one critic, an actor updated as often as the critic, and noise on the
target's actions that is drawn and then clipped to 0. Its actor is that of the other peers. Its
critic takes the action beside the observation, in the first layer, where the others let it join in
the second one; with 400-300 that is 600 weights more of 129,000, and the actor's gradient goes
through all of the critic. As SB3 has them: Adam goes through the parameters in Python, an update
of the actor also computes a gradient of the critic that nobody uses, and the noise of a step is
also added to the random actions before learning starts.
"""

from itertools import chain
from typing import Any

import numpy as np

from benchmarks.ddpg_peers import common
from benchmarks.ddpg_peers.common import ROBOTS, Work, environment, need
from benchmarks.dqn_peers.common import Array, Episode


class StableBaselines:
    """The agents of one process, one after another."""

    def __init__(self, work: Work, agents: list[int]) -> None:
        self.torch = need("torch")
        self.models = [self._model(work, agent) for agent in agents]

    def _model(self, work: Work, agent: int) -> Any:
        _, action = ROBOTS[work.robot]
        # SB3 has no noise of its own; without one a deterministic policy would not explore.
        noise = need("stable_baselines3.common.noise").NormalActionNoise(
            np.zeros(action), np.full(action, common.SIGMA)
        )
        model = need("stable_baselines3").DDPG(
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
        model.set_random_seed(work.seed + 1 + agent)
        return model

    @property
    def updates(self) -> int:
        return int(self.models[0]._n_updates)

    def advance(self, steps: int) -> None:
        for model in self.models:
            # No log lines: nothing reads them, and they cost time.
            model.learn(total_timesteps=steps, reset_num_timesteps=False, log_interval=None)

    def parameters(self) -> list[Array]:
        tensors = zip(*map(_averaged, self.models), strict=True)
        return [np.stack([tensor.numpy() for tensor in agents]) for agents in tensors]

    def load(self, means: list[Array]) -> None:
        for model in self.models:
            for tensor, mean in zip(_averaged(model), means, strict=True):
                tensor.copy_(self.torch.from_numpy(mean))

    def episodes(self) -> list[Episode]:
        found: list[Episode] = []
        for model in self.models:
            monitor = model.get_env().envs[0]
            ends = np.cumsum(monitor.get_episode_lengths()).tolist()
            found += zip(ends, monitor.get_episode_rewards(), strict=True)
        return found


def _averaged(model: Any) -> list[Any]:
    """The parameters that agents share; targets and optimisers are their own."""
    networks = (model.actor, model.critic)
    return list(chain.from_iterable(network.state_dict().values() for network in networks))


build = StableBaselines
