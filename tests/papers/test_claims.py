"""The four claims: what is run for them, what is computed from it, and what is said then."""

import csv
import io
from contextlib import contextmanager
from dataclasses import replace
from math import inf

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from rich.console import Console

import fedrl
from fedrl import FedrlError
from fedrl.cli.main import main
from fedrl.experiment.presets import PRESETS, preset
from fedrl.experiment.settings import Evaluation
from fedrl.families import CartPoles
from fedrl.learners.personalisation import Personal
from fedrl.papers.jin2022 import claims, scoreboard, studies
from fedrl.papers.jin2022 import reproduce as reproduction
from fedrl.papers.jin2022.claims import CLAIMS, Effect, Measured, effects, measured, of_claim
from fedrl.papers.jin2022.scoreboard import reproduce_claims
from fedrl.papers.jin2022.studies import ROOT, study
from fedrl.report.arms import Arm, Interval
from fedrl.runs.metrics import COLUMNS
from published import PERSONAL, same_bits
from tiny import TINY

OWN, TRAIN, HELD_OUT = "own environment", "train", "held-out"
WHEN = np.array([0, 20, 60])


pytestmark = pytest.mark.usefixtures("kept", "hasty")


def test_the_verdict_of_a_claim_follows_from_its_effects():
    def effect(mean, half):
        return Effect("C1", "somewhere", "one − other", Interval(mean, half), 1.0, 5)

    better, small, open_ = effect(5, 1), effect(0.1, 0.05), effect(0, 9)
    assert [x.outcome for x in (better, small, open_)] == ["better", "equivalent", "undecided"]
    assert of_claim([better, better]) == "supported"
    assert of_claim([better, small]) == "no advantage"
    assert of_claim([better, open_]) == "undecided"
    assert of_claim([better, effect(-5, 1)]) == "contradicted"


def arm(rng, label, experiment=TINY, splits=(TRAIN, HELD_OUT, OWN)):
    curves = {split: rng.normal(50, 10, size=(6, 3)) for split in splits}
    return Arm(label, replace(experiment, seeds=6), WHEN, curves)


@pytest.fixture
def found(rng):
    methods = ("e-update", "en-update", "phi-update")
    return Measured(
        study("cartpoles", "full"),
        plain=arm(rng, "DQNAvg, E = 10"),
        average_at_the_end=arm(rng, "E = ∞", replace(TINY, E=inf)),
        baseline=arm(rng, "Baseline", replace(TINY, E=inf)),
        personal=arm(rng, "PerDQNAvg, E = 10"),
        adapted={method: arm(rng, method, splits=(OWN,)) for method in methods},
        falls={method: rng.normal(5, 1, size=6) for method in methods},
    )


def end(arm, split):
    return arm.curves[split][:, -1]


def mean_over_training(arm, split):
    # Trapezoids of widths 20 and 40.
    first, second, last = arm.curves[split].T
    return (20 * (first + second) / 2 + 40 * (second + last) / 2) / 60


def test_effects_are_paired_differences_with_students_interval(found):
    plain, average, baseline = found.plain, found.average_at_the_end, found.baseline
    personal, (e, en, phi) = found.personal, found.adapted.values()
    by_hand = [
        ("C1", "training", mean_over_training(plain, OWN) - mean_over_training(baseline, OWN)),
        ("C1", "end", end(plain, OWN) - end(baseline, OWN)),
        ("C2", "E = ∞, training", end(plain, TRAIN) - end(average, TRAIN)),
        ("C2", "Baseline, training", end(plain, TRAIN) - end(baseline, TRAIN)),
        ("C2", "E = ∞, held-out", end(plain, HELD_OUT) - end(average, HELD_OUT)),
        ("C2", "Baseline, held-out", end(plain, HELD_OUT) - end(baseline, HELD_OUT)),
        ("C3", "training", mean_over_training(personal, OWN) - mean_over_training(plain, OWN)),
        ("C3", "end", end(personal, OWN) - end(plain, OWN)),
        ("C4", "E&N", mean_over_training(e, OWN) - mean_over_training(en, OWN)),
        ("C4", "E&N, at the end", end(e, OWN) - end(en, OWN)),
        ("C4", "Phi", end(e, OWN) - end(phi, OWN)),
        ("C4", "falls", found.falls["en-update"] - found.falls["e-update"]),
    ]
    computed = effects(found)
    assert len(computed) == len(by_hand)
    untrained = min(x.curves[OWN][:, 0].mean() for x in (plain, baseline, personal))
    best = max(end(x, OWN).mean() for x in (plain, baseline, personal))
    for effect, (claim, words, gains) in zip(computed, by_hand, strict=True):
        assert (effect.claim, effect.family, effect.seeds) == (claim, "cartpoles", 6)
        assert words in effect.what
        low, high = scipy.stats.ttest_1samp(gains, 0).confidence_interval(0.95)
        assert effect.size.mean == pytest.approx(gains.mean())
        assert effect.size.mean - effect.size.half == pytest.approx(low)
        assert effect.size.mean + effect.size.half == pytest.approx(high)
        # A hundredth of what there is to learn.
        assert effect.margin == pytest.approx(0.01 * (best - untrained))
    assert len({effect.what for effect in computed}) == 12


def test_no_verdict_comes_from_the_seeds_that_are_left(found):
    curve = found.baseline.curves[OWN].copy()
    curve[2, -1] = np.nan
    lost = replace(found.baseline, curves=found.baseline.curves | {OWN: curve}, diverged=1)
    seen = {(one.claim, one.what): one for one in effects(replace(found, baseline=lost))}
    with_it = {key for key in seen if key[0] == "C1"}
    assert len(with_it) == 2
    for key, one in seen.items():
        assert (str(one.size) == "diverged") == (key in with_it)
        # What there is to learn is not known either, so nothing can be held against a share of it.
        assert np.isnan(one.margin)
        assert one.outcome == "undecided"


class FakeRun:
    """What falls are computed from."""

    def __init__(self, curves):
        seeds, agents, _ = curves.shape
        self.experiment = replace(TINY, seeds=seeds, agents=agents)
        self.curves = curves

    def metrics(self):
        rows = [
            (seed, 0, when, str(agent), agent, 1.0, "train", "return", value)
            for (seed, agent, when), value in np.ndenumerate(self.curves)
        ]
        noise = [(*row[:6], "learning", "explored_return", 1e9) for row in rows]
        noise += [(*row[:6], "train", "discounted_return", -1e9) for row in rows]
        return pd.DataFrame(rows + noise, columns=COLUMNS).sample(frac=1, random_state=0)


def test_a_fall_is_not_a_number_where_an_agent_diverged(rng):
    returns = rng.normal(size=(2, 2, 4))
    returns[1, 0, 2] = np.nan
    returns[:, :, 3] = np.nan  # an evaluation of which nothing is a number
    falls = claims._falls(FakeRun(returns))
    assert np.isnan(falls).all()


def test_a_fall_is_the_largest_drop_below_the_best_so_far(rng):
    rises, falls, recovers = [1, 2, 3, 4], [9, 5, 7, 1], [3, 8, 2, 9]
    curves = np.array([[rises, falls], [recovers, rises]], float)
    assert claims._falls(FakeRun(curves)).tolist() == [(0 + 8) / 2, (6 + 0) / 2]
    # More than ten agents: their names do not sort like numbers.
    curves = rng.normal(size=(3, 12, 7))
    by_hand = [
        np.mean([max(max(c[: i + 1]) - c[i] for i in range(7)) for c in agents])
        for agents in curves
    ]
    np.testing.assert_allclose(claims._falls(FakeRun(curves)), by_hand)


@pytest.mark.parametrize(
    ("family", "base", "personal"),
    [
        ("cartpoles", "cartpoles-dqnavg", "cartpoles-perdqnavg"),
        ("acrobots", "acrobots-dqnavg", "acrobots-perdqnavg"),
        ("halfcheetahs", "halfcheetahs-ddpgavg", "halfcheetahs-perddpgavg"),
        ("hoppers", "hoppers-ddpgavg", "hoppers-perddpgavg"),
    ],
)
def test_full_studies_are_the_presets(family, base, personal):
    found = study(family, "full")
    changes = {"seeds": 32 if family in ("cartpoles", "acrobots") else 16, "seed": ROOT}
    assert found.plain == replace(preset(base), **changes)
    assert found.alone == replace(preset(base), **changes, E=inf)
    assert found.personal == replace(preset(personal), **changes)
    assert found.runs == [found.plain, found.alone, found.personal]
    ten = study(family, "full", agents=10).personal
    assert replace(ten, name="x") == replace(preset(f"{personal}-10"), **changes, name="x")
    asked = study(family, "full", seeds=7, root=8).plain
    assert (asked.seeds, asked.seed) == (7, 8)


def test_no_preset_has_the_root_that_claims_are_tested_with():
    # What the presets have been tried out with is no test of them.
    assert ROOT not in {experiment.seed for experiment in PRESETS.values()}


def test_wired_cart_poles_are_a_preset_too():
    found, changes = study("wiredcartpoles", "full"), {"seeds": 32, "seed": ROOT}
    assert found.plain == replace(preset("wiredcartpoles-dqnavg"), **changes)
    assert found.personal == replace(preset("wiredcartpoles-perdqnavg"), **changes)
    assert found.plain.family == CartPoles(wiring=(-1.0, 1.0))
    same = {"name": "x", "family": CartPoles(), "agents": 5}
    assert replace(found.plain, **same) == replace(study("cartpoles", "full").plain, **same)
    assert replace(found.personal.learner, personal=Personal()) == found.plain.learner


@pytest.mark.parametrize("family", studies.BASES)
@pytest.mark.parametrize("size", ["reduced", "quick"])
def test_smaller_studies_are_shorter_in_whole_rounds(family, size):
    full, less = study(family, "full").plain, study(family, size).plain
    robots = family in ("halfcheetahs", "hoppers")
    seeds, share = {
        ("reduced", False): (32, 1.0),
        ("reduced", True): (5, 0.3),
        ("quick", False): (4, 0.2),
        ("quick", True): (2, 0.03),
    }[size, robots]
    assert less.seeds == seeds
    assert less.updates == pytest.approx(share * full.updates)
    assert less.updates % less.E == 0
    assert less.evaluation.every == pytest.approx(share * full.evaluation.every)
    shortened = {"seeds": 1, "updates": 10**5, "evaluation": Evaluation()}
    assert replace(less, **shortened) == replace(full, **shortened)


def test_a_family_that_nobody_studies_is_refused():
    with pytest.raises(FedrlError, match="unknown family 'cartpole': did you mean 'cartpoles'"):
        study("cartpole", "full")
    assert {name.partition("-")[0] for name in PRESETS} == set(studies.BASES)


@contextmanager
def tiny_study():
    """A family of two agents, two held-out environments and two seeds, trained for a moment."""
    with pytest.MonkeyPatch.context() as patch:
        for family in tuple(studies.BASES):
            patch.delitem(studies.BASES, family)
        patch.setitem(studies.BASES, "tiny", replace(TINY, name="tiny-dqnavg", updates=120))
        patch.setitem(studies.SIZES, "quick", {False: (2, 0.52)})
        patch.setitem(studies.EMBEDDINGS, "tiny", PERSONAL.learner.personal)
        yield study("tiny", "quick")


def reproduce(folder):
    console = Console(file=io.StringIO(), width=200)
    with tiny_study():
        found = reproduce_claims(quick=True, out=folder, console=console)
    return found, console.file.getvalue()


@pytest.fixture(scope="module")
def reproduced(kept, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results") / "claims"
    return folder, *reproduce(folder)


def finished(folder):
    """When the runs below a folder were finished."""
    return {file: file.stat().st_mtime_ns for file in folder.rglob("models.npz")}


def test_claims_are_tested_on_three_runs_and_three_adaptations(reproduced):
    folder, found, _ = reproduced
    names = {file.parent.name.rpartition("-")[0] for file in finished(folder)}
    adapted = {f"tiny-perdqnavg-{method}" for method in ("e-update", "en-update", "phi-update")}
    assert names == {"tiny-dqnavg", "tiny-perdqnavg"} | adapted
    assert len(finished(folder)) == 6
    with tiny_study() as asked:
        runs = [fedrl.Run(folder / "runs" / one.directory_name) for one in asked.runs]
    assert {run.path for run in runs} == set(folder.glob("runs/*"))
    assert runs[2].experiment.learner == PERSONAL.learner
    assert [effect.claim for effect in found] == ["C1"] * 2 + ["C2"] * 4 + ["C3"] * 2 + ["C4"] * 4
    # What is said is what the runs have measured, each in its place.
    adapted = {m: fedrl.Run(*runs[2].path.glob(f"adapted/*-{m}-*")) for m in studies.METHODS}
    arms = measured(asked, runs, adapted)
    assert effects(arms) == found
    assert [arm.label for arm in (arms.plain, arms.average_at_the_end, arms.baseline)] == [
        "DQNAvg, E = 10",
        "E = ∞",
        "Baseline",
    ]
    assert arms.personal.label == "PerDQNAvg, E = 10"
    for method in studies.METHODS:
        assert arms.adapted[method].experiment.name == f"tiny-perdqnavg-{method}"
        assert same_bits(arms.falls[method], claims._falls(adapted[method]))


def test_the_scoreboard_is_a_file_with_every_comparison(reproduced):
    folder, found, _ = reproduced
    with (folder / "scoreboard.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(found) == 12
    for row, effect in zip(rows, found, strict=True):
        assert (row["claim"], row["family"], row["comparison"]) == (
            effect.claim,
            "tiny",
            effect.what,
        )
        assert row["outcome"] == effect.outcome
        assert row["verdict"] == of_claim([other for other in found if other.claim == effect.claim])
        shown = [float(row[name]) for name in ("p_better", "p_worse", "p_equivalent")]
        assert shown == pytest.approx(effect.p, rel=1e-4)
        assert float(row["effect"]) == pytest.approx(effect.size.mean, rel=1e-4)
        assert float(row["half_interval"]) == pytest.approx(effect.size.half, rel=1e-4)
        assert float(row["margin"]) == pytest.approx(effect.margin, rel=1e-4)
        budget = [row[name] for name in ("seeds", "root", "agents", "updates", "E", "size")]
        assert budget == ["2", str(ROOT), "2", "60", "10", "quick"]


def test_every_claim_and_comparison_is_printed_with_its_verdict(reproduced):
    _, found, output = reproduced
    for claim, what in CLAIMS.items():
        assert claim in output
        assert what in output
    for effect in found:
        line = next(line for line in output.splitlines() if effect.what in line)
        assert str(effect.size) in line
        assert effect.outcome in line
    assert "QUICK" in output


@pytest.mark.parametrize(
    ("name", "arms", "splits"),
    [
        ("fed-speed", {"DQNAvg, E = 10", "alone"}, {OWN}),
        ("deep-exper", {"DQNAvg, E = 10", "E = ∞", "Baseline"}, {TRAIN, HELD_OUT}),
        ("person-local", {"PerDQNAvg, E = 10", "DQNAvg, E = 10"}, {OWN}),
        ("person-general", {"E-Update", "E&N-Update", "Phi-Update"}, {OWN}),
    ],
)
def test_figures_come_with_the_numbers_behind_them(reproduced, name, arms, splits):
    folder, _, output = reproduced
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert f"{folder}/{name}.png" in output
    behind = pd.read_csv(folder / f"{name}.csv")
    assert set(behind["family"]) == {"tiny"}
    assert (set(behind["arm"]), set(behind["split"])) == (arms, splits)
    evaluations = behind["updates"].nunique()
    assert len(behind) == len(arms) * len(splits) * evaluations * 2


def test_what_is_there_is_not_run_again(reproduced):
    folder, found, output = reproduced
    before = finished(folder)
    again, said = reproduce(folder)
    assert again == found
    assert finished(folder) == before
    table = output[output.index("C1") :]
    assert said.endswith(table)


@pytest.mark.parametrize(
    ("arguments", "root"), [([], ROOT), (["--seed", "8"], 8), (["--seed", "0"], 0)]
)
def test_claims_are_tested_with_random_numbers_of_their_own_or_those_asked_for(
    monkeypatch, capsys, arguments, root
):
    def begun(experiments, out):
        assert {one.seed for one in experiments} == {root}
        raise FedrlError("far enough")

    monkeypatch.setattr(scoreboard, "begin", begun)
    assert main(["reproduce", "claims", "--family", "cartpoles", *arguments]) == 2
    assert "far enough" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["claims", "--family", "cartpole"], "unknown family 'cartpole': did you mean 'cartpoles'"),
        (["claims", "--quick", "--full"], "--quick and --full exclude each other"),
        (["claims", "--seeds", "1"], "--seeds must be at least 2, got 1"),
        (["claims", "--piece", "5"], "--piece says nothing about claims"),
        (["claims", "--agents", "0"], "agents must be an integer of at least 1"),
        (["table2", "--family", "x"], "--family says nothing about table2"),
        (["figure2", "--full"], "--full says nothing about figure2"),
        (["table1", "--agents", "3"], "--agents says nothing about table1"),
    ],
)
def test_a_mistake_is_explained_and_nothing_is_run(
    tmp_path, monkeypatch, capsys, arguments, message
):
    monkeypatch.chdir(tmp_path)
    # If it were not refused, this would take days.
    for module, runs in ((scoreboard, "begin"), (reproduction, "reproduce")):
        monkeypatch.setattr(module, runs, lambda *given, **more: pytest.fail("it is run"))
    assert main(["reproduce", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
