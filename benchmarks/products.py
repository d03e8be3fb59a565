"""What the matrix products of a DDPG update would allow if there were nothing else to do.

    python -m benchmarks.products --hidden 400,300 --batch 64 --seeds 2

All products of one update in their shapes, for 5 agents under `vmap` and a core for each seed, as
our engine runs them; no bias, ReLU, Adam, targets' steps, replay or environment. Only what an
update cannot do without is counted: for the actor's gradient the critic is gone back through to the
action and no further. XLA can drop none of them: inputs differ from one update to the next, every
product feeds another one or the gradient that the loop carries, and the two passes through the
critic get different observations, as they would be one computation otherwise (in an update, the
critic has changed in between).
"""

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from math import sqrt
from typing import Any, NamedTuple

import jax

from benchmarks.machine import versions
from benchmarks.peers.ddpg.common import ROBOTS
from fedrl.devices import worker_devices

BATCHES = 8
UPDATES = 100
"""Of each agent in one call, so that calls take most of a second with large networks."""


class Actor(NamedTuple):
    """Weights of the layers."""

    first: jax.Array
    second: jax.Array
    last: jax.Array


class Critic(NamedTuple):
    """Weights of the layers; the second one's apart, by what they are applied to."""

    first: jax.Array
    second: jax.Array
    action: jax.Array
    last: jax.Array


class Networks(NamedTuple):
    """Of one agent."""

    actor: Actor
    critic: Critic
    target_actor: Actor
    target_critic: Critic


class Batch(NamedTuple):
    """Of one update of one agent."""

    observation: jax.Array
    action: jax.Array
    following: jax.Array
    other: jax.Array
    """Observations for the step of the actor."""


def update(networks: Networks, batch: Batch) -> tuple[Actor, Critic]:
    """The gradients, if everything were linear and the loss of the actor Q squared."""
    actor, critic, target_actor, target_critic = networks
    *_, action = act(target_actor, batch.following)
    *_, wanted = value(target_critic, batch.following, action)
    first, second, found = value(critic, batch.observation, batch.action)
    error = found - wanted
    back_second = error @ critic.last.T
    back_first = back_second @ critic.second.T
    critic_gradient = Critic(
        batch.observation.T @ back_first,
        first.T @ back_second,
        batch.action.T @ back_second,
        second.T @ error,
    )
    first, second, action = act(actor, batch.other)
    *_, found = value(critic, batch.other, action)
    back_action = (found @ critic.last.T) @ critic.action.T
    back_second = back_action @ actor.last.T
    back_first = back_second @ actor.second.T
    actor_gradient = Actor(
        batch.other.T @ back_first, first.T @ back_second, second.T @ back_action
    )
    return actor_gradient, critic_gradient


def act(actor: Actor, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What every layer gives."""
    first = x @ actor.first
    second = first @ actor.second
    return first, second, second @ actor.last


def value(critic: Critic, x: jax.Array, action: jax.Array) -> tuple[jax.Array, ...]:
    """What every layer gives."""
    first = x @ critic.first
    second = first @ critic.second + action @ critic.action
    return first, second, second @ critic.last


def operations(robot: str, hidden: tuple[int, int], batch: int) -> int:
    """Additions and multiplications of an update of one agent."""
    observation, action = ROBOTS[robot]
    first, second = hidden
    actor = observation * first + first * second + second * action
    critic = observation * first + (first + action) * second + second
    forward = 2 * actor + 3 * critic
    critic_gradient = critic + second + second * first
    actor_gradient = actor + second + 2 * second * action + second * first
    return 2 * batch * (forward + critic_gradient + actor_gradient)


def program(networks: Networks, batches: Batch) -> Any:
    """The gradients of all agents, again and again."""

    def one(i: jax.Array, _: Any) -> Any:
        batch = jax.tree.map(lambda leaf: leaf[i % BATCHES], batches)
        return jax.vmap(update)(networks, batch)

    return jax.lax.fori_loop(0, UPDATES, one, (networks.actor, networks.critic))


def initial(
    key: jax.Array, robot: str, hidden: tuple[int, int], batch: int, agents: int
) -> tuple[Networks, Batch]:
    """Random numbers of such a size that all products stay near 1."""
    observation, action = ROBOTS[robot]
    keys = iter(jax.random.split(key, 18))

    def normal(*shape: int) -> jax.Array:
        return jax.random.normal(next(keys), shape)

    def weights(inputs: int, outputs: int) -> jax.Array:
        return normal(agents, inputs, outputs) / sqrt(inputs)

    def actor() -> Actor:
        return Actor(*(weights(*sizes) for sizes in pairwise((observation, *hidden, action))))

    def critic() -> Critic:
        first, second = hidden
        return Critic(
            weights(observation, first),
            weights(first, second),
            weights(action, second),
            weights(second, 1),
        )

    widths = (observation, action, observation, observation)
    batches = Batch(*(normal(BATCHES, agents, batch, width) for width in widths))
    return Networks(actor(), critic(), actor(), critic()), batches


def rate(
    robot: str, hidden: tuple[int, int], batch: int, *, agents: int, seeds: int, seconds: float
) -> float:
    """Updates per second over all agents and seeds."""
    states = [initial(jax.random.key(seed), robot, hidden, batch, agents) for seed in range(seeds)]
    compiled = jax.jit(program).lower(*states[0]).compile()

    def run(seed: int) -> None:
        actor, _ = compiled(*states[seed])
        actor.first.block_until_ready()  # and with it all the others

    run(0)
    with ThreadPoolExecutor(len(worker_devices())) as pool:
        calls, begun = 0, time.perf_counter()
        while (passed := time.perf_counter() - begun) < seconds:
            list(pool.map(run, range(seeds)))
            calls += seeds
    return calls * agents * UPDATES / passed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--robot", choices=ROBOTS, default="HalfCheetah-v5")
    parser.add_argument("--hidden", default="400,300", help="units of the two hidden layers")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--agents", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0)
    given = parser.parse_args()
    first, second = (int(units) for units in given.hidden.split(","))
    found = rate(
        given.robot,
        (first, second),
        given.batch,
        agents=given.agents,
        seeds=given.seeds,
        seconds=given.seconds,
    )
    print(json.dumps({"value": found, "versions": versions()}))


if __name__ == "__main__":
    main()
