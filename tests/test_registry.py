"""Things by name: ours, another package's, and what Python can import."""

import re
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

import fedrl
from doc_blocks import ROOT, blocks
from fedrl import catalogue, registry
from fedrl.cli.main import main
from fedrl.errors import FedrlError
from fedrl.experiment.presets import PRESETS, preset
from fedrl.experiment.settings import from_toml
from fedrl.experiment.toml import to_toml
from fedrl.families import CartPoles
from fedrl.papers.jin2022.cells import TARGETS
from fedrl.tabular import ALGORITHMS
from fedrl.tabular.experiment import TABULAR_PRESETS
from fedrl.tabular.families import FAMILIES
from tiny import TINY

OURS = {
    **catalogue.FAMILIES,
    **catalogue.LEARNERS,
    **catalogue.CORRECTIONS,
    **catalogue.AGGREGATORS,
    **catalogue.SERVER_OPTIMIZERS,
    **catalogue.TABULAR_FAMILIES,
    **catalogue.TABULAR_ALGORITHMS,
}


@pytest.mark.parametrize("name", OURS)
def test_the_catalogue_says_where_a_class_is_and_its_first_line(name):
    kind = registry.imported(OURS[name])
    assert kind.name == name
    assert catalogue.first_line(OURS[name]) == kind.__doc__.partition("\n")[0]


def test_the_catalogue_is_complete():
    assert list(catalogue.PRESETS) == list(PRESETS)
    assert list(catalogue.TABULAR_PRESETS) == list(TABULAR_PRESETS)
    assert list(catalogue.TABULAR_FAMILIES) == list(FAMILIES)
    assert list(catalogue.TABULAR_ALGORITHMS) == list(ALGORITHMS)
    assert list(catalogue.TARGETS) == [*TARGETS, "claims"]


@pytest.mark.parametrize("arguments", [["list"], ["--help"], ["run", "--help"], ["--version"]])
def test_names_and_help_need_no_jax(arguments):
    program = f"""
import sys
from fedrl.cli.main import main
try:
    main({arguments!r})
except SystemExit:
    pass
print([name for name in ("jax", "pandas", "matplotlib", "scipy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@dataclass(frozen=True)
class LongPoles(CartPoles):
    """Poles longer than ours."""

    length: tuple[float, float] = (2.0, 3.0)
    name: ClassVar[str] = "longpoles"


def test_a_class_that_nobody_registered_is_found_by_its_path():
    experiment = replace(TINY, family=LongPoles(time_limit=20))
    text = to_toml(experiment)
    assert f'kind = "{__name__}:LongPoles"' in text
    assert from_toml(text) == experiment


def test_a_class_with_one_of_our_names_is_not_taken_for_ours():
    @dataclass(frozen=True)
    class Impostor(CartPoles):
        """Has the name of its parent."""

    assert registry.name_of("families", CartPoles) == "cartpoles"
    assert registry.name_of("families", Impostor).endswith("Impostor")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("nowhere_at_all:X", "cannot load family 'nowhere_at_all:X'.*run from its folder"),
        ("fedrl.families:Carts", "AttributeError.*Carts"),
        ("fedrl:preset", "'fedrl:preset' is no dataclass of ControlFamily"),
        ("__main__:Mine", "put it into a module of its own"),
        ("cartpole", "unknown family 'cartpole': did you mean 'cartpoles'"),
    ],
)
def test_what_cannot_be_loaded_is_explained(kind, message):
    with pytest.raises(FedrlError, match=message):
        from_toml(
            f'name = "x"\n[family]\nkind = "{kind}"\n[learner]\nkind = "dqn"', allow_code=True
        )


def register(folder, package, groups):
    """Leave what an installer leaves of a package's entry points."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = (
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    )
    (info / "entry_points.txt").write_text("\n".join(lines))
    registry.entries.cache_clear()


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The package that docs/extending.md describes, as an installer would leave it."""
    import tomllib

    for block in blocks(ROOT / "docs" / "extending.md"):
        if block.file:
            (tmp_path / block.file).write_text(block.text)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    monkeypatch.syspath_prepend(tmp_path)
    register(tmp_path, "sledding", project["entry-points"])
    yield tmp_path
    registry.entries.cache_clear()
    for name in ("sleds", "soft_q", "geometric", "sleds_presets"):
        sys.modules.pop(name, None)


def test_another_packages_things_are_listed_and_named_like_ours(installed, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    for line in (
        "sleds:Sleds, from sledding",
        "soft_q:SoftQ, from sledding",
        "geometric:GeometricMedian, from sledding",
        "sleds-softqavg",
    ):
        assert line in listed
    experiment = preset("sleds-softqavg")
    text = to_toml(experiment)
    assert 'kind = "sleds"' in text
    assert 'kind = "soft-q"' in text
    assert from_toml(text) == experiment
    chosen = ["--family", "sleds", "--learner", "soft-q", "--aggregator", "geometric-median"]
    command = ["run", "cartpoles-dqnavg", *chosen, "--learner.temperature", "0.2", "--dry-run"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert from_toml(printed).learner.temperature == 0.2
    assert 'kind = "geometric-median"' in printed


def test_another_packages_things_train(installed, kept, hasty):
    from geometric import GeometricMedian
    from sleds import Sleds
    from soft_q import SoftQ

    experiment = replace(
        TINY,
        family=Sleds(time_limit=20),
        learner=SoftQ(hidden=(8,), batch=4, replay=64, learning_starts=8),
        aggregator=GeometricMedian(),
        agents=3,
    )
    run = fedrl.train(experiment, out=installed / "runs", progress=False)
    again = fedrl.Run(run.path)
    assert again.experiment == experiment
    assert again.metrics()["value"].notna().all()


@pytest.mark.parametrize("file", ["sleds.py", "soft_q.py", "geometric.py"])
def test_the_examples_are_short(installed, file):
    assert len((installed / file).read_text().splitlines()) < 60


def test_two_packages_with_one_name_are_told_apart(installed):
    register(installed, "other", {"fedrl.families": {"sleds": "sleds:Varied"}})
    with pytest.raises(FedrlError, match="other and sledding both have a family called 'sleds'"):
        registry.load("families", "sleds")
    from sleds import Sleds

    assert registry.name_of("families", Sleds) == "sleds:Sleds"


def test_a_preset_that_is_none_is_refused(installed):
    register(installed, "other", {"fedrl.presets": {"odd": "sleds:Varied.allowed"}})
    with pytest.raises(FedrlError, match="preset 'odd' is property: it must be an Experiment"):
        preset("odd")


def test_the_geometric_median_of_the_documentation_is_one(installed, rng):
    """Against SciPy: no point has a smaller sum of distances."""
    import jax.numpy as jnp
    import numpy as np
    from geometric import GeometricMedian
    from scipy.optimize import minimize

    points = rng.normal(size=(5, 4))
    stacked = {"a": jnp.asarray(points[:, :1]), "b": jnp.asarray(points[:, 1:])}
    communication = fedrl.strategies.Communication(None, jnp.arange(5), None)
    found = GeometricMedian(iterations=200).apply(stacked, communication)
    point = np.concatenate([found["a"], found["b"]])
    best = minimize(lambda x: np.linalg.norm(points - x, axis=1).sum(), points.mean(0))
    np.testing.assert_allclose(point, best.x, atol=1e-3)


@pytest.mark.parametrize("name", ["dqn", "krum", "cartpoles", "qavg", "fedrl.learners:PPO"])
def test_one_name_shows_every_setting(name, capsys, monkeypatch):
    from dataclasses import fields

    monkeypatch.setenv("COLUMNS", "200")
    assert main(["list", name]) == 0
    printed = capsys.readouterr().out
    kind = registry.imported(OURS.get(name, name))
    for field in fields(kind):
        assert re.search(rf"^{field.name} +\S.*?  +\S", printed, re.M), field.name


@pytest.mark.parametrize("name", ["cartpoles-ppoavg", "windycliffs-qavg"])
def test_the_name_of_a_preset_shows_it_as_a_file(name, capsys):
    assert main(["list", name]) == 0
    assert f'name = "{name}"' in capsys.readouterr().out


def test_an_unknown_name_has_a_suggestion(capsys):
    assert main(["list", "crum"]) == 2
    assert "did you mean 'krum'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--learner"], "--learner needs a name: one of ddpg, dqn, ppo"),
        (["--learner", "dqm"], "did you mean 'dqn'"),
        (["--learner=ddpg"], "cartpoles has discrete actions, which ddpg does not learn"),
        (
            ["--family", "gymnasium"],
            "settings that must be given: give them as --family.SETTING",
        ),
    ],
)
def test_a_kind_that_does_not_fit_is_refused(arguments, message, capsys):
    assert main(["run", "cartpoles-dqnavg", *arguments, "--dry-run"]) == 2
    assert message in capsys.readouterr().err
