"""What one agent does between two communications."""

from fedrl.learners.ddpg import DDPG
from fedrl.learners.dqn import DQN
from fedrl.learners.learner import Correct, Learned, Learner
from fedrl.learners.networks import MLP
from fedrl.learners.personalisation import ADAM, Personal, through_the_eyes_of
from fedrl.learners.ppo import PPO
from fedrl.learners.replay import Memory, Transition

__all__ = [
    "ADAM",
    "DDPG",
    "DQN",
    "MLP",
    "PPO",
    "Correct",
    "Learned",
    "Learner",
    "Memory",
    "Personal",
    "Transition",
    "through_the_eyes_of",
]
