"""rejax's DQN, vectorised over agents as its documentation does.

The network, its activation, the batch, the replay, the copies of the target and one update for each
step are those of the others. As rejax has them, and different: a batch is drawn without repetition
(which goes over all of the replay for every update), gymnax's CartPole, whose pole is the same for
all and whose episode may also end in a time limit that counts as terminal, half of the squared
error. Evaluation is left out; nothing is averaged.
"""

from typing import Any

import numpy as np

from benchmarks.peers.dqn import common
from benchmarks.peers.group import Work, need
from benchmarks.peers.jaxgroup import Vectorised, jax_for

# For the schedule of epsilon: a share of all steps, and more of these than are ever made.
STEPS = 10_000_000


def build(work: Work, agents: list[int]) -> Vectorised:
    jax = jax_for(work)
    networks = need("rejax.networks")
    agent = networks.EpsilonGreedyPolicy(networks.DiscreteQNetwork)(
        hidden_layer_sizes=work.hidden, action_dim=common.ACTIONS, activation=jax.nn.relu
    )
    algorithm = (
        need("rejax")
        .get_algo("dqn")
        .create(
            env="CartPole-v1",
            env_params={},
            ddqn=False,
            learning_rate=common.LEARNING_RATE,
            gamma=common.GAMMA,
            buffer_size=common.CAPACITY,
            fill_buffer=common.LEARNING_STARTS,
            batch_size=work.batch,
            num_envs=1,
            target_update_freq=common.TARGET_INTERVAL,
            polyak=0.0,
            eps_end=common.EPSILON_FINAL,
            exploration_fraction=common.EPSILON_STEPS / STEPS,
            total_timesteps=STEPS,
        )
        .replace(agent=agent)  # `create` allows no other sizes than its own
    )
    limit = algorithm.env_params.replace(max_steps_in_episode=common.TIME_LIMIT)
    algorithm = algorithm.replace(env_params=limit)

    def train(state: Any, steps: Any) -> Any:
        return jax.lax.fori_loop(0, steps, lambda _, one: algorithm.train_iteration(one), state)

    keys = jax.vmap(jax.random.key)(np.array(agents, np.uint32))
    states = jax.jit(jax.vmap(algorithm.init_state))(keys)
    # How old its episode is, for want of a return: it keeps none.
    return Vectorised(
        work, states, jax.vmap(train, in_axes=(0, None)), lambda states: states.env_state.time
    )
