"""Experiments by name: where to start from."""

from fedrl.errors import unknown_name
from fedrl.experiment.settings import Evaluation, Experiment
from fedrl.families.acrobots import Acrobots
from fedrl.families.cartpoles import CartPoles
from fedrl.federation.local_engine import Survives
from fedrl.learners.dqn import DQN

RELEASED = Survives(replay=False, optimizer=False, target=False)

PRESETS: dict[str, tuple[str, Experiment]] = {
    experiment.name: (what, experiment)
    for what, experiment in (
        (
            "DQNAvg on poles of different lengths",
            Experiment(
                name="cartpoles-dqnavg",
                family=CartPoles(),
                # The replay holds the whole run: with a shorter one agents unlearn what they could.
                learner=DQN(hidden=(128,), batch=16, lr=1e-3, replay=20_000, target_every=100),
                E=500,
                updates=20_000,
            ),
        ),
        (
            "DQNAvg on acrobots of different masses",
            Experiment(
                name="acrobots-dqnavg",
                family=Acrobots(),
                learner=DQN(
                    hidden=(128,),
                    batch=16,
                    lr=1e-3,
                    replay=30_000,
                    target_every=100,
                    epsilon_decay=0.999,
                ),
                E=500,
                updates=30_000,
            ),
        ),
        (
            "CartPoles with the settings of the paper's released experiments",
            Experiment(
                name="cartpoles-dqnavg-released",
                family=CartPoles(),
                learner=DQN(
                    hidden=(128,),
                    batch=16,
                    lr=1e-3,
                    gamma=0.9,
                    replay=1000,
                    learning_starts=32,
                    epsilon_end=0.0,
                ),
                E=12,
                unit="episodes",
                updates=480,
                survives=RELEASED,
                initialisation="per-agent",
                evaluation=Evaluation(every=12),
            ),
        ),
        (
            "Acrobots with the settings of the paper's released experiments",
            Experiment(
                name="acrobots-dqnavg-released",
                family=Acrobots(time_limit=1000),
                learner=DQN(
                    hidden=(128,),
                    batch=16,
                    lr=1e-4,
                    gamma=0.9,
                    replay=1000,
                    learning_starts=32,
                    epsilon_end=0.0,
                ),
                E=1,
                unit="episodes",
                updates=100,
                survives=RELEASED,
                initialisation="per-agent",
                evaluation=Evaluation(every=5),
            ),
        ),
    )
}
"""(what it is, the experiment), by name."""


def preset(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    return PRESETS[name][1]
