"""What works without MuJoCo, which is an extra, and what is said where it does not."""

import subprocess
import sys

import pytest

NOT_THERE = """
import sys
sys.modules["mujoco"] = None  # importing it is an ImportError
"""
# Another way to be missing: the package is there, and a part of it is not.
NO_MJX = """
import sys
sys.modules["mujoco.mjx"] = None
"""
COMMAND = """
from fedrl.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
MESSAGE = "robots need MuJoCo, which is not installed: pip install 'fedrl[mujoco]'"


def python(program, folder, *arguments):
    """A finished process that ran `program` in an empty folder."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, cwd=folder
    )


def output(program, folder):
    finished = python(program, folder)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_importing_the_families_loads_neither_mujoco_nor_gymnasium(tmp_path):
    program = """
import sys, fedrl, fedrl.families
fedrl.families.HalfCheetahs(), fedrl.families.Hoppers(simulator="mjx")
fedrl.preset("hoppers-ddpgavg")
print([name for name in ("mujoco", "gymnasium") if name in sys.modules])
"""
    assert output(program, tmp_path).strip() == "[]"


def test_families_thetas_and_presets_need_no_mujoco(tmp_path):
    program = """
import fedrl, jax
from fedrl.experiment.toml import to_toml
cheetahs = fedrl.families.HalfCheetahs()
print(cheetahs.sample(jax.random.key(0), 3).shape, cheetahs.check_theta((0.1, 0.2)).shape)
print("hoppers" in to_toml(fedrl.preset("hoppers-ddpgavg")))
print(fedrl.preset("halfcheetahs-ddpgavg").directory_name.startswith("halfcheetahs-ddpgavg"))
import gymnasium
env = gymnasium.make("fedrl.envs:fedrl/CartPole-v0")
print(env.reset(seed=0)[0].shape)
"""
    lines = output(NOT_THERE + program, tmp_path).splitlines()
    assert lines == ["(3, 2) (2,)", "True", "True", "(4,)"]


SAYS_WHY = """
import fedrl, gymnasium
try:
    {}
except fedrl.FedrlError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "use",
    [
        'fedrl.train(fedrl.preset("hoppers-ddpgavg"))',
        'gymnasium.make("fedrl.envs:fedrl/Hopper-v0")',
        'gymnasium.make("fedrl.envs:fedrl/HalfCheetah-v0", theta=(0.15, 0.12))',
    ],
)
def test_using_a_robot_says_what_to_install_and_leaves_nothing_behind(use, tmp_path):
    assert output(NOT_THERE + SAYS_WHY.format(use), tmp_path).strip() == MESSAGE
    assert list(tmp_path.iterdir()) == []


def test_a_missing_mjx_is_noticed_before_anything_is_begun(tmp_path):
    use = """from dataclasses import replace
    hoppers = fedrl.preset("hoppers-ddpgavg")
    fedrl.train(replace(hoppers, family=replace(hoppers.family, simulator="mjx")))"""
    assert output(NO_MJX + SAYS_WHY.format(use), tmp_path).strip() == MESSAGE
    assert list(tmp_path.iterdir()) == []


def test_the_command_lists_and_shows_settings_without_mujoco(tmp_path):
    listed = python(NOT_THERE + COMMAND, tmp_path, "list")
    assert listed.returncode == 0, listed.stderr
    assert "hoppers-ddpgavg" in listed.stdout
    assert "halfcheetahs-ddpgavg" in listed.stdout
    shown = python(NOT_THERE + COMMAND, tmp_path, "run", "hoppers-ddpgavg", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "leg_radius" in shown.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [(), ("--baseline", "--family.simulator", "mjx")], ids=["plain", "mjx"]
)
def test_the_command_says_what_to_install_in_one_line_and_makes_no_run(arguments, tmp_path):
    finished = python(NOT_THERE + COMMAND, tmp_path, "run", "hoppers-ddpgavg", *arguments)
    assert finished.returncode == 2
    assert finished.stderr == f"fedrl: {MESSAGE}\n"
    assert finished.stdout == ""
    assert list(tmp_path.iterdir()) == []
