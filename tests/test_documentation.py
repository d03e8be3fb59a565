"""Every code block of the documentation is carried out, page by page, as its reader would."""

import pytest

from doc_blocks import (
    PAGES,
    TOO_LONG,
    Block,
    blocks,
    carry_out,
    check_arguments,
    check_fragment,
    commands,
)
from fedrl.errors import FedrlError


@pytest.mark.docs
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_what_works(page, tmp_path):
    carry_out(page, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_is_not_run_says_why(page):
    for block in blocks(page):
        if not block.runs:
            assert len(block.mark) > len(TOO_LONG) + 5


def test_a_page_that_is_wrong_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    for language, text, error in (
        ("python", "1 / 0", ZeroDivisionError),
        ("sh", "fedrl list crum", AssertionError),
        ("sh", "true | false", AssertionError),
        ("toml", "[learner]\nkind = 'dqn'\nlt = 1", FedrlError),
        ("toml", "agnts = 1", AssertionError),
        ("rust", "fn main() {}", AssertionError),
    ):
        page.write_text(f"# Title\n\n```{language}\n{text}\n```\n")
        with pytest.raises(error):
            carry_out(page, tmp_path)
        (tmp_path / "examples").unlink()


def test_a_block_that_is_not_run_is_still_read(tmp_path):
    page = tmp_path / "page.md"
    mark = f"<!-- {TOO_LONG}an hour -->\n\n"
    page.write_text(f"{mark}```python\nraise SystemExit\n```\n")
    (block,) = blocks(page)
    assert block == Block("python", "raise SystemExit\n", 3, f"{TOO_LONG}an hour")
    carry_out(page, tmp_path)
    (tmp_path / "examples").unlink()
    page.write_text(f"{mark}```sh\nfedrl run cartpoles-dqnavg --agnts 3\n```\n")
    with pytest.raises(AssertionError, match="agnts"):
        carry_out(page, tmp_path)
    (tmp_path / "examples").unlink()
    page.write_text(f"{mark}```python\n1 +\n```\n")
    with pytest.raises(SyntaxError):
        carry_out(page, tmp_path)


def test_commands_are_lines_without_comments():
    text = "fedrl list   # all\n\n# nothing\nfedrl run x \\\n    --E 3\ntrue | cat  # both\n"
    assert list(commands(text)) == ["fedrl list", "fedrl run x --E 3", "true | cat  # both"]


def test_arguments_and_fragments_that_are_right_pass():
    check_arguments(["report", "runs/NAME-HASH", "--out", "x"], "here")
    check_arguments(["run", "cartpoles-dqnavg", "--agents", "3"], "here")
    check_fragment("[aggregator]\nkind = 'krum'\nbyzantine = 1")
