"""Trackers by name. Their packages are extras, and are imported when somebody wants them."""

from collections.abc import Iterable
from importlib import import_module

from fedrl.errors import FedrlError, unknown_name
from fedrl.trackers.tracker import Tracker

# Each has a module of ours, with a class, and an extra of its name.
TRACKERS = {
    "tensorboard": ("tensorboard_tracker", "TensorBoardTracker"),
    "wandb": ("wandb_tracker", "WandbTracker"),
    "mlflow": ("mlflow_tracker", "MlflowTracker"),
}


def trackers_named(names: str | Iterable[str]) -> dict[str, Tracker]:
    """The trackers of these names; an error, before any work, if one cannot be used here."""
    wanted = [names] if isinstance(names, str) else names
    return {name: _tracker(name) for name in wanted}


def _tracker(name: str) -> Tracker:
    if name not in TRACKERS:
        raise unknown_name("tracker", name, TRACKERS)
    module, kind = TRACKERS[name]
    try:
        found = import_module(f"fedrl.trackers.{module}")
    except ImportError as error:
        raise FedrlError(
            f"tracking with {name} needs a package that is missing ({error}): "
            f"pip install 'fedrl[{name}]'"
        ) from None
    tracker: Tracker = getattr(found, kind)()
    return tracker
