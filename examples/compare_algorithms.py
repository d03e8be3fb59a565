"""Every algorithm on one family: drones, steered by DQN, DDPG and PPO.

    python examples/compare_algorithms.py           # 12 runs: a quarter of an hour on 2 cores
    python examples/compare_algorithms.py --quick   # to see what comes out

Each learner has about as many steps in its environment; what an update is differs, so that each
is compared within its own figure, and all at the end in one table.
"""

import sys
from dataclasses import replace

import pandas as pd

import fedrl
from drones import Drones
from fedrl.learners import DDPG, DQN, PPO, Personal

STEPS = 30_000
EMBEDDING = Personal(embedding=2, embedding_lr=1e-2)
LEARNERS = {
    # learner, environment steps for each update, updates between two communications
    "dqn": (DQN(hidden=(64, 64), batch=32, lr=1e-3, replay=50_000, target_every=200), 1, 500),
    "ddpg": (DDPG(hidden=(64, 64), batch=32), 1, 500),
    "ppo": (PPO(actions="continuous", rollout=512, epochs=8, lr=1e-3), 512, 2),
}


def experiments(name: str, quick: bool) -> list[fedrl.Experiment]:
    """A learner with one policy for all, alone, personalised, and robust against one bad agent."""
    learner, steps, E = LEARNERS[name]
    updates = 2 * E if quick else STEPS // steps // E * E
    plain = fedrl.Experiment(
        name=f"drones-{name}avg",
        family=Drones(controls="discrete" if name == "dqn" else "continuous"),
        learner=learner,
        agents=6,
        held_out=10,
        E=E,
        updates=updates,
        evaluation=fedrl.Evaluation(every=max(updates // 10, 1), episodes=2),
        seeds=1 if quick else 4,
    )
    personal = replace(learner, personal=EMBEDDING)
    return [
        plain,
        plain.without_communication(),
        replace(plain, name=f"drones-per{name}avg", learner=personal),
        replace(plain, name=f"drones-{name}median", aggregator=fedrl.strategies.Median()),
    ]


def main(quick: bool) -> None:
    """A figure for each learner, and one table."""
    ends = {}
    for name in LEARNERS:
        runs = [fedrl.train(one) for one in experiments(name, quick)]
        ends[name] = fedrl.compare(*runs, html=f"drones-{name}.html")
    print(pd.concat(ends).to_string())


if __name__ == "__main__":
    main("--quick" in sys.argv)
