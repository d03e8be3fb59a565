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

from benchmarks.peers.baselines import StableBaselines
from benchmarks.peers.dqn import common
from benchmarks.peers.dqn.common import cart_pole, epsilon
from benchmarks.peers.group import Work, need


def model(work: Work, agent: int) -> Any:
    one = need("stable_baselines3").DQN(
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
    one.set_random_seed(work.seed + 1 + agent)
    # SB3's schedule is over the steps of one call of `learn`, which is one round here.
    one.exploration_schedule = lambda _: epsilon(one.num_timesteps)
    return one


def build(work: Work, agents: list[int]) -> StableBaselines:
    if not work.huber:
        # Only in this process, and all that the module uses of torch.nn.functional.
        squared = SimpleNamespace(smooth_l1_loss=need("torch").nn.functional.mse_loss)
        need("stable_baselines3.dqn.dqn").F = squared
    models = [model(work, agent) for agent in agents]
    return StableBaselines(work, models, lambda one: (one.q_net,))
