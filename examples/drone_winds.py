"""Drones in different winds: where one policy cannot be good for all, and what helps.

python examples/drone_winds.py           # 6 drones, 8 repetitions: some minutes
python examples/drone_winds.py --quick   # to see what comes out
"""

import sys
from dataclasses import replace

import fedrl
from drones import Drones
from fedrl.learners import PPO, Personal


def main(quick: bool) -> None:
    """The single policy, agents alone, embeddings; then drones in winds nobody trained in."""
    single = fedrl.Experiment(
        name="drones-ppoavg",
        family=Drones(),
        learner=PPO(actions="continuous", rollout=512, epochs=8, lr=1e-3),
        agents=6,
        held_out=10,
        E=2,
        updates=8 if quick else 120,
        evaluation=fedrl.Evaluation(every=4 if quick else 12, episodes=2),
        seeds=1 if quick else 8,
    )
    embedding = Personal(embedding=2, embedding_lr=1e-2)
    personal = replace(
        single, name="drones-perppoavg", learner=replace(single.learner, personal=embedding)
    )
    runs = [fedrl.train(one) for one in (single, single.without_communication(), personal)]
    fedrl.compare(*runs, html="drones.html")

    new = [[-7.0], [-2.0], [3.0], [7.5]]
    how = {"updates": 4 if quick else 40, "every": 2 if quick else 4}
    adapted = [
        runs[-1].adapt(new, method=m, **how) for m in ("e-update", "en-update", "phi-update")
    ]
    fedrl.compare(*adapted, html="drones-adapted.html")


if __name__ == "__main__":
    main("--quick" in sys.argv)
