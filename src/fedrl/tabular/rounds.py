"""The federated loop on tables, for one block of replicates, as one compiled program."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from fedrl.strategies.aggregators import Communication, Mean
from fedrl.strategies.corrections import Broadcast, Correction, NoCorrection, Offer, Step
from fedrl.strategies.purity import hiding_nothing
from fedrl.strategies.strategy import ALL, ServerState, Strategy
from fedrl.tabular.exact.lanes import agents_and_replicates, mean_over_agents, to_every_agent
from fedrl.tabular.exact.mdp import MDPs, objective
from fedrl.tabular.learners import TabularLearner

Tree = TypeVar("Tree")

# The step size decays when a round improves the objective by less than this part of it.
PLATEAU = 1e-3


def gain_over_plateau(one_ago: Any, two_ago: Any) -> Any:
    """How much more the objective has gained in a round than it does at a plateau."""
    return one_ago - two_ago - PLATEAU * two_ago


class Plan(NamedTuple):
    """What distinguishes one run from another of the same program (all traced)."""

    lr: jax.Array  # (iterations,) step size of each local update
    decay: jax.Array  # () factor on the step size at a plateau; 1 for none
    local_updates: jax.Array  # () local updates in a round
    rounds: jax.Array  # () rounds to do
    communicate: jax.Array  # () bool: send the average back; False is E = inf


class Record(NamedTuple):
    """What the tables are worth: (B,) at one moment, (records, B) after 0, 1, ... rounds."""

    objective: Any  # averaged table, in the agents' own MDPs
    evaluation: Any  # averaged table, in the held-out MDPs; None without
    baseline: Any  # mean of agent i's table in MDP j; None unless asked for


class Trained(NamedTuple):
    """A finished run of B replicates; lanes last as everywhere here, replicates first outside."""

    table: Any  # (S, A, B) averaged table
    policy: Any  # (S, A, B) its policy
    objective: Any  # (records, B), as all that is in a Record
    evaluation: Any
    baseline: Any


class Round(NamedTuple):
    """Where a federation is: all agents (lanes last) and its server (replicates last)."""

    table: jax.Array  # (S, A, lanes): what is communicated
    private: Any  # whatever else a learner carries along; never communicated
    memory: Any  # of the correction
    server: ServerState


class _Carry(NamedTuple):
    at: Round
    scale: jax.Array  # (B,) what the plateaus have made of the step size
    before: jax.Array  # (2, B) the objective one and two rounds ago
    policy: jax.Array  # (S, A, B) the policy last looked at
    seen: Record  # what it is worth
    record: Record


def local_phase(
    learner: TabularLearner,
    correction: Correction,
    at: Round,
    mdps: MDPs,
    keys: jax.Array,
    lr: Callable[[jax.Array], jax.Array],
    first: jax.Array,
    last: jax.Array,
) -> Round:
    """Local updates `first` to `last` - 1 of all agents; `lr` gives the step size of each lane."""
    begun = learner.begin(at.table, mdps)
    agents = mdps.P.shape[-1] // jax.tree.leaves(at.server.sent.model)[0].shape[-1]
    plain = type(correction) is NoCorrection
    # What the agents begin with is what they were sent.
    extra = jax.tree.map(lambda x: to_every_agent(x, agents), at.server.sent.correction[ALL])
    received = Broadcast(begun, extra)

    def update(t: jax.Array, now: tuple[jax.Array, Any, Any]) -> tuple[jax.Array, Any, Any]:
        table, private, memory = now
        with hiding_nothing(correction):
            points = () if plain else over_lanes(correction.points)(table, received)
            (direction, *elsewhere), private = learner.directions(
                (table, *points), private, mdps, keys, t
            )
            if not plain:
                step = Step(direction, table, received, tuple(elsewhere))
                direction, memory = over_lanes(correction.correct)(step, memory)
        return learner.move(table, lr(t) * direction), private, memory

    start = begun, at.private, at.memory
    worked, private, memory = lax.fori_loop(first, last, update, start)
    return Round(learner.end(worked, mdps), private, memory, at.server)


def offer(correction: Correction, at: Round) -> Offer:
    """What agents offer; lanes last."""
    with hiding_nothing(correction):
        return Offer(at.table, {ALL: over_lanes(correction.offer)(at.memory)})


def receive(correction: Correction, at: Round, agents: int, counted: bool | jax.Array) -> Round:
    """Give the agents what the server has sent; `counted`: whether it has used their offers."""
    table = to_every_agent(at.server.sent.model, agents)
    with hiding_nothing(correction):
        memory = over_lanes(partial(correction.receive, counted=counted))(at.memory)
    return at._replace(table=table, memory=memory)


def communicate(
    learner: TabularLearner, strategy: Strategy, at: Round, agents: int, keys: jax.Array
) -> Round:
    """The server's step on what the agents offer, and what they receive; `keys` are its own."""
    everybody, aggregator = jnp.arange(agents), strategy.aggregator
    # A mean is one of all replicates at once; `vmap` would transpose them twice.
    at_once = type(aggregator) is Mean

    def aggregate(offers: Any, communication: Communication) -> Any:
        return offers if at_once else aggregator.apply(offers, communication)

    def serve(server: ServerState, offers: Offer, key: jax.Array) -> ServerState:
        key = jax.random.fold_in(key, server.rounds)
        communication = Communication(server.sent.model, everybody, key)
        return strategy.step(server, offers, communication, aggregate=aggregate)

    def agents_first(x: jax.Array) -> jax.Array:
        return jnp.moveaxis(agents_and_replicates(x, agents), -2, 0)

    offers: Offer = jax.tree.map(agents_first, offer(strategy.correction, at))
    if at_once:
        offers = aggregator.apply(offers, Communication(at.server.sent.model, everybody, keys))
    server = jax.vmap(serve, in_axes=(-1, -1, 0), out_axes=-1)(at.server, offers, keys)
    if not strategy.averages:
        sent = server.sent._replace(model=learner.nearest(server.sent.model))
        server = server._replace(sent=sent)
    return receive(strategy.correction, at._replace(server=server), agents, True)


def begin(
    learner: TabularLearner,
    strategy: Strategy,
    init: jax.Array,
    agents: int,
    mdps: MDPs,
    keys: jax.Array,
) -> Round:
    """Agents that share the table `init` (S, A, B), and their server."""
    table = to_every_agent(init, agents)
    # A correction bends what the local updates work on, which need not be the table.
    worked = learner.begin(table, mdps)
    one = agents_and_replicates(worked, agents)[..., 0, :]
    server = over_lanes(lambda model, one: strategy.begin(model, {ALL: one}))(init, one)
    memory = over_lanes(strategy.correction.init)(worked)
    return Round(table, learner.start(mdps, keys), memory, server)


def over_lanes(function: Callable[..., Tree]) -> Callable[..., Tree]:
    """The same function of every lane; lanes are the last axis."""

    def mapped(*trees: Any) -> Tree:
        if not jax.tree.leaves(trees):
            return function(*trees)
        result: Tree = jax.vmap(function, in_axes=-1, out_axes=-1)(*trees)
        return result

    return mapped


def mean_objective(mdps: MDPs, policy: jax.Array) -> jax.Array:
    """Mean over environments of one policy per replicate, (B,)."""
    count = mdps.P.shape[-1] // policy.shape[-1]
    return mean_over_agents(objective(mdps, to_every_agent(policy, count)), count)


def _mean_over_pairs(mdps: MDPs, policies: jax.Array, agents: int) -> jax.Array:
    """Mean over i and j of agent i's policy in agent j's environment, (B,)."""
    by_agent = agents_and_replicates(policies, agents)

    def shifted(j: jax.Array, total: jax.Array) -> jax.Array:
        policy = jnp.roll(by_agent, j, axis=-2).reshape(policies.shape)
        return total + mean_over_agents(objective(mdps, policy), agents)

    total: jax.Array = lax.fori_loop(0, agents, shifted, jnp.zeros(by_agent.shape[-1]))
    return total / agents


def train(
    learner: TabularLearner,
    strategy: Strategy,
    agents: int,
    plan: Plan,
    mdps: MDPs,
    held_out: MDPs | None,
    init: jax.Array,
    keys: jax.Array,
    server_keys: jax.Array,
    *,
    with_baseline: bool = False,
) -> Trained:
    """Run rounds of local updates and communication from the shared table `init` (S, A, B).

    `mdps` has `agents` * B lanes, `keys` one key a lane, `server_keys` one a replicate. Records
    have as many entries as there could be rounds at E = 1, plus one: E is traced, so that all E
    share one compiled program, and what is beyond the last round stays NaN.
    """
    iterations = plan.lr.shape[0]
    replicates = init.shape[-1]
    E, rounds = plan.local_updates, plan.rounds

    def work(at: Round, scale: jax.Array, r: jax.Array) -> Round:
        lr_scale = to_every_agent(scale, agents)
        last = jnp.minimum((r + 1) * E, iterations)
        given = at, mdps, keys, lambda t: plan.lr[t] * lr_scale
        return local_phase(learner, strategy.correction, *given, r * E, last)

    def look(policy: jax.Array, table: jax.Array) -> Record:
        return Record(
            mean_objective(mdps, policy),
            None if held_out is None else mean_objective(held_out, policy),
            _mean_over_pairs(mdps, learner.policy(table), agents) if with_baseline else None,
        )

    def one_round(r: jax.Array, carry: _Carry) -> _Carry:
        one_ago, two_ago = carry.before
        plateau = (r > 2) & (gain_over_plateau(one_ago, two_ago) < 0)
        scale = jnp.where(plateau, carry.scale * plan.decay, carry.scale)

        table = carry.at.table
        policy = learner.policy(mean_over_agents(table, agents))
        # Greedy policies stop changing long before Q does; the same policy is worth the same.
        known = jnp.all(policy == carry.policy) & (not with_baseline)
        seen = lax.cond(known, lambda *_: carry.seen, look, policy, table)

        # Conditions and not selections: the visit after the last round only records, and what a
        # branch returns is written out once instead of being computed again by all who read it.
        going_on = r < rounds
        at = lax.cond(going_on, partial(work, r=r), lambda at, _: at, carry.at, scale)
        at = lax.cond(
            going_on & plan.communicate,
            lambda at: communicate(learner, strategy, at, agents, server_keys),
            lambda at: at,
            at,
        )
        return _Carry(
            at,
            scale,
            jnp.stack([seen.objective, one_ago]),
            policy,
            seen,
            jax.tree.map(lambda record, value: record.at[r].set(value), carry.record, seen),
        )

    def unknown(*shape: int) -> Record:
        nan = jnp.full(shape, jnp.nan)
        return Record(nan, None if held_out is None else nan, nan if with_baseline else None)

    start = _Carry(
        begin(learner, strategy, init, agents, mdps, keys),
        scale=jnp.ones(replicates),
        before=jnp.zeros((2, replicates)),
        policy=jnp.full_like(init, jnp.nan),
        seen=unknown(replicates),
        record=unknown(iterations + 1, replicates),
    )
    end = lax.fori_loop(0, rounds + 1, one_round, start)
    table = mean_over_agents(end.at.table, agents)
    return Trained(table, learner.policy(table), *end.record)
