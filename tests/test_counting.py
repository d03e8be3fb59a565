"""Numbers of things in words."""

import pytest

from fedrl.counting import count, round_name


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 agents"), (1, "1 agent"), (2, "2 agents"), (2000, "2,000 agents")]
)
def test_one_thing_has_no_plural(number, words):
    assert count(number, "agents") == words


def test_what_follows_the_last_round_is_an_evaluation():
    assert [round_name(number, 12) for number in (1, 12, 13)] == [
        "round 1",
        "round 12",
        "the last evaluation",
    ]
