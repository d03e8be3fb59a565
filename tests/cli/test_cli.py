"""The command as a user meets it."""

import errno
import re
import subprocess
import sys

import pytest

import fedrl
from fedrl.cli.listing import List
from fedrl.cli.main import main


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"fedrl {fedrl.__version__}"


def test_list_names_everything(capsys):
    assert main(["list"]) == 0
    output = capsys.readouterr().out
    for name in (
        "random-mdps",
        "windy-cliffs",
        "qavg",
        "projpavg",
        "softpavg",
        "table1",
        "figure2",
    ):
        assert name in output


def test_help_documents_every_option(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "--help"])
    assert stopped.value.code == 0
    output = capsys.readouterr().out
    for option in (
        "--seeds",
        "--quick",
        "--out",
        "--seed",
        "--piece",
        "table1",
        "table2",
        "figure2",
    ):
        assert option in output


@pytest.mark.parametrize("arguments", [["reproduce", "table9"], ["reproduc"], []])
def test_an_unknown_word_is_an_error_with_the_choices(capsys, arguments):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert re.search("table1|reproduce", capsys.readouterr().err)


def test_bad_input_is_one_line_on_standard_error(capsys, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["reproduce", "table1", "--seeds", "5", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("fedrl: --out")
    assert error.count("\n") == 1


@pytest.mark.parametrize(("agrees", "status"), [(True, 0), (False, 1)])
def test_the_exit_status_says_whether_the_numbers_agree(monkeypatch, agrees, status):
    monkeypatch.setattr("fedrl.papers.jin2022.reproduce.reproduce", lambda *_, **__: agrees)
    assert main(["reproduce", "table1"]) == status


def test_trouble_with_the_disk_is_one_line_and_not_a_finding(monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(28, "No space left on device", "results/table1.csv")

    monkeypatch.setattr("fedrl.papers.jin2022.reproduce.reproduce", full)
    assert main(["reproduce", "table1"]) == 2
    assert capsys.readouterr().err.startswith("fedrl: No space left on device: results/table1.csv")


def test_quick_and_seeds_exclude_each_other(capsys):
    assert main(["reproduce", "table1", "--quick", "--seeds", "5"]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_interrupting_again_while_it_leaves_prints_no_traceback():
    program = """
import os, signal
from fedrl.cli.listing import List
from fedrl.cli.listing import List
from fedrl.cli.main import main

def interrupted(self):
    raise KeyboardInterrupt

List.run = interrupted
status = main(["list"])
os.kill(os.getpid(), signal.SIGINT)
raise SystemExit(status)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 130, done.stderr
    assert "fedrl: interrupted" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_of_the_system_without_a_file_names_none(monkeypatch, capsys):
    def full(self):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(List, "run", full)
    assert main(["list"]) == 2
    error = capsys.readouterr().err
    assert error == "fedrl: No space left on device; nothing saved is lost\n"
