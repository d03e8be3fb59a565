"""Experiments by name: where to start from."""

import re
from dataclasses import replace
from math import ceil, log2

from fedrl import registry
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Evaluation, Experiment, Survives
from fedrl.families.acrobots import Acrobots
from fedrl.families.cartpoles import CartPoles
from fedrl.families.robots import HalfCheetahs, Hoppers
from fedrl.learners.ddpg import DDPG
from fedrl.learners.dqn import DQN
from fedrl.learners.personalisation import Personal
from fedrl.learners.ppo import PPO

# The learner of the paper's released experiments, and what ours change of it.
RELEASED_LEARNER = DQN(
    hidden=(128,),
    batch=16,
    lr=1e-3,
    gamma=0.9,
    replay=1000,
    learning_starts=32,
    target_every=10,
    epsilon_end=0.0,
)
LEARNER = replace(
    RELEASED_LEARNER,
    gamma=0.99,
    # The replay holds the whole run: with a shorter one agents unlearn what they could.
    replay=20_000,
    learning_starts=100,
    target_every=100,
    epsilon_end=0.05,
)

CARTPOLES = Experiment(
    name="cartpoles-dqnavg", family=CartPoles(), learner=LEARNER, E=500, updates=20_000
)
ACROBOTS = Experiment(
    name="acrobots-dqnavg",
    family=Acrobots(),
    learner=replace(LEARNER, replay=30_000, epsilon_decay=0.999),
    E=500,
    updates=30_000,
)
CARTPOLES_RELEASED = Experiment(
    name="cartpoles-dqnavg-released",
    family=CartPoles(),
    learner=RELEASED_LEARNER,
    E=12,
    unit="episodes",
    updates=480,
    survives=Survives(replay=False, optimizer=False, target=False),
    initialisation="per-agent",
    evaluation=Evaluation(every=12),
)
ACROBOTS_RELEASED = replace(
    CARTPOLES_RELEASED,
    name="acrobots-dqnavg-released",
    family=Acrobots(time_limit=1000),
    learner=replace(RELEASED_LEARNER, lr=1e-4),
    E=1,
    updates=100,
    evaluation=Evaluation(every=5),
)

# The learner of the paper's released experiments on robots. Ours has small networks, which learn as
# well within these steps and ten times as fast, larger steps, and more communication.
RELEASED_DDPG = DDPG(
    hidden=(400, 300),
    action_layer=1,
    actor_lr=1e-4,
    critic_lr=1e-4,
    batch=64,
    replay=100_000,
    learning_starts=1000,
    tau=1e-3,
    warmup="policy",
    exploration="ou",
    sigma=0.2,
    ou_theta=0.15,
)
HALFCHEETAHS = Experiment(
    name="halfcheetahs-ddpgavg",
    family=HalfCheetahs(),
    learner=DDPG(hidden=(64, 64)),
    E=1000,
    updates=100_000,
    evaluation=Evaluation(every=20_000, episodes=1),
    seeds=5,
)
HOPPERS = replace(HALFCHEETAHS, name="hoppers-ddpgavg", family=Hoppers())
HALFCHEETAHS_RELEASED = replace(
    HALFCHEETAHS,
    name="halfcheetahs-ddpgavg-released",
    family=HalfCheetahs(thighs="together"),
    learner=RELEASED_DDPG,
    E=20_000,
    updates=320_000,
    survives=Survives(replay=False, optimizer=False, target=False),
    initialisation="per-agent",
)
HOPPERS_RELEASED = replace(HALFCHEETAHS_RELEASED, name="hoppers-ddpgavg-released", family=Hoppers())


# PPO learns from its latest steps, so updates are few and long: each goes over a rollout.
PPO_CARTPOLES = replace(
    CARTPOLES,
    name="cartpoles-ppoavg",
    learner=PPO(lr=1e-3),
    E=4,
    updates=80,
    evaluation=Evaluation(every=4),
)
PPO_ACROBOTS = replace(
    PPO_CARTPOLES, name="acrobots-ppoavg", family=Acrobots(), updates=160, evaluation=Evaluation(8)
)
PPO_HALFCHEETAHS = replace(
    HALFCHEETAHS,
    name="halfcheetahs-ppoavg",
    # Without normalised observations it learns nothing of half-cheetahs in this time.
    learner=PPO(
        actions="continuous",
        rollout=1024,
        epochs=10,
        lr=1e-3,
        personal=Personal(normalisation=True),
    ),
    E=2,
    updates=100,
    evaluation=Evaluation(every=20, episodes=1),
)
PPO_HOPPERS = replace(PPO_HALFCHEETAHS, name="hoppers-ppoavg", family=Hoppers())


def personalised(experiment: Experiment, personal: Personal | None = None) -> Experiment:
    """The same with private embeddings, as large as in the released experiments unless given."""
    if personal is None:
        personal = Personal(embedding=max(ceil(log2(experiment.agents)), 1))
    learner = replace(experiment.learner, personal=personal)
    algorithm = f"{type(learner).__name__.lower()}avg"
    name = re.sub(rf"\b{algorithm}\b", f"per{algorithm}", experiment.name)
    return replace(experiment, name=name, learner=learner)


# Half of the carts are wired the other way round: no single policy is good for all. A larger and
# faster embedding finds out which ones in some hundred updates (docs/results.md).
WIRED_CARTPOLES = replace(
    CARTPOLES, name="wiredcartpoles-dqnavg", family=CartPoles(wiring=(-1.0, 1.0)), agents=10
)
WIRED_EMBEDDING = Personal(embedding=8, embedding_lr=1e-2)

PERSONALISED = tuple(
    replace(one, name=f"{one.name}{suffix}")
    for base in (CARTPOLES, ACROBOTS, HALFCHEETAHS, HOPPERS)
    for agents, suffix in ((5, ""), (10, "-10"))
    for one in (personalised(replace(base, agents=agents)),)
)

PRESETS = {
    experiment.name: experiment
    for experiment in (
        CARTPOLES,
        ACROBOTS,
        HALFCHEETAHS,
        HOPPERS,
        PPO_CARTPOLES,
        PPO_ACROBOTS,
        PPO_HALFCHEETAHS,
        PPO_HOPPERS,
        CARTPOLES_RELEASED,
        ACROBOTS_RELEASED,
        HALFCHEETAHS_RELEASED,
        HOPPERS_RELEASED,
        *PERSONALISED,
        WIRED_CARTPOLES,
        personalised(WIRED_CARTPOLES, WIRED_EMBEDDING),
    )
}
"""Ours by name; `fedrl.catalogue` says what they are."""


def preset(name: str) -> Experiment:
    """The experiment of that name, ours or another package's."""
    if name in PRESETS:
        return PRESETS[name]
    found = registry.load("presets", name)
    experiment = found if isinstance(found, Experiment) or not callable(found) else found()
    if not isinstance(experiment, Experiment):
        raise FedrlError(
            f"preset {name!r} is {type(experiment).__name__}: it must be an Experiment, or a "
            "function without arguments that makes one"
        )
    return experiment
