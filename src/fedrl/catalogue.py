"""What fedrl brings along, by name. Words only: nothing is imported to show them."""

FAMILIES = {
    "cartpoles": (
        "fedrl.families.cartpoles:CartPoles",
        "A cart that is pushed left (0) or right (1) to keep a pole upright, reward 1 per step.",
    ),
    "acrobots": (
        "fedrl.families.acrobots:Acrobots",
        "Two links on a fixed joint, swung up by a torque of -1, 0 or 1 between them, reward -1.",
    ),
    "halfcheetahs": (
        "fedrl.families.robots.half_cheetahs:HalfCheetahs",
        "A planar robot with two legs that is rewarded for its speed; it cannot end an episode.",
    ),
    "hoppers": (
        "fedrl.families.robots.hoppers:Hoppers",
        "A planar robot with one leg that is rewarded for hopping forward without falling.",
    ),
    "gymnasium": (
        "fedrl.families.gymnasium_family:GymnasiumFamily",
        "Environments that Gymnasium makes, which differ in keywords; stepped on the host.",
    ),
}
"""Simulated families: where each is, and its first line."""

LEARNERS = {
    "dqn": (
        "fedrl.learners.dqn:DQN",
        "Deep Q-learning with experience replay; the server averages Q-networks.",
    ),
    "ddpg": (
        "fedrl.learners.ddpg:DDPG",
        "Deterministic policy gradients with replay; the server averages actors and critics.",
    ),
    "ppo": (
        "fedrl.learners.ppo:PPO",
        "Proximal policy optimisation; the server averages policies and value functions.",
    ),
}

CORRECTIONS = {
    "none": (
        "fedrl.strategies.corrections:NoCorrection",
        "Take every step as the learner proposes it.",
    ),
    "prox": (
        "fedrl.strategies.corrections:Prox",
        "Pull every step towards the model that the server sent (FedProx).",
    ),
    "control-variates": (
        "fedrl.strategies.corrections:ControlVariates",
        "Replace an agent's own drift by the average agent's: d_i - c_i + c (SCAFFOLD).",
    ),
}

AGGREGATORS = {
    "mean": (
        "fedrl.strategies.aggregators:Mean",
        "The average of the agents; the plain one, as in the paper, unless there are weights.",
    ),
    "median": (
        "fedrl.strategies.robust:Median",
        "The median of each parameter; between the good agents' as long as they are the majority.",
    ),
    "trimmed-mean": (
        "fedrl.strategies.robust:TrimmedMean",
        "The average of each parameter without its smallest and largest values.",
    ),
    "krum": (
        "fedrl.strategies.robust:Krum",
        "The agent whose parameters are nearest to its neighbours', or the mean of a few such.",
    ),
    "private": (
        "fedrl.strategies.private:Private",
        "The average of clipped updates, with noise that hides each of them.",
    ),
}

SERVER_OPTIMIZERS = {
    "replace": (
        "fedrl.strategies.server_optimizers:Replace",
        "Take the aggregated offer as the next model, as in the paper.",
    ),
    "momentum": (
        "fedrl.strategies.server_optimizers:Momentum",
        "Keep moving in the direction of earlier rounds (FedAvgM).",
    ),
    "adam": (
        "fedrl.strategies.server_optimizers:Adam",
        "Scale the agents' average change by its size in earlier rounds (FedAdam).",
    ),
    "yogi": (
        "fedrl.strategies.server_optimizers:Yogi",
        "Adam whose scale grows only where changes do (FedYogi).",
    ),
}

TABULAR_FAMILIES = {
    "random-mdps": (
        "fedrl.tabular.families.random_mdps:RandomMDPs",
        "Random sparse transitions; rewards U[0, 1] per state and action.",
    ),
    "windy-cliffs": (
        "fedrl.tabular.families.windy_cliffs:WindyCliffs",
        "A grid with a cliff along the bottom row, between the start (0, 0) and the goal.",
    ),
    "start-matters": (
        "fedrl.tabular.families.counterexamples:StartMatters",
        "Theorem 1: the best policy from s0 is not the best from s1.",
    ),
    "imaginary-is-better": (
        "fedrl.tabular.families.counterexamples:ImaginaryIsBetter",
        "Lemma 1 fails: V in the imaginary environment is above the mean of the real values.",
    ),
    "qavg-trap": (
        "fedrl.tabular.families.counterexamples:QAvgTrap",
        "QAvg prefers the chain that nobody can finish to a safe action worth `safe`.",
    ),
    "doors": (
        "fedrl.tabular.families.counterexamples:Doors",
        "The best policy is stochastic: behind a different door in each environment is a "
        "reward of 1.",
    ),
}

TABULAR_ALGORITHMS = {
    "qavg": (
        "fedrl.tabular.learners:QAvg",
        "Q-learning with known dynamics; the server averages Q tables.",
    ),
    "projpavg": (
        "fedrl.tabular.learners:ProjPAvg",
        "Projected policy gradient in the direct parametrisation; the server averages policies.",
    ),
    "softpavg": (
        "fedrl.tabular.learners:SoftPAvg",
        "Policy gradient in the softmax parametrisation; the server averages logits.",
    ),
    "sampled-qavg": (
        "fedrl.tabular.learners:SampledQAvg",
        "Q-learning from an agent's own transitions; the server averages Q tables.",
    ),
}

_POLES = "poles of different lengths"
_ACROBOTS = "acrobots of different masses"
_CHEETAHS = "half-cheetahs with different thighs"
_HOPPERS = "hoppers with different legs"
_WIRED = "carts of which half are wired the other way round"
_RELEASED = "with the settings of the paper's released experiments"

PRESETS = {
    "cartpoles-dqnavg": f"DQNAvg on {_POLES}",
    "acrobots-dqnavg": f"DQNAvg on {_ACROBOTS}",
    "halfcheetahs-ddpgavg": f"DDPGAvg on {_CHEETAHS}",
    "hoppers-ddpgavg": f"DDPGAvg on {_HOPPERS}",
    "cartpoles-ppoavg": f"PPOAvg on {_POLES}",
    "acrobots-ppoavg": f"PPOAvg on {_ACROBOTS}",
    "halfcheetahs-ppoavg": f"PPOAvg on {_CHEETAHS}, observations normalised by each agent",
    "hoppers-ppoavg": f"PPOAvg on {_HOPPERS}, observations normalised by each agent",
    "cartpoles-dqnavg-released": f"CartPoles {_RELEASED}",
    "acrobots-dqnavg-released": f"Acrobots {_RELEASED}",
    "halfcheetahs-ddpgavg-released": f"HalfCheetahs {_RELEASED}",
    "hoppers-ddpgavg-released": f"Hoppers {_RELEASED}",
    "cartpoles-perdqnavg": f"PerDQNAvg on {_POLES}, 5 private embeddings",
    "cartpoles-perdqnavg-10": f"PerDQNAvg on {_POLES}, 10 private embeddings",
    "acrobots-perdqnavg": f"PerDQNAvg on {_ACROBOTS}, 5 private embeddings",
    "acrobots-perdqnavg-10": f"PerDQNAvg on {_ACROBOTS}, 10 private embeddings",
    "halfcheetahs-perddpgavg": f"PerDDPGAvg on {_CHEETAHS}, 5 private embeddings",
    "halfcheetahs-perddpgavg-10": f"PerDDPGAvg on {_CHEETAHS}, 10 private embeddings",
    "hoppers-perddpgavg": f"PerDDPGAvg on {_HOPPERS}, 5 private embeddings",
    "hoppers-perddpgavg-10": f"PerDDPGAvg on {_HOPPERS}, 10 private embeddings",
    "wiredcartpoles-dqnavg": f"DQNAvg on {_WIRED}",
    "wiredcartpoles-perdqnavg": f"PerDQNAvg on {_WIRED}",
}

TABULAR_PRESETS = {"windycliffs-qavg": "QAvg on windy cliffs, exact tables"}

TARGETS = {
    "table1": "how heterogeneity matters: 30 published cells",
    "table2": "how communication matters: 18 published cells",
    "figure2": "the curves behind 6 of the cells",
    "claims": "the paper's four claims about deep learning, as a scoreboard",
}
