"""Federated reinforcement learning across environments that differ.

>>> import fedrl
>>> task = fedrl.tabular.WindyCliffs().task(agents=5, seeds=8)
>>> problem = dict(P=task.P, R=task.R, gamma=task.gamma, d0=task.d0)
>>> result = fedrl.tabular.run("qavg", **problem, E=4, iterations=640, lr=1e-3, decay=0.1)
>>> result.objective.shape
(8, 161)
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = [
    "Evaluation",
    "Experiment",
    "FedrlError",
    "Run",
    "__version__",
    "compare",
    "families",
    "learners",
    "preset",
    "strategies",
    "tabular",
    "theory",
    "train",
]

from fedrl.errors import FedrlError

# JAX takes most of a second to import: pay for it on first use, not on `import fedrl`.
_LAZY_MODULES = ("families", "strategies", "learners", "tabular", "theory")
_LAZY_NAMES = {
    "Evaluation": "fedrl.experiment.settings",
    "Experiment": "fedrl.experiment.settings",
    "Run": "fedrl.runs.run",
    "compare": "fedrl.comparing",
    "preset": "fedrl.experiment.presets",
    "train": "fedrl.training",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        return import_module(f"fedrl.{name}")
    if name in _LAZY_NAMES:
        return getattr(import_module(_LAZY_NAMES[name]), name)
    raise AttributeError(f"module 'fedrl' has no attribute {name!r}")
