"""What fedrl brings along, by name, and where it is; nothing is imported to show it."""

import ast
from pathlib import Path

FAMILIES = {
    "cartpoles": "fedrl.families.cartpoles:CartPoles",
    "acrobots": "fedrl.families.acrobots:Acrobots",
    "halfcheetahs": "fedrl.families.robots.half_cheetahs:HalfCheetahs",
    "hoppers": "fedrl.families.robots.hoppers:Hoppers",
    "gymnasium": "fedrl.families.gymnasium_family:GymnasiumFamily",
}

LEARNERS = {
    "dqn": "fedrl.learners.dqn:DQN",
    "ddpg": "fedrl.learners.ddpg:DDPG",
    "ppo": "fedrl.learners.ppo:PPO",
}

CORRECTIONS = {
    "none": "fedrl.strategies.corrections:NoCorrection",
    "prox": "fedrl.strategies.corrections:Prox",
    "control-variates": "fedrl.strategies.corrections:ControlVariates",
}

AGGREGATORS = {
    "mean": "fedrl.strategies.aggregators:Mean",
    "median": "fedrl.strategies.robust:Median",
    "trimmed-mean": "fedrl.strategies.robust:TrimmedMean",
    "krum": "fedrl.strategies.robust:Krum",
    "private": "fedrl.strategies.private:Private",
}

SERVER_OPTIMIZERS = {
    "replace": "fedrl.strategies.server_optimizers:Replace",
    "momentum": "fedrl.strategies.server_optimizers:Momentum",
    "adam": "fedrl.strategies.server_optimizers:Adam",
    "yogi": "fedrl.strategies.server_optimizers:Yogi",
}

TABULAR_FAMILIES = {
    "random-mdps": "fedrl.tabular.families.random_mdps:RandomMDPs",
    "windy-cliffs": "fedrl.tabular.families.windy_cliffs:WindyCliffs",
    "start-matters": "fedrl.tabular.families.counterexamples:StartMatters",
    "imaginary-is-better": "fedrl.tabular.families.counterexamples:ImaginaryIsBetter",
    "qavg-trap": "fedrl.tabular.families.counterexamples:QAvgTrap",
    "doors": "fedrl.tabular.families.counterexamples:Doors",
}

TABULAR_ALGORITHMS = {
    "qavg": "fedrl.tabular.learners:QAvg",
    "projpavg": "fedrl.tabular.learners:ProjPAvg",
    "softpavg": "fedrl.tabular.learners:SoftPAvg",
    "sampled-qavg": "fedrl.tabular.learners:SampledQAvg",
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


def first_line(target: str) -> str:
    """What the class `module:Name` of ours says about itself: read, and not imported."""
    module, _, name = target.partition(":")
    source = Path(__file__).parents[1].joinpath(*module.split(".")).with_suffix(".py")
    found = next(
        node
        for node in ast.parse(source.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name == name
    )
    return (ast.get_docstring(found) or "").partition("\n")[0]
