"""Models of Stable-Baselines3 that are trained one after another."""

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np

from benchmarks.peers.group import Array, Episode, Work, torch_for


class StableBaselines:
    """The models of one process."""

    def __init__(
        self, work: Work, models: list[Any], networks: Callable[[Any], tuple[Any, ...]]
    ) -> None:
        self.torch = torch_for(work)
        self.models = models
        self.networks = networks
        """Of a model: those that agents share. Targets and optimisers are their own."""

    @property
    def updates(self) -> int:
        return int(self.models[0]._n_updates)

    def advance(self, steps: int) -> None:
        for model in self.models:
            # No log lines: nothing reads them, and they cost time.
            model.learn(total_timesteps=steps, reset_num_timesteps=False, log_interval=None)

    def _averaged(self, model: Any) -> list[Any]:
        states = (network.state_dict().values() for network in self.networks(model))
        return list(chain.from_iterable(states))

    def parameters(self) -> list[Array]:
        tensors = zip(*map(self._averaged, self.models), strict=True)
        return [np.stack([tensor.numpy() for tensor in agents]) for agents in tensors]

    def load(self, means: list[Array]) -> None:
        for model in self.models:
            for tensor, mean in zip(self._averaged(model), means, strict=True):
                tensor.copy_(self.torch.from_numpy(mean))

    def episodes(self) -> list[Episode]:
        found: list[Episode] = []
        for model in self.models:
            monitor = model.get_env().envs[0]
            ends = np.cumsum(monitor.get_episode_lengths()).tolist()
            found += zip(ends, monitor.get_episode_rewards(), strict=True)
        return found
