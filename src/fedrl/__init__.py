"""Federated reinforcement learning across environments that differ.

>>> import fedrl
>>> task = fedrl.families.WindyCliffs().task(agents=5, seeds=8)
>>> problem = dict(P=task.P, R=task.R, gamma=task.gamma, d0=task.d0)
>>> result = fedrl.tabular.run("qavg", **problem, E=4, iterations=640, lr=1e-3, decay=0.1)
>>> result.objective.shape
(8, 161)
"""

from importlib import import_module
from types import ModuleType

__version__ = "0.1.0"
__all__ = ["FedrlError", "__version__", "families", "tabular", "theory"]

from fedrl.errors import FedrlError


def __getattr__(name: str) -> ModuleType:
    # JAX takes most of a second to import: pay for it on first use, not on `import fedrl`.
    if name in ("families", "tabular", "theory"):
        return import_module(f"fedrl.{name}")
    raise AttributeError(f"module 'fedrl' has no attribute {name!r}")
