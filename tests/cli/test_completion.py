"""What bash offers when Tab is pressed."""

import subprocess

import pytest

from fedrl.cli.main import main

ASK = """
source {script}
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_tyro_fedrl
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    from contextlib import redirect_stdout

    path = tmp_path_factory.mktemp("completion") / "fedrl"
    with path.open("w") as file, redirect_stdout(file):
        assert main(["completion", "bash"]) == 0
    return path


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("fedrl resu", {"resume"}),
        ("fedrl run cartpoles-dqnavg --agen", {"--agents"}),
        ("fedrl run cartpoles-dqnavg --learner.targ", {"--learner.target-every"}),
        ("fedrl run cartpoles-dqnavg --tra", {"--track"}),
        ("fedrl run cartpoles-dqnavg --wa", {"--wave"}),
        ("fedrl run cartpoles-dqnavg --host", {"--hosts"}),
        ("fedrl run cartpoles-dqnavg --addr", {"--address"}),
        ("fedrl run cartpoles-dqnavg --base", {"--baseline"}),
        ("fedrl adapt --method e", {"e-update", "en-update"}),
        ("fedrl federation sta", {"status"}),
    ],
)
def test_bash_completes(script, words, offered):
    done = subprocess.run(
        ["bash", "-c", ASK.format(script=script, words=words)], capture_output=True, text=True
    )
    assert set(done.stdout.split()) == offered, done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_have_a_script(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "--method" in script
    assert "--learner.target-every" in script
