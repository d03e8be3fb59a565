"""The check that fails when a kernel has become more expensive."""

import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from benchmarks import regression, regression_kernels
from benchmarks.regression import ATTEMPTS, RATIO, Found
from benchmarks.regression_measure import counts, instructions, ratio, size

from fedrl.engine.local_engine import LocalEngine
from fedrl.learners.dqn import DQN

HERE = {"jax": "1.0", "numpy": "2.0", "processor": "some"}


def found(on=HERE, **costs):
    return Found(dict(on), {"dqn": dict(costs)})


def grown(before, now):
    return [line.quantity for line in regression.compare(before, now) if line.grown]


def of_time(value, **on):
    return found(HERE | on, **{RATIO: value})


def test_counts_may_grow_by_their_margin_and_no_more():
    assert grown(found(kernels=100), found(kernels=105)) == []
    assert grown(found(kernels=100), found(kernels=106)) == ["kernels"]
    assert grown(found(copied=0), found(copied=0)) == []
    assert grown(found(copied=0), found(copied=8)) == ["copied"]


def test_half_as_much_time_again_is_noticed_and_noise_is_not():
    assert grown(of_time(2.0), of_time(3.0)) == [RATIO]
    assert grown(of_time(2.0), of_time(2.4)) == []


def test_another_jax_has_other_counts_and_another_processor_other_times():
    other = found(HERE | {"jax": "1.1"}, kernels=190, **{RATIO: 3.0})
    assert grown(found(kernels=100, **{RATIO: 2.0}), other) == []
    assert grown(found(kernels=90, **{RATIO: 0.9}), other) == ["kernels", RATIO]
    processor = HERE | {"processor": "other"}
    assert grown(found(kernels=100), found(processor, kernels=110)) == ["kernels"]
    assert grown(of_time(2.0), of_time(3.0, processor="other")) == []


def test_what_became_less_or_is_new_does_not_fail():
    before, now = found(kernels=100), found(kernels=50, copied=3)
    lines = regression.compare(before, now)
    assert [line.verdict for line in lines] == ["less, record it", "not recorded"]
    assert regression.complaint(lines) == ""


def test_the_complaint_names_what_grew_and_by_how_much():
    lines = regression.compare(found(kernels=100, copied=0), found(kernels=150, copied=8))
    words = regression.complaint(lines)
    assert "dqn: kernels from 100 to 150 (1.50 times)" in words
    assert "dqn: copied from 0 to 8\n" in words
    assert "--record" in words
    assert "GREW" in regression.table(lines)


def measuring(*times):
    """Something that measures these, one after the other; and what it has measured."""
    left = list(times)
    return (lambda: of_time(left.pop(0))), left


def test_a_time_that_is_too_long_is_measured_again_before_it_is_believed():
    measure, left = measuring(3.0, 2.1, 9.0)
    assert regression.convinced(of_time(2.0), measure) == of_time(2.1)
    assert left == [9.0]
    measure, left = measuring(*[3.2, 3.1, 3.3][:ATTEMPTS])
    assert grown(of_time(2.0), regression.convinced(of_time(2.0), measure)) == [RATIO]
    assert left == []


def test_a_count_that_is_too_large_is_believed_at_once():
    again = [found(kernels=150, **{RATIO: 2.0})]
    now = regression.convinced(found(kernels=100, **{RATIO: 2.0}), lambda: again.pop())
    assert grown(found(kernels=100, **{RATIO: 2.0}), now) == ["kernels"]


def test_the_program_fails_and_says_why(monkeypatch, tmp_path, capsys):
    recorded = tmp_path / "recorded.json"
    monkeypatch.setattr(regression, "RECORDED", recorded)
    monkeypatch.setattr(regression.os, "sched_setaffinity", lambda *_: None, raising=False)
    monkeypatch.setattr(regression, "measured", lambda: found(kernels=100, **{RATIO: 2.0}))
    monkeypatch.setattr(sys, "argv", ["regression", "--record"])
    regression.main()
    monkeypatch.setattr(sys, "argv", ["regression"])
    regression.main()
    assert "GREW" not in capsys.readouterr().out
    monkeypatch.setattr(regression, "measured", lambda: found(kernels=100, **{RATIO: 3.0}))
    with pytest.raises(SystemExit, match=r"dqn: time / NumPy's from 2 to 3 \(1\.50 times\)"):
        regression.main()
    assert "GREW" in capsys.readouterr().out


def test_times_are_compared_pair_by_pair():
    seconds = {"ours": iter([9, 2, 4, 600, 8]), "bare": iter([9, 1, 2, 1, 4])}
    now = 0.0

    def taking(name):
        def work():
            nonlocal now
            now += next(seconds[name])

        return work

    assert ratio(taking("ours"), taking("bare"), pairs=4, clock=lambda: now) == 2


PROGRAM = """HloModule program

%fused (a: f32[2]) -> f32[2] {
  %a = f32[2]{0} parameter(0)
  ROOT %copy.9 = f32[2]{0} copy(%a)
}

%body.1 (c: (s32[], f32[5,3])) -> (s32[], f32[5,3]) {
  %c = (s32[], /*index=1*/f32[5,3]{1,0}) parameter(0)
  %g = f32[5,3]{1,0} get-tuple-element(%c), index=1
  %copy.1 = f32[5,3]{1,0} copy(%g)
  ROOT %t = (s32[], f32[5,3]{1,0}) tuple(%i, %copy.1)
}

%left.2 (x: pred[]) -> pred[] {
  ROOT %copy.2 = pred[] copy(%x)
}

%right.3 (x: pred[]) -> pred[] {
  ROOT %not = pred[] not(%x)
}

ENTRY %main (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  %w = (s32[], /*index=1*/f32[5,3]{1,0}) while(%s), condition=%unknown, body=%body.1
  %d = pred[] conditional(%k, %x, %x), branch_computations={%left.2, %right.3}
  %two = (f32[2]{0}, f32[]) custom-call(%p), custom_call_target="both"
  ROOT %f = f32[2]{0} fusion(%p), kind=kLoop, calls=%fused
}

%unknown (c: (s32[], f32[5,3])) -> pred[] {
  ROOT %less = pred[] compare(%i, %n), direction=LT
}
"""


def test_what_runs_one_by_one_is_counted_and_what_is_inside_a_fusion_is_not():
    names = sorted(name for name, _ in instructions(PROGRAM))
    assert names == ["compare", "copy", "copy", "custom-call", "fusion", "not"]
    assert sum(size(shape) for name, shape in instructions(PROGRAM) if name == "copy") == 61


@pytest.mark.parametrize(
    ("shape", "bytes_"),
    [("f32[5,3]{1,0}", 60), ("u64[7]", 56), ("pred[]", 1), ("bf16[4]", 8), ("(f32[2], f32[])", 0)],
)
def test_sizes_of_arrays(shape, bytes_):
    assert size(shape) == bytes_


def costs(compiled):
    return Found(HERE, {"dqn": counts(compiled)})


def test_a_buffer_that_a_loop_copies_every_time_is_caught():
    rows = jnp.zeros((1000, 4))

    def compiled(step):
        program = jax.jit(lambda rows, n: jax.lax.fori_loop(0, n, step, rows), donate_argnums=0)
        return costs(program.lower(rows, 10).compile())

    def reads_then_writes(i, rows):
        return rows.at[i].set(rows[rows[i, 0].astype(int)] + 1)

    def reads_what_was_there_after_writing(i, rows):
        after = rows.at[i].set(1)
        return after.at[0].set(rows[after[i - 1, 0].astype(int)])

    good, worse = compiled(reads_then_writes), compiled(reads_what_was_there_after_writing)
    assert good.kernels["dqn"]["bytes copied"] < rows.nbytes
    assert worse.kernels["dqn"]["bytes copied"] >= rows.nbytes
    assert "bytes copied" in grown(good, worse)


class GoesThroughAll(DQN):
    """Sorts the whole replay before it picks a batch."""

    def recalled(self, rows, *given):
        return super().recalled(jnp.sort(rows, 0), *given)


class Twice(DQN):
    """Learns from every batch two times."""

    def update(self, learned, batch, draws, updates, correct=None):
        learned, _ = super().update(learned, batch, draws, updates, correct)
        return super().update(learned, batch, draws, updates, correct)


@pytest.fixture(scope="module")
def dqn():
    return costs(regression_kernels.dqn().compiled)


def worsened(learner):
    experiment = regression_kernels.ENGINE.experiment
    engine = LocalEngine(replace(experiment, learner=learner(hidden=(128,), batch=16)))
    return costs(regression_kernels.dqn(engine).compiled)


def test_a_step_that_goes_through_the_whole_replay_is_caught(dqn):
    assert {"bytes read and written", "temporary bytes"} <= {*grown(dqn, worsened(GoesThroughAll))}


def test_work_that_is_done_twice_is_caught(dqn):
    caught = {"operations", "bytes read and written", "kernels"}
    assert caught <= {*grown(dqn, worsened(Twice))}


def test_what_is_recorded_is_what_is_measured(dqn):
    recorded = regression.read(regression.RECORDED.read_text())
    assert {*recorded.on} == {*HERE}
    assert {*recorded.kernels} == {*regression_kernels.KERNELS}
    for quantities in recorded.kernels.values():
        assert {*quantities} == {*dqn.kernels["dqn"], RATIO}
