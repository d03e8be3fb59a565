"""Trackers by name. Their packages are extras, and are imported when somebody wants them."""

from collections.abc import Iterable
from importlib import import_module

from fedrl.errors import FedrlError, unknown_name
from fedrl.trackers.tracker import Tracker

# The class of each, in a module of ours; an extra has its name, too.
TRACKERS = {
    "tensorboard": "TensorBoardTracker",
    "wandb": "WandbTracker",
    "mlflow": "MlflowTracker",
}


def trackers_named(names: str | Iterable[str]) -> dict[str, Tracker]:
    """The trackers of these names; an error, before any work, if one cannot be used here."""
    found = {}
    for name in [names] if isinstance(names, str) else names:
        if name not in TRACKERS:
            raise unknown_name("tracker", name, TRACKERS)
        try:
            module = import_module(f"fedrl.trackers.{name}_tracker")
        except ImportError as error:
            raise FedrlError(
                f"tracking with {name} needs a package that is missing ({error}): "
                f"pip install 'fedrl[{name}]'"
            ) from None
        found[name] = getattr(module, TRACKERS[name])()
    return found
