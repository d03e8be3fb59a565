"""Arms, intervals and differences from measurements made by hand."""

import io
from dataclasses import replace
from math import inf, sqrt
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from rich.console import Console

from fedrl import FedrlError
from fedrl.experiment.timing import Timing
from fedrl.families import CartPoles
from fedrl.learners.personalisation import Personal
from fedrl.report.arms import (
    Arm,
    arms_of,
    difference,
    final,
    interval,
    over_training,
    same_draws,
    told_apart,
)
from fedrl.report.run_report import RunReport
from fedrl.runs.metrics import COLUMNS, DISCOUNTED, RETURN
from fedrl.strategies import Adam, ControlVariates, Mean, Median, Momentum, Prox
from tiny import TINY

ALONE = replace(TINY, E=inf)
SEEDS, AGENTS, HELD_OUT, WHEN = 2, 2, 2, (0, 20, 60)


class Measured:
    """What arms_of asks of a run."""

    path = Path("somewhere")

    def __init__(self, experiment, rows):
        self.experiment, self._rows = experiment, rows

    def metrics(self):
        # Not in order: that must not matter.
        return pd.DataFrame(self._rows, columns=COLUMNS).sample(frac=1, random_state=0)


def value(seed, updates, model, split, environment):
    """A number from which its place can be read."""
    place = {"train": 0, "held-out": 5}[split] + environment
    return 1000 * (seed + 1) + updates + 100 * (-1 if model == "average" else int(model)) + place


def measured(experiment, metric=RETURN):
    models = ["average"] if not experiment.has_own_models else ["average", "0", "1"]
    rows = [
        (seed, 0, when, model, j, "1.0", split, metric, value(seed, when, model, split, j))
        for seed in range(SEEDS)
        for when in WHEN
        for model in models
        for split, count in (("train", AGENTS), ("held-out", HELD_OUT))
        for j in range(count)
    ]
    noise = [
        (seed, 0, 20, str(agent), agent, "1.0", "learning", "loss", 1e9)
        for seed in range(SEEDS)
        for agent in range(AGENTS)
    ]
    return Measured(experiment, rows + noise)


def by_hand(split, pairs):
    """Mean over (model, environment), (seeds, evaluations)."""
    return [
        [np.mean([value(seed, when, model, split, j) for model, j in pairs]) for when in WHEN]
        for seed in range(SEEDS)
    ]


def test_a_run_with_communication_is_one_arm():
    (arm,) = arms_of(measured(TINY))
    assert arm.label == "DQNAvg, E = 10"
    assert arm.updates.tolist() == list(WHEN)
    average = [("average", 0), ("average", 1)]
    np.testing.assert_allclose(arm.curves["train"], by_hand("train", average))
    np.testing.assert_allclose(arm.curves["held-out"], by_hand("held-out", average))
    # One model for all: agents' own environments are the training environments.
    np.testing.assert_allclose(arm.curves["own environment"], by_hand("train", average))
    assert final(arm, "train").tolist() == [row[-1] for row in by_hand("train", average)]


def test_a_run_without_communication_is_its_average_and_the_baseline():
    average, baseline = arms_of(measured(ALONE))
    assert (average.label, baseline.label) == ("E = ∞", "Baseline")
    of_average = [("average", 0), ("average", 1)]
    everyone_everywhere = [(model, j) for model in "01" for j in range(2)]
    for split in ("train", "held-out"):
        np.testing.assert_allclose(average.curves[split], by_hand(split, of_average))
        np.testing.assert_allclose(baseline.curves[split], by_hand(split, everyone_everywhere))
    own = by_hand("train", [("0", 0), ("1", 1)])
    np.testing.assert_allclose(baseline.curves["own environment"], own)
    # The diagonal is not the mean of all.
    skewed = measured(ALONE)
    skewed._rows = [(*row[:-1], float(row[3] == str(row[4]))) for row in skewed._rows]
    _, baseline = arms_of(skewed)
    assert (baseline.curves["own environment"] == 1).all()
    assert (baseline.curves["train"] == 0.5).all()


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"correction": Prox(mu=0.5)}, ", prox"),
        ({"aggregator": Median()}, ", median"),
        (
            {"correction": ControlVariates(), "server_optimizer": Adam()},
            ", control-variates, adam",
        ),
        ({"timing": Timing(arrivals=2)}, ", 2 arrivals"),
        ({"server_optimizer": Momentum(), "timing": Timing(arrivals=1)}, ", momentum, 1 arrival"),
        ({"aggregator": Mean(weights=(1.0, 2.0)), "timing": Timing(spread=1.0)}, ""),
    ],
)
def test_the_label_says_what_is_not_plain_averaging(parts, words):
    (arm,) = arms_of(measured(replace(TINY, **parts)))
    assert arm.label == f"DQNAvg, E = 10{words}"


def test_the_unit_is_in_the_label_and_another_metric_can_be_asked_for():
    experiment = replace(TINY, unit="episodes")
    (arm,) = arms_of(measured(experiment, DISCOUNTED), DISCOUNTED)
    assert arm.label == "DQNAvg, E = 10 episodes"
    with pytest.raises(FedrlError, match="somewhere has no results yet"):
        arms_of(measured(experiment, DISCOUNTED))


@pytest.mark.parametrize("n", [2, 3, 16])
def test_the_interval_is_students(rng, n):
    values = rng.normal(50, 10, size=n)
    found = interval(values)
    low, high = scipy.stats.t.interval(0.95, n - 1, values.mean(), scipy.stats.sem(values))
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((low, high))
    assert found.mean == pytest.approx(values.mean())
    assert found.excludes_zero == (not low <= 0 <= high)


def test_an_interval_around_zero_does_not_exclude_it():
    around, above, below = (interval(np.array([-1.0, 1.0]) + x) for x in (0, 100, -100))
    assert [x.excludes_zero for x in (around, above, below)] == [False, True, True]


def test_a_single_seed_says_nothing_about_others():
    single = interval(np.array([7.0]))
    assert (single.mean, single.half, single.excludes_zero) == (7.0, inf, False)


def arm(experiment, values):
    curve = np.array([[0.0, x] for x in values])
    return Arm("an arm", experiment, np.array([0, 60]), {"train": curve})


@pytest.mark.parametrize(
    ("changes", "paired"),
    [
        ({"E": inf}, True),
        ({"updates": 90}, True),
        ({"seed": 1}, False),
        ({"seeds": 3}, False),
        ({"agents": 3}, False),
        ({"held_out": 3}, False),
        ({"family": CartPoles(time_limit=21)}, False),
    ],
)
def test_seeds_are_paired_only_if_they_have_the_same_environments(rng, changes, paired):
    environments = rng.normal(0, 100, size=6)
    a, b = environments + rng.normal(5, 1, size=6), environments + rng.normal(0, 1, size=6)
    one, other = arm(TINY, a), arm(replace(TINY, **changes), b)
    assert same_draws((one, other)) == paired
    found = difference(one, other, "train")
    assert found.mean == pytest.approx(a.mean() - b.mean())
    if paired:
        _, high = scipy.stats.ttest_rel(a, b).confidence_interval(0.95)
        assert found.mean + found.half == pytest.approx(high)
        assert found.excludes_zero
    else:
        halves = [scipy.stats.t.ppf(0.975, 5) * scipy.stats.sem(x) for x in (a, b)]
        assert found.half == pytest.approx(sqrt(sum(half**2 for half in halves)))
        assert not found.excludes_zero


def test_the_mean_over_training_is_the_area_under_the_curve():
    # Evaluations at 0, 20 and 60: trapezoids of widths 20 and 40.
    curve = np.array([[0.0, 10.0, 10.0], [6.0, 0.0, 3.0]])
    learner = Arm("an arm", TINY, np.array(WHEN), {"train": curve})
    expected = [(20 * 5 + 40 * 10) / 60, (20 * 3 + 40 * 1.5) / 60]
    np.testing.assert_allclose(over_training(learner, "train"), expected)
    flat = Arm("an arm", TINY, np.array(WHEN), {"train": np.full((2, 3), 4.0)})
    found = difference(learner, flat, "train", over_training)
    assert found.mean == pytest.approx(np.mean(expected) - 4)
    # A run that has only just begun.
    begun = Arm("an arm", TINY, np.array([0]), {"train": curve[:, :1]})
    assert over_training(begun, "train").tolist() == [0.0, 6.0]


def test_arms_with_equal_labels_are_told_apart_by_what_differs():
    faster = replace(TINY, learner=replace(TINY.learner, lr=0.5))
    arms = [arms_of(measured(experiment))[0] for experiment in (TINY, faster)]
    assert arms[0].label == arms[1].label
    assert [arm.label.partition(" (")[2] for arm in told_apart(arms)] == [
        "learner.lr=0.01)",
        "learner.lr=0.5)",
    ]
    more = replace(TINY, agents=3)
    three = [arms[0], *arms_of(measured(more)), *arms_of(measured(replace(faster, E=20)))]
    label = arms[0].label  # not longer than it must be: who differs anyhow does not matter
    assert [arm.label for arm in told_apart(three)] == [
        f"{label} (agents=2)",
        f"{label} (agents=3)",
        label.replace("10", "20"),
    ]
    other_E = arms_of(measured(replace(TINY, E=20)))
    assert told_apart([arms[0], *other_E]) == [arms[0], *other_E]


def labels(*experiments):
    arms = [arm for one in experiments for arm in arms_of(measured(one))]
    return [arm.label.partition(" (")[2].removesuffix(")") for arm in told_apart(arms)]


def named(name, lr):
    return replace(TINY, name=name, learner=replace(TINY.learner, lr=lr))


def test_runs_with_names_of_their_own_are_told_apart_by_them():
    assert labels(named("fast", 0.5), named("slow", 0.1)) == ["fast", "slow"]


def test_no_two_labels_are_equal_where_only_some_names_differ():
    assert labels(named("a", 0.5), named("a", 0.1), named("b", 0.5)) == [
        "a, learner.lr=0.5",
        "a, learner.lr=0.1",
        "b",
    ]
    assert labels(TINY, TINY) == ["1", "2"]


def test_a_setting_that_one_run_lacks_tells_it_apart():
    personal = [
        replace(TINY, learner=replace(TINY.learner, personal=one))
        for one in (Personal(3), Personal(3, embedding_lr=0.5), Personal(3, embedding_lr=0.1))
    ]
    name = "learner.personal.embedding_lr"
    assert labels(*personal) == [f"without {name}", f"{name}=0.5", f"{name}=0.1"]


def test_strengths_of_a_correction_are_told_apart_beside_other_runs():
    weak, strong = (replace(TINY, correction=Prox(mu=mu)) for mu in (0.1, 0.5))
    assert labels(TINY, weak, strong) == ["", "correction.mu=0.1", "correction.mu=0.5"]


def test_an_interval_of_a_single_seed_is_not_printed():
    assert str(interval(np.array([7.0]))) == "7.0"
    assert str(interval(np.array([6.0, 8.0]))).startswith("7.0 ± ")


def timed(name, pace, **timing):
    """A run whose seed k is at `pace` (k + 1) simulated seconds after each update."""
    run = measured(replace(TINY, name=name, timing=Timing(**timing)))
    run._rows += [
        (seed, 0, when, str(agent), agent, "1.0", "learning", "clock", pace * (seed + 1) * when)
        for seed in range(SEEDS)
        for when in WHEN
        for agent in range(AGENTS)
    ]
    return run


def test_runs_that_all_have_a_clock_are_drawn_over_simulated_seconds():
    runs = [timed("waits", 10.0, seconds=(1.0, 10.0)), timed("goes-on", 2.0, arrivals=1)]
    report = RunReport(runs, RETURN)
    # The mean over two seeds, which are at the pace and at twice the pace.
    expected = [[0, 300, 900], [0, 60, 180]]
    axes = report.figure().axes
    assert {ax.get_xlabel() for ax in axes} == {"simulated seconds"}
    for ax in axes:
        assert [line.get_xdata().tolist() for line in ax.lines] == expected
    chart = report._curves().charts[0]
    assert "return against simulated seconds" in chart.described
    stops = [stop[2] for stop in chart.hover["stops"]]
    assert stops == [f"{x} simulated seconds" for x in (0, 60, 180, 300, 900)]
    columns, rows = report.rows()
    assert columns[-1] == "clock"
    assert {(row[0], row[2], row[-1]) for row in rows} == {
        (arm.label, when, f"{x}")
        for arm, xs in zip(report.arms, expected, strict=True)
        for when, x in zip(WHEN, xs, strict=True)
    }


def test_beside_a_run_without_a_clock_curves_are_drawn_over_updates():
    report = RunReport([timed("waits", 10.0, spread=1.0), measured(ALONE)], RETURN)
    for ax in report.figure().axes:
        assert ax.get_xlabel() == "updates of each agent"
        assert all(line.get_xdata().tolist() == list(WHEN) for line in ax.lines)
    assert report.rows()[0] == ("arm", "split", "updates", "seed", "return")
    assert report._curves().charts[0].hover["stops"][-1][2] == "60 updates"


def test_a_run_that_stopped_after_its_last_evaluation_is_drawn_as_far_as_its_clock():
    run = timed("waits", 10.0, spread=1.0)
    run._rows.append((0, 0, 70, "0", 0, "1.0", "learning", "diverged", 70.0))
    report = RunReport([run], RETURN)
    assert report.arms[0].clock.tolist() == [0, 300, 900, 900]
    assert "diverged" in report._curves().charts[0].described


@pytest.mark.parametrize("width", [80, 60])
def test_tables_cut_neither_labels_nor_numbers(width):
    experiments = (named("as-fast-as-anything-can-be", 0.5), named("slow", 0.0001))
    report = RunReport([measured(one) for one in (*experiments, ALONE)], RETURN)
    paper = Console(file=io.StringIO(), width=width)
    paper.print(report._final_table())
    paper.print(report._difference_table())
    printed = paper.file.getvalue()
    assert "…" not in printed
    # The first column from top to bottom: what is folded goes on below.
    first = "".join(line[: width // 4].strip() for line in printed.splitlines())
    assert "as-fast-as-anything-can-be" in first
