"""What the documentation says that a command answers, it answers.

In a block of output that begins with `$ fedrl`, `...` stands for what is left out, and lines may be
broken anywhere.
"""

import re
import shlex
from pathlib import Path

import pytest

from fedrl.cli.main import main

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```text\n\$ fedrl (?P<command>[^\n]*)\n(?P<printed>.*?)^```$", re.S | re.M)
SAID = [
    pytest.param(found["command"], found["printed"], id=f"{page.stem}: {found['command']}")
    for page in sorted(DOCS.glob("*.md"))
    for found in BLOCK.finditer(page.read_text())
]


def words(text):
    """Without the breaks of lines, and the frames that tyro draws."""
    return " ".join(re.sub("[│─╭╮╰╯]", " ", text).split())


@pytest.mark.parametrize(("command", "printed"), SAID)
def test_a_message_is_what_the_page_says(command, printed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        main(shlex.split(command))
    except SystemExit as stopped:  # tyro's
        assert stopped.code == 2  # noqa: PT017
    pattern = ".*".join(re.escape(words(part)) for part in printed.split("..."))
    assert re.search(pattern, words("".join(capsys.readouterr())))
    assert not list(tmp_path.iterdir())


def test_there_is_something_to_check():
    assert len(SAID) > 3
