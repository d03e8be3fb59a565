"""Strategies, and the kinds of agents that each must work with; they train in a second."""

from dataclasses import replace

from fedrl.experiment.settings import Evaluation
from fedrl.learners import DDPG, PPO
from fedrl.strategies import Adam, ControlVariates, Median, Momentum, Prox, Yogi
from fedrl.tabular.experiment import TabularExperiment
from fedrl.tabular.families import WindyCliffs
from fedrl.tabular.learners import ProjPAvg, QAvg, SoftPAvg
from probes import Pendulum
from tiny import TINY

PARTS = {
    "momentum": {"server_optimizer": Momentum(lr=0.9)},
    "adam": {"server_optimizer": Adam()},
    "yogi": {"server_optimizer": Yogi()},
    "prox": {"correction": Prox(mu=3.0)},
    "control variates by path": {"correction": ControlVariates()},
    "control variates at the model": {"correction": ControlVariates(refresh="model")},
    "both": {"correction": ControlVariates(), "server_optimizer": Momentum()},
    "prox, median, momentum": {
        "correction": Prox(),
        "aggregator": Median(),
        "server_optimizer": Momentum(lr=0.5),
    },
}
FEDAVGM_AND_SCAFFOLD = ("momentum", "control variates by path")
SMALL = replace(TINY, name="small", agents=3, updates=25, seeds=1, evaluation=Evaluation(20, 2))
ACTOR_CRITIC = DDPG(hidden=(8,), action_layer=0, batch=4, replay=64, learning_starts=8)
NETWORKS = {
    "dqn": SMALL,
    "ddpg": replace(SMALL, family=Pendulum(time_limit=20), learner=ACTOR_CRITIC),
    "ppo": replace(SMALL, learner=PPO(rollout=32, batch=8, hidden=(8,)), E=2, updates=5),
}
TABLES = {
    "qavg": TabularExperiment("t", WindyCliffs(), QAvg(), agents=3, E=4, updates=14, lr=0.5),
    "projpavg": TabularExperiment(
        "t", WindyCliffs(), ProjPAvg(), agents=3, E=4, updates=14, lr=0.5
    ),
    "softpavg": TabularExperiment(
        "t", WindyCliffs(), SoftPAvg(), agents=3, E=4, updates=14, lr=1.0
    ),
}
