"""What trackers are told of an evaluation, against pandas."""

from itertools import product
from math import inf, isnan

import pytest

from fedrl.runs.metrics import HEADER
from fedrl.runs.summary import evaluations
from tracked import recorded

PLACES = [("train", 0), ("train", 1), ("train", 2), ("held-out", 0), ("held-out", 1)]


def rows(rng, seeds, models, updates=(0, 20), own_only=False):
    """Lines of metrics with a value of its own for each place."""
    lines = []
    for step, seed in product(updates, range(seeds)):
        start = f"{seed},{step // 10},{step}"
        for model, (split, place), metric in product(
            models, PLACES, ("return", "discounted_return")
        ):
            if not own_only or (split, str(place)) == ("train", model):
                lines.append(f"{start},{model},{place},1.5,{split},{metric},{rng.normal():.9g}")
        for agent in range(3) if step else ():
            lines.append(f"{start},{agent},{agent},1.5,learning,loss,{rng.normal():.9g}")
    return "\n".join(lines) + "\n"


ALL = ("average", "0", "1", "2")


@pytest.mark.parametrize(
    ("seeds", "models", "own_only", "splits"),
    [
        (4, ("average",), False, {"train", "held-out", "own"}),
        (4, ALL, False, {"train", "held-out", "own", "agents-train", "agents-held-out"}),
        (2, ALL[1:], True, {"own", "agents-train"}),
        (1, ALL, False, {"train", "held-out", "own", "agents-train", "agents-held-out"}),
    ],
    ids=["one model", "their own too", "only where they learn", "one seed"],
)
def test_means_and_standard_errors_are_those_of_pandas(
    seeds, models, own_only, splits, rng, tmp_path
):
    text = rows(rng, seeds, models, own_only=own_only)
    (tmp_path / "metrics.csv").write_text(HEADER + text)
    expected = recorded(tmp_path)
    found = dict(evaluations(text))
    assert list(found) == [0, 20]
    places = {(name, step): x for step, values in found.items() for name, x in values.items()}
    assert places == pytest.approx(expected)
    returns = {name: x for name, x in found[20].items() if name.endswith("/return")}
    assert {name.split("/")[0] for name in returns} == splits
    assert any(name.endswith("_stderr") for name in found[20]) == (seeds > 1)


def test_a_training_that_has_diverged_is_told_as_it_is():
    text = "".join(f"{s},1,20,0,0,1.5,learning,loss,{x}\n" for s, x in enumerate((1, "inf")))
    ((_, values),) = evaluations(text)
    assert values["learning/loss"] == inf
    assert isnan(values["learning/loss_stderr"])


def test_nothing_recorded_is_nothing_told():
    assert list(evaluations("")) == []
