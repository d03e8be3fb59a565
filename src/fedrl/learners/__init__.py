"""What one agent does between two communications."""

from fedrl.learners.ddpg import DDPG
from fedrl.learners.dqn import DQN
from fedrl.learners.learner import Learned, Learner
from fedrl.learners.memory import Memory
from fedrl.learners.networks import MLP
from fedrl.learners.personalisation import Personal, through_the_eyes_of
from fedrl.learners.ppo import PPO
from fedrl.learners.replay import Transition

__all__ = [
    "DDPG",
    "DQN",
    "MLP",
    "PPO",
    "Learned",
    "Learner",
    "Memory",
    "Personal",
    "Transition",
    "through_the_eyes_of",
]
