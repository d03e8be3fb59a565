"""One Stable-Baselines3 DQN per agent, one after another.

SB3's loss is Huber's and cannot be chosen. With it, a target copied every 10 updates and an update
per step, values diverge (beyond 1e5) and returns stay below 10; `loop` does the same when given
that loss, and SB3 learns with the squared error. Episodes of 8 steps also mean more resets than the
others have. So the loss is replaced by that of the other peers, unless `--huber` is given. As SB3
has them, and different from the other peers: gradients clipped at norm 10, and targets copied every
10 environment steps (which are 10 updates here, once learning has begun).
"""

from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.dqn_peers import common
from benchmarks.dqn_peers.common import Array, Episode, Work, cart_pole, epsilon, need


class StableBaselines:
    """The agents of one process, one after another."""

    def __init__(self, work: Work, agents: list[int]) -> None:
        self.torch = need("torch")
        if not work.huber:
            # Only in this process, and all that the module uses of torch.nn.functional.
            squared = SimpleNamespace(smooth_l1_loss=self.torch.nn.functional.mse_loss)
            need("stable_baselines3.dqn.dqn").F = squared
        self.models = [self._model(work, agent) for agent in agents]

    def _model(self, work: Work, agent: int) -> Any:
        model = need("stable_baselines3").DQN(
            "MlpPolicy",
            cart_pole(work, agent),
            learning_rate=common.LEARNING_RATE,
            buffer_size=common.CAPACITY,
            learning_starts=common.LEARNING_STARTS,
            batch_size=work.batch,
            gamma=common.GAMMA,
            train_freq=1,
            gradient_steps=1,
            target_update_interval=common.TARGET_INTERVAL,
            policy_kwargs={"net_arch": list(work.hidden)},
            seed=work.seed,  # all agents begin with the same parameters
            device="cpu",
        )
        model.set_random_seed(work.seed + 1 + agent)
        # SB3's schedule is over the steps of one call of `learn`, which is one round here.
        model.exploration_schedule = lambda _: epsilon(model.num_timesteps)
        return model

    @property
    def updates(self) -> int:
        return int(self.models[0]._n_updates)

    def advance(self, steps: int) -> None:
        for model in self.models:
            # No log lines: nothing reads them, and they cost time.
            model.learn(total_timesteps=steps, reset_num_timesteps=False, log_interval=None)

    def parameters(self) -> list[Array]:
        states = [model.q_net.state_dict() for model in self.models]
        return [np.stack([state[name].numpy() for state in states]) for name in states[0]]

    def load(self, means: list[Array]) -> None:
        names = self.models[0].q_net.state_dict()
        state = dict(zip(names, map(self.torch.from_numpy, means), strict=True))
        for model in self.models:
            model.q_net.load_state_dict(state)

    def episodes(self) -> list[Episode]:
        found: list[Episode] = []
        for model in self.models:
            monitor = model.get_env().envs[0]
            ends = np.cumsum(monitor.get_episode_lengths()).tolist()
            found += zip(ends, monitor.get_episode_rewards(), strict=True)
        return found


build = StableBaselines
