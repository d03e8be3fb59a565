"""What is built is what people install: tried in an environment that has nothing else."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from fedrl import __version__

pytestmark = pytest.mark.dist
ROOT = Path(__file__).parents[1]
SMALL = [
    "--updates",
    "400",
    "--E",
    "100",
    "--seeds",
    "1",
    "--held-out",
    "2",
    "--evaluation.every",
    "200",
]


@pytest.fixture(scope="module")
def wheel():
    found = list((ROOT / "dist").glob("*.whl"))
    assert len(found) == 1, "`make dist` builds it"
    return found[0]


@pytest.fixture(scope="module")
def fedrl(wheel, tmp_path_factory):
    """The command, installed from the wheel; runs in a folder of its own."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", wheel], check=True)
    subprocess.run([*pip, "check"], check=True)
    # Nothing of this environment may help.
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}

    def run(*arguments):
        return subprocess.run(
            [python.parent / "fedrl", *arguments],
            cwd=folder,
            env=clean,
            capture_output=True,
            text=True,
        )

    run.folder, run.python = folder, python
    return run


def test_everything_but_python_caches_is_in_the_wheel(wheel):
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("fedrl/")}
    source = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "fedrl").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == source


def test_the_installed_command_trains_and_reports(fedrl):
    assert fedrl("--version").stdout.strip() == f"fedrl {__version__}"
    assert "cartpoles-dqnavg" in fedrl("list").stdout
    trained = fedrl("run", "cartpoles-dqnavg", *SMALL)
    assert trained.returncode == 0, trained.stderr
    (run,) = (fedrl.folder / "runs").glob("cartpoles-dqnavg-*")
    assert (run / "models.npz").is_file()
    assert (run / "figures" / "report-curves.png").is_file()
    page = fedrl.folder / "page.html"
    reported = fedrl("report", run, "--html", page)
    assert reported.returncode == 0, reported.stderr
    assert "<svg" in page.read_text()


def test_the_published_tables_come_along(fedrl):
    done = fedrl("reproduce", "table2", "--seeds", "8", "--out", "table")
    assert done.returncode in (0, 1), done.stderr  # 8 seeds may be off
    assert (fedrl.folder / "table" / "table2.csv").is_file()


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["run", "hoppers-ddpgavg", "--seeds", "1"], "fedrl[mujoco]"),
        (["federation", "init", "try"], "fedrl[flower]"),
        (["run", "cartpoles-dqnavg", *SMALL, "--track", "tensorboard"], "fedrl[tensorboard]"),
    ],
)
def test_what_an_extra_brings_is_asked_for_by_name(fedrl, arguments, extra):
    done = fedrl(*arguments)
    assert done.returncode == 2
    assert f"pip install '{extra}'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_importing_costs_little_beyond_jax(fedrl):
    """No JAX at all, so certainly no more than it takes."""
    program = "import sys, fedrl; print('jax' in sys.modules)"
    done = subprocess.run([fedrl.python, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "False"
    assert sys.version_info >= (3, 11)
