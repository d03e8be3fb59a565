"""The federated loop on tables, for one block of replicates, as one compiled program."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedrl.tabular.exact.lanes import agents_and_replicates, mean_over_agents, to_every_agent
from fedrl.tabular.exact.mdp import MDPs, objective
from fedrl.tabular.learners import Agents, TabularLearner

# The step size decays when a round improves the objective by less than this part of it.
PLATEAU = 1e-3


class Plan(NamedTuple):
    """What distinguishes one run from another of the same program (all traced)."""

    lr: jax.Array  # (iterations,) step size of each local update
    decay: jax.Array  # () factor on the step size at a plateau; 1 for none
    local_updates: jax.Array  # () local updates in a round
    rounds: jax.Array  # () rounds to do
    communicate: jax.Array  # () bool: send the average back; False is E = inf


class Record(NamedTuple):
    """What the tables are worth: (B,) at one moment, (records, B) after 0, 1, ... rounds."""

    objective: jax.Array  # averaged table, in the agents' own MDPs
    evaluation: jax.Array | None  # averaged table, in the held-out MDPs; None without
    baseline: jax.Array | None  # mean of agent i's table in MDP j; None unless asked for


class Trained(NamedTuple):
    """A finished run of a block of B replicates."""

    table: jax.Array  # (S, A, B) averaged table
    policy: jax.Array  # (S, A, B) its policy
    record: Record


class _Carry(NamedTuple):
    agents: Agents
    scale: jax.Array  # (B,) what the plateaus have made of the step size
    before: jax.Array  # (2, B) the objective one and two rounds ago
    policy: jax.Array  # (S, A, B) the policy last looked at
    seen: Record  # what it is worth
    record: Record


def _mean_objective(mdps: MDPs, policy: jax.Array) -> jax.Array:
    """Mean over environments of one policy per replicate, (B,)."""
    count = mdps.P.shape[-1] // policy.shape[-1]
    return mean_over_agents(objective(mdps, to_every_agent(policy, count)), count)


def _mean_over_pairs(mdps: MDPs, policies: jax.Array, agents: int) -> jax.Array:
    """Mean over i and j of agent i's policy in agent j's environment, (B,)."""
    by_agent = agents_and_replicates(policies, agents)

    def shifted(j: jax.Array, total: jax.Array) -> jax.Array:
        policy = jnp.roll(by_agent, j, axis=-2).reshape(policies.shape)
        return total + mean_over_agents(objective(mdps, policy), agents)

    zero = jnp.zeros(by_agent.shape[-1])
    total: jax.Array = lax.fori_loop(0, agents, shifted, zero)
    return total / agents


def train(
    learner: TabularLearner,
    agents: int,
    plan: Plan,
    mdps: MDPs,
    held_out: MDPs | None,
    init: jax.Array,
    keys: jax.Array,
    *,
    with_baseline: bool = False,
) -> Trained:
    """Run rounds of local updates and averaging from the shared table `init` (S, A, B).

    `mdps` has `agents` * B lanes, `keys` one key a lane. Records have as many entries as there
    could be rounds at E = 1, plus one: E is traced, so that all E share one compiled program, and
    what is beyond the last round stays NaN.
    """
    iterations = plan.lr.shape[0]
    replicates = init.shape[-1]
    E, rounds = plan.local_updates, plan.rounds

    def local_phase(state: Agents, scale: jax.Array, r: jax.Array) -> Agents:
        lr_scale = to_every_agent(scale, agents)

        def update(t: jax.Array, state: Agents) -> Agents:
            return learner.step(state, mdps, plan.lr[t] * lr_scale, keys, t)

        last = jnp.minimum((r + 1) * E, iterations)
        state = lax.fori_loop(r * E, last, update, learner.begin(state, mdps))
        return learner.end(state, mdps)

    def average(table: jax.Array) -> jax.Array:
        return to_every_agent(mean_over_agents(table, agents), agents)

    def look(policy: jax.Array, table: jax.Array) -> Record:
        return Record(
            _mean_objective(mdps, policy),
            None if held_out is None else _mean_objective(held_out, policy),
            _mean_over_pairs(mdps, learner.policy(table), agents) if with_baseline else None,
        )

    def one_round(r: jax.Array, carry: _Carry) -> _Carry:
        one_ago, two_ago = carry.before
        plateau = (r > 2) & (one_ago - two_ago < PLATEAU * two_ago)
        scale = jnp.where(plateau, carry.scale * plan.decay, carry.scale)

        table = carry.agents.table
        policy = learner.policy(mean_over_agents(table, agents))
        # Greedy policies stop changing long before Q does; the same policy is worth the same.
        known = jnp.all(policy == carry.policy) & (not with_baseline)
        seen = lax.cond(known, lambda *_: carry.seen, look, policy, table)

        # Conditions and not selections: the visit after the last round only records, and what a
        # branch returns is written out once instead of being computed again by all who read it.
        going_on = r < rounds
        state = lax.cond(
            going_on, partial(local_phase, r=r), lambda state, _: state, carry.agents, scale
        )
        table = lax.cond(going_on & plan.communicate, average, lambda table: table, state.table)
        return _Carry(
            state._replace(table=table),
            scale,
            jnp.stack([seen.objective, one_ago]),
            policy,
            seen,
            jax.tree.map(lambda record, value: record.at[r].set(value), carry.record, seen),
        )

    def everywhere(value: float, *shape: int) -> Record:
        filled = jnp.full((*shape, replicates), value)
        return Record(
            filled, None if held_out is None else filled, filled if with_baseline else None
        )

    start = _Carry(
        Agents(to_every_agent(init, agents), learner.start(mdps, keys)),
        scale=jnp.ones(replicates),
        before=jnp.zeros((2, replicates)),
        policy=jnp.full_like(init, jnp.nan),
        seen=everywhere(jnp.nan),
        record=everywhere(jnp.nan, iterations + 1),
    )
    end = lax.fori_loop(0, rounds + 1, one_round, start)
    table = mean_over_agents(end.agents.table, agents)
    return Trained(table, learner.policy(table), end.record)
