"""A finished run is read without the module of its environments."""

import importlib
import json
import shutil
import sys

import numpy as np
import pytest

import fedrl
from fedrl import Experiment, FedrlError, Run
from fedrl.errors import CodeNotAllowedError
from fedrl.experiment.settings import Evaluation
from fedrl.experiment.toml import to_toml
from fedrl.families import ControlFamily, gymnasium
from fedrl.families.control_family import ShapedFamily
from fedrl.families.gymnasium_host import hall
from fedrl.families.gymnasium_making import shape_of
from fedrl.learners import DDPG, DQN
from fedrl.runs.export import export
from fedrl.runs.run_directory import ABOUT, ENVIRONMENTS
from fedrl.runs.stored import StoredFamily

pytestmark = pytest.mark.usefixtures("hasty")
DISCRETE = DQN(hidden=(8,), batch=4, replay=64, learning_starts=8)
CONTINUOUS = DDPG(hidden=(8,), action_layer=0, batch=4, replay=64, learning_starts=8)

ENVIRONMENT = """
from gymnasium_worlds import Line, steered

def line(theta):
    return Line(theta, cut=5)
"""
FAMILY = """
from dataclasses import dataclass
from probes import Choice

@dataclass(frozen=True)
class Strange(Choice):
    time_limit: int = 9
"""


class Module:
    """A module that only this machine has, until it is gone."""

    def __init__(self, folder, text):
        self.folder, self.file = folder, folder / "only_here.py"
        self.file.write_text(text)
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()

    def vanish(self):
        self.file.unlink(missing_ok=True)
        shutil.rmtree(self.folder / "__pycache__", ignore_errors=True)
        importlib.invalidate_caches()
        sys.modules.pop("only_here", None)
        shape_of.cache_clear()
        hall.cache_clear()


@pytest.fixture
def module(tmp_path):
    made = []

    def make(text):
        made.append(Module(tmp_path, text))
        return made[0]

    yield make
    for one in made:
        one.vanish()
        sys.path.remove(str(one.folder))


def trained(family, tmp_path, learner):
    experiment = Experiment(
        name="elsewhere",
        family=family,
        learner=learner,
        agents=2,
        held_out=1,
        E=10,
        updates=20,
        evaluation=Evaluation(every=10, episodes=1),
        seeds=1,
    )
    return fedrl.train(experiment, out=tmp_path / "runs", progress=False)


def told_by(run, tmp_path, name):
    """All that is in the folder, as it is told."""
    fedrl.compare(run, out=tmp_path / name, html=tmp_path / f"{name}.html")
    policy = run.policy()
    seen = np.random.default_rng(0).normal(size=(5, run.experiment.family.observation_size))
    exported = export(run, tmp_path / f"{name}.onnx").read_bytes()
    return (
        run.metrics().to_csv(),
        (tmp_path / f"{name}.html").read_bytes(),
        policy(seen).tolist(),
        exported,
        to_toml(run.experiment),
        run.experiment.digest,
    )


@pytest.mark.parametrize(("environment", "learner"), [("line", DISCRETE), ("steered", CONTINUOUS)])
def test_a_finished_run_of_gymnasium_environments_is_read_without_their_module(
    tmp_path, module, environment, learner
):
    gone = module(ENVIRONMENT)
    vary = {"theta": (1.0, 2.0)}
    family = gymnasium(f"only_here:{environment}", vary=vary, time_limit=6)
    run = trained(family, tmp_path, learner)
    before = told_by(run, tmp_path, "before")
    gone.vanish()
    again = Run(run.path)
    assert told_by(again, tmp_path, "after") == before
    assert again.experiment == run.experiment
    assert "only_here" not in sys.modules
    with pytest.raises(CodeNotAllowedError, match="would import the Python module 'only_here'"):
        again.evaluate([1.5])
    with pytest.raises(FedrlError, match=r"only_here.*Python must find the module"):
        Run(run.path, allow_code=True).evaluate([1.5])


def test_a_finished_run_of_a_family_of_another_module_is_read_without_it(tmp_path, module):
    gone = module(FAMILY)
    family = importlib.import_module("only_here").Strange()
    run = trained(family, tmp_path, DISCRETE)
    before = told_by(run, tmp_path, "before")
    gone.vanish()
    again = Run(run.path)
    assert told_by(again, tmp_path, "after") == before
    assert "only_here" not in sys.modules
    with pytest.raises(CodeNotAllowedError, match="would import the Python module 'only_here'"):
        again.evaluate([[0.5]])
    with pytest.raises(FedrlError, match=r"only_here.*Python must find the module"):
        Run(run.path, allow_code=True).evaluate([[0.5]])


def test_a_family_of_another_module_is_loaded_when_it_is_needed(tmp_path, module):
    here = module(FAMILY)
    run = trained(importlib.import_module("only_here").Strange(), tmp_path, DISCRETE)
    returns = run.evaluate([[0.5], [1.0]], episodes=2)
    del here
    sys.modules.pop("only_here")
    again = Run(run.path, allow_code=True)
    assert isinstance(again.experiment.family, StoredFamily)
    assert "only_here" not in sys.modules
    np.testing.assert_array_equal(
        again.evaluate([[0.5], [1.0]], episodes=2).undiscounted, returns.undiscounted
    )
    assert "only_here" in sys.modules


def test_a_stored_family_leaves_nothing_to_the_base_class_that_its_own_class_may_define():
    inherited = {
        "translated",  # follows from what is stored
        "remembered",
        "settle_range",  # of constructors
        "registered_in",
    }
    public = {name for name in vars(ControlFamily) if not name.startswith("_")}
    assert public - set(vars(StoredFamily)) - set(vars(ShapedFamily)) == inherited


@pytest.mark.parametrize("damage", [None, "nonsense", {"observation_size": "two"}])
def test_a_folder_without_a_description_asks_the_module(tmp_path, module, damage):
    gone = module(ENVIRONMENT)
    family = gymnasium("only_here:line", vary={"theta": (1.0, 2.0)}, time_limit=6)
    run = trained(family, tmp_path, DISCRETE)
    about = json.loads((run.path / ABOUT).read_text())
    (run.path / ABOUT).write_text(json.dumps(about | {ENVIRONMENTS: damage}))
    assert Run(run.path).experiment == run.experiment
    gone.vanish()
    with pytest.raises(FedrlError, match="Python must find the module"):
        Run(run.path, allow_code=True)
