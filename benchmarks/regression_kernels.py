"""Three small programs that stand for the rest, each beside NumPy doing its bare arithmetic.

A program takes a state, which it may overwrite, and more that stays the same, and gives the next
state and whatever else would be lost if nobody read it. It is compiled as in a run: how often its
loops go round is not known to the compiler.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedrl.engine.agent import BatchDraws, OneAgent, stacked
from fedrl.engine.local_engine import LocalEngine
from fedrl.experiment.settings import Experiment
from fedrl.families import CartPoles, HalfCheetahs
from fedrl.launches import wide_vectors
from fedrl.learners.ddpg import DDPG
from fedrl.learners.dqn import DQN
from fedrl.learners.learner import Learned
from fedrl.strategies.strategy import PLAIN
from fedrl.tabular.exact.lanes import to_every_agent, to_lanes
from fedrl.tabular.exact.mdp import MDPs, stored
from fedrl.tabular.exact.sparsity import sparsity_of
from fedrl.tabular.families import WindyCliffs
from fedrl.tabular.learners import ProjPAvg, TabularLearner
from fedrl.tabular.replicates import Schedule, draw_tables
from fedrl.tabular.rounds import train

Array = NDArray[Any]

AGENTS = 5
# Calls of a few milliseconds: longer than the clock is coarse, shorter than the machine is calm.
TABULAR_UPDATES, DQN_UPDATES, DDPG_UPDATES = 32, 96, 20
TABULAR_SEEDS = 40
ENGINE = LocalEngine(Experiment("kernel", CartPoles(), DQN(hidden=(128,), batch=16), agents=AGENTS))
LEARNER = DDPG(hidden=(64, 64), batch=64, replay=1000)
ROBOT = HalfCheetahs()
WINDY = WindyCliffs()
# Batches that a loop goes through; all the same, it would be done once for all rounds.
BATCHES = 8


@dataclass
class Kernel:
    """A compiled program, and the same arithmetic with nothing around it."""

    compiled: jax.stages.Compiled
    state: Any
    given: tuple[Any, ...]
    bare: Callable[[], object]
    """As many updates as the program does."""

    def __call__(self) -> None:
        """Run the program once, and wait for it."""
        self.state, rest = self.compiled(self.state, *self.given)
        for leaf in jax.tree.leaves((self.state, rest)):
            leaf.block_until_ready()


def kernel(
    program: Callable[..., tuple[Any, Any]],
    state: Any,
    given: Any,
    bare: Callable[[], object],
    options: dict[str, int] | None = None,
) -> Kernel:
    jitted = jax.jit(program, donate_argnums=0, compiler_options=options)
    compiled = jitted.lower(state, *given).compile()
    # A buffer that stands in the state twice cannot be given away twice.
    return Kernel(compiled, jax.tree.map(jnp.copy, state), given, bare)


def tabular(learner: TabularLearner | None = None) -> Kernel:
    """Rounds of 4 local updates on some WindyCliffs, in 64 bits."""
    learner = ProjPAvg() if learner is None else learner
    S, A, gamma = WINDY.states, WINDY.actions, WINDY.gamma
    sparsity = sparsity_of(WINDY.support())
    with jax.enable_x64(True):
        drawn = WINDY.draws(0, jnp.arange(TABULAR_SEEDS, dtype=jnp.uint32), AGENTS, None, 0)
        rewards = to_every_agent(jnp.moveaxis(drawn.R, 0, -1), AGENTS)
        lanes = AGENTS * TABULAR_SEEDS
        starts = jnp.broadcast_to(jnp.asarray(WINDY.d0())[:, None], (S, lanes))
        P = to_lanes(stored(drawn.P, sparsity))
        mdps = MDPs(P, rewards, starts, jnp.float64(gamma), sparsity)
        keys = jax.random.split(jax.random.key(0), lanes)
        numbers = jnp.arange(TABULAR_SEEDS, dtype=jnp.uint32)
        tables = draw_tables(learner, S, A, jnp.uint32(0), numbers)

        def program(table: jax.Array, *given: Any) -> tuple[jax.Array, Any]:
            plan, mdps, keys, server_keys = given
            agents = (learner, PLAIN, AGENTS)
            trained = train(*agents, plan, mdps, None, table, keys, server_keys)
            return trained.table, trained

        plan = Schedule(np.full(TABULAR_UPDATES, 1e-2), 4, 0.9).plan()
        dense, R = (np.asarray(jnp.moveaxis(x, -1, 0)) for x in (to_lanes(drawn.P), rewards))
        bare = partial(bare_tabular, dense, R, gamma)
        table = jnp.moveaxis(tables, 0, -1)
        given = (plan, mdps, keys, keys[:TABULAR_SEEDS])
        return kernel(program, table, given, bare, wide_vectors("cpu"))


def dqn(engine: LocalEngine = ENGINE) -> Kernel:
    """A round of DQNAvg on CartPoles: 4-128-2, batches of 16."""
    replicate = jnp.int32(0)
    environments = engine.environments(replicate, engine.thetas(replicate))
    federation = jax.jit(engine.begin)(engine.first_params(replicate), environments)

    def program(federation: Any, *given: Any) -> tuple[Any, None]:
        return engine.advance(federation, *given), None

    given = (environments, jnp.int32(1), jnp.int32(DQN_UPDATES))
    return kernel(program, federation, given, bare_dqn())


def ddpg(learner: DDPG = LEARNER) -> Kernel:
    """Updates of DDPG in HalfCheetah's sizes: 64-64, batches of 64, no physics."""
    sizes = ROBOT.observation_size, ROBOT.actions
    keys = jax.random.split(jax.random.key(0), 3)
    width = 2 * sizes[0] + sizes[1] + 2
    rows = jax.random.normal(keys[0], (AGENTS, learner.replay, width))
    picks = jax.random.uniform(keys[1], (BATCHES, AGENTS, learner.batch))

    def program(learned: Learned, *given: Any) -> tuple[Learned, jax.Array]:
        rows, picks, updates = given

        def update(i: jax.Array, carry: tuple[Learned, jax.Array]) -> tuple[Learned, jax.Array]:
            def of_agent(learned: Learned, rows: jax.Array, pick: jax.Array) -> Any:
                draws, full = BatchDraws(pick, ()), jnp.int32(learner.replay)
                return OneAgent(ROBOT, learner).improve(learned, rows, full, i, draws)

            learned, loss = jax.vmap(of_agent)(carry[0], rows, picks[i % BATCHES])
            return learned, carry[1] + loss

        done: tuple[Learned, jax.Array] = jax.lax.fori_loop(
            0, updates, update, (learned, jnp.zeros(AGENTS))
        )
        return done

    learned = stacked(learner.init(keys[2], *sizes), AGENTS)
    return kernel(program, learned, (rows, picks, jnp.int32(DDPG_UPDATES)), bare_ddpg())


KERNELS: dict[str, Callable[[], Kernel]] = {"tabular": tabular, "dqn": dqn, "ddpg": ddpg}


def bare_tabular(P: Array, R: Array, gamma: float) -> None:
    """Values, visits and Q of a policy in every lane, solved by LAPACK; P (lanes, S, A, S)."""
    lanes, S, A = R.shape
    policy = np.full(R.shape, 1 / A)
    start = np.full((lanes, S, 1), 1 / S)
    for _ in range(TABULAR_UPDATES):
        M = np.eye(S) - gamma * np.einsum("lsa,lsat->lst", policy, P)
        V = np.linalg.solve(M, np.einsum("lsa,lsa->ls", policy, R)[..., None])
        visits = np.linalg.solve(M.swapaxes(1, 2), start)
        Q = R + gamma * (P.reshape(lanes, S * A, S) @ V).reshape(lanes, S, A)
        policy + 1e-2 * visits * Q


def bare_dqn() -> Callable[[], None]:
    """Online and target network forwards, one of them backwards: products, and no more."""
    x, online, target = observations(4, 16), weights(4, 128, 2), weights(4, 128, 2)

    def run() -> None:
        for _ in range(DQN_UPDATES):
            layers = forwards(online, x)
            backwards(online, layers, layers[-1] - forwards(target, x)[-1])

    return run


def bare_ddpg() -> Callable[[], None]:
    """The same of actors and critics, the critic a second time for the actor.

    The action does not enter the critic, which is little beside the rest.
    """
    size, actions = ROBOT.observation_size, ROBOT.actions
    x = observations(size, 64)
    actor, critic = weights(size, 64, 64, actions), weights(size, 64, 64, 1)
    target_actor, target_critic = weights(size, 64, 64, actions), weights(size, 64, 64, 1)

    def run() -> None:
        for _ in range(DDPG_UPDATES):
            forwards(target_actor, x)
            layers = forwards(critic, x)
            backwards(critic, layers, layers[-1] - forwards(target_critic, x)[-1])
            layers = forwards(actor, x)
            forwards(critic, x)
            backwards(actor, layers, layers[-1])

    return run


def observations(size: int, batch: int) -> Array:
    """A batch for every agent."""
    return np.random.default_rng(0).standard_normal((AGENTS, batch, size), np.float32)


def weights(*widths: int) -> list[Array]:
    """Of the layers of every agent."""
    draw = np.random.default_rng(1).standard_normal
    return [draw((AGENTS, *sizes), np.float32) / sizes[0] for sizes in pairwise(widths)]


def forwards(network: list[Array], x: Array) -> list[Array]:
    """What every layer of a linear network gets, and what the last one gives."""
    layers = [x]
    for weight in network:
        layers.append(layers[-1] @ weight)
    return layers


def backwards(network: list[Array], layers: list[Array], error: Array) -> list[Array]:
    """Gradients of the weights, the last layer's first."""
    gradients = []
    for weight, x in zip(reversed(network), reversed(layers[:-1]), strict=True):
        gradients.append(x.swapaxes(1, 2) @ error)
        error = error @ weight.swapaxes(1, 2)
    return gradients
