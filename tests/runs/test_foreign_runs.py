"""What a run directory that somebody else has made can do: be read, and nothing else."""

import os
import shutil
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

import fedrl
from fedrl import FedrlError, registry
from fedrl.cli.main import main
from fedrl.errors import CodeNotAllowedError
from fedrl.experiment.settings import from_toml, read_experiment
from fedrl.experiment.toml import to_toml
from fedrl.files import locked
from fedrl.runs import driver
from fedrl.runs.pieces import Pieces
from fedrl.runs.run_directory import RunDirectory
from fedrl.training import resume
from tiny import LEARNER, TINY, Died, DiesAfter, contents

pytestmark = pytest.mark.usefixtures("kept", "hasty")

PRECIOUS = "years of work"


@pytest.fixture(scope="module")
def finished(kept, hasty, tmp_path_factory):
    return fedrl.train(TINY, out=tmp_path_factory.mktemp("runs"), progress=False).path


@pytest.fixture(scope="module")
def begun(kept, hasty, tmp_path_factory):
    directory = RunDirectory.create(tmp_path_factory.mktemp("runs"), TINY)
    with pytest.raises(Died):
        driver.carry_out(directory, DiesAfter(5))
    return directory.path


@pytest.fixture
def home(tmp_path):
    """What is none of a run's business."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("thesis.tex", "report.csv", "00000000.npz"):
        (folder / name).write_text(PRECIOUS)
    return folder


def planted(path, name, target):
    """Put a link in the place of something."""
    place = path / name
    place.parent.mkdir(exist_ok=True, parents=True)
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(target)


LINKS = {
    ".lock": "thesis.tex",
    "metrics.csv": "thesis.tex",
    "seconds.txt": "thesis.tex",
    "figures/report.csv": "report.csv",
    "figures": ".",
    "checkpoints": ".",
    "trackers": ".",
    "trackers/tensorboard": ".",
    "trackers/wandb/wandb": ".",
    "trackers/debug.log": "thesis.tex",
    "adapted": ".",
    "gone": "there/is/nothing",
}


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("command", ["resume", "report"])
def test_a_link_out_of_a_run_is_refused_and_its_target_stays_as_it_is(
    name, command, finished, begun, home, tmp_path, capsys
):
    given = begun if command == "resume" else finished
    path = Path(shutil.copytree(given, tmp_path / given.name))
    planted(path, name, home / LINKS[name])
    before = contents(home)
    assert main([command, str(path)]) == 2
    assert f"{path / name} is a link that leads out of {path}" in capsys.readouterr().err
    assert contents(home) == before
    assert {file.read_text() for file in home.iterdir()} == {PRECIOUS}


def test_a_lock_is_never_written_through_a_link(tmp_path, home):
    (tmp_path / ".lock").symlink_to(home / "thesis.tex")
    with pytest.raises(FedrlError, match=r"\.lock is a link: remove it"), locked(tmp_path):
        pass
    assert (home / "thesis.tex").read_text() == PRECIOUS


@pytest.mark.parametrize("name", ["models.npz", "metrics.csv", "figures/report.csv"])
def test_a_pipe_is_refused_instead_of_waited_for(name, finished, tmp_path):
    path = Path(shutil.copytree(finished, tmp_path / finished.name))
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).unlink(missing_ok=True)
    os.mkfifo(path / name)
    with pytest.raises(FedrlError, match="is neither a file nor a folder"):
        fedrl.Run(path)


def test_links_that_trackers_make_are_no_reason_to_refuse(finished, tmp_path, home):
    """Weights & Biases links its newest run, and a log outside of the run's folder."""
    path = Path(shutil.copytree(finished, tmp_path / finished.name))
    logs = path / "trackers/wandb/offline-run-1/logs"
    logs.mkdir(parents=True)
    (path / "trackers/wandb/latest-run").symlink_to("offline-run-1")
    (logs / "debug-core.log").symlink_to(home / "core.log")
    assert fedrl.Run(path).finished


def test_a_link_out_of_a_folder_of_results_is_refused(tmp_path, home):
    settings = {"seeds": 3}
    Pieces.open(tmp_path / "table", settings)
    (tmp_path / "table/pieces").symlink_to(home)
    with pytest.raises(FedrlError, match="pieces is a link that leads out of"):
        Pieces.open(tmp_path / "table", settings)


CODE = """
from pathlib import Path
from dataclasses import dataclass

import fedrl
from fedrl.families import CartPoles

Path("imported").write_text("anything could have happened")


@dataclass(frozen=True)
class Carts(CartPoles):
    pass


@dataclass(frozen=True)
class Learns(fedrl.learners.DQN):
    pass


@dataclass(frozen=True)
class Averages(fedrl.strategies.Mean):
    pass
"""


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    """A folder with a finished run, its settings, and a module that they name."""
    (tmp_path / "carts.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    registry.permit("carts:Carts")
    run = fedrl.train(learning_with_theirs(), progress=False)
    (tmp_path / "their.toml").write_text(to_toml(run.experiment))
    (tmp_path / "imported").unlink()
    forget(tmp_path)
    yield run.path
    sys.modules.pop("carts", None)


def learning_with_theirs():
    from carts import Learns

    settings = {field.name: getattr(LEARNER, field.name) for field in fields(LEARNER)}
    return replace(TINY, learner=Learns(**settings))


def forget(folder):
    """As another process would begin."""
    sys.modules.pop("carts", None)
    registry._ALLOWED.clear()
    if str(folder) in sys.path:
        sys.path.remove(str(folder))


COMMANDS = {
    "report": ["report", "{run}"],
    "report of two": ["report", "{run}", "{run}"],
    "resume": ["resume", "{run}"],
    "evaluate": ["evaluate", "{run}", "--theta", "1", "--episodes", "1"],
    "run": ["run", "their.toml", "--out", "elsewhere"],
    "dry run": ["run", "their.toml", "--dry-run"],
    "track": ["track", "{run}", "--to", "tensorboard"],
    "export": ["export", "{run}", "--out", "policy.onnx"],
    "adapt": ["adapt", "{run}", "--method", "phi-update", "--theta", "1"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_imports_what_a_file_names_unless_it_is_allowed(name, theirs, capsys):
    command = [part.replace("{run}", str(theirs)) for part in COMMANDS[name]]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "would import the Python module 'carts' (for 'carts:Learns')" in said
    assert f"`fedrl {' '.join(command)} --allow-code`" in said
    assert not Path("imported").exists()


@pytest.mark.parametrize("name", ["report", "evaluate", "dry run"])
def test_the_command_that_the_message_names_works(name, theirs, capsys):
    command = [part.replace("{run}", str(theirs)) for part in COMMANDS[name]]
    assert main([*command, "--allow-code"]) == 0
    assert Path("imported").exists()


@pytest.mark.parametrize("table", ["family", "learner", "aggregator"])
def test_settings_of_every_kind_need_permission(table, theirs):
    kind = {"family": "Carts", "learner": "Learns", "aggregator": "Averages"}[table]
    settings = {
        "family": "cartpoles",
        "learner": "dqn",
        "aggregator": "mean",
        table: f"carts:{kind}",
    }
    text = 'name = "x"\n' + "".join(f'[{name}]\nkind = "{x}"\n' for name, x in settings.items())
    with pytest.raises(CodeNotAllowedError, match=f"'carts:{kind}'"):
        from_toml(text)
    assert not Path("imported").exists()
    registry.permit("carts:Carts")  # puts the folder where Python looks
    assert type(getattr(from_toml(text, allow_code=True), table)).__name__ == kind


def test_a_gymnasium_environment_of_a_file_is_made_with_permission_only(theirs):
    text = (
        'name = "x"\n[family]\nkind = "gymnasium"\nenvironment = "carts:make"\ntime_limit = 5\n'
        'vary = [["x", 0, 1]]\n[learner]\nkind = "dqn"'
    )
    with pytest.raises(CodeNotAllowedError, match="'carts:make'"):
        from_toml(text).family.observation_size  # noqa: B018
    assert not Path("imported").exists()


def test_in_python_permission_is_an_argument(theirs):
    for refused in (fedrl.Run, resume, lambda path: read_experiment(path / "experiment.toml")):
        with pytest.raises(CodeNotAllowedError, match="allow_code=True"):
            refused(theirs)
    assert not Path("imported").exists()
    registry.permit("carts:Carts")
    run = fedrl.Run(theirs, allow_code=True)
    assert type(run.experiment.learner).__name__ == "Learns"


def test_what_a_program_has_imported_itself_needs_no_permission(theirs):
    registry.permit("carts:Carts")
    imported = learning_with_theirs()
    assert fedrl.Run(theirs).experiment == imported


def test_files_beside_a_run_do_not_take_the_place_of_installed_modules(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    registry.load("families", "cartpoles")
    assert str(tmp_path) not in sys.path
    registry.permit("nowhere:Carts")  # as a word on the command line
    assert sys.path[-1] == str(tmp_path)


def test_names_out_of_a_file_send_no_commands_to_the_terminal(tmp_path, capsys):
    file = tmp_path / "x.toml"
    file.write_text('"\\u001b[2J\\u0007" = 1\nname = "x"\n')
    assert main(["run", str(file)]) == 2
    error = capsys.readouterr().err
    assert "\x1b" not in error
    assert r"\x1b[2J\x07" in error
