"""The form of a program with few launches, on the CPU, where nothing else uses it."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from fedrl import launches
from fedrl.engine.layout import LAUNCH_BOUND, launch_bound
from fedrl.engine.local_engine import LocalEngine
from tiny import TINY, begin, go_on


def trained(form, rounds, E):
    engine = LocalEngine(TINY)
    federation = jax.jit(partial(begin, engine))(np.int32(0))
    return jax.jit(form(partial(go_on, engine)))(
        federation, np.int32(0), np.int32(rounds), np.int32(E)
    )


# Less than a block, whole blocks, whole blocks and a rest.
@pytest.mark.parametrize("E", [5, 64, 75])
def test_few_launches_change_no_more_than_rounding(E):
    usual, few = trained(lambda f: f, 2, E), trained(launches.with_few_launches(), 2, E)
    assert few.clock == usual.clock
    # Rounding may one day change an action; over so few updates of one seed it does not.
    for one, other in zip(jax.tree.leaves(few), jax.tree.leaves(usual), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_the_form_ends_with_the_program_also_when_it_fails():
    def fails():
        assert launches.few_launches()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        launches.with_few_launches()(fails)()
    assert not launches.few_launches()


def test_on_a_cpu_nothing_is_asked_of_the_compiler():
    assert launches.options("cpu", graphs=True) is None


def test_a_gpu_may_choose_its_kernels_by_trying_them():
    for graphs in (True, False):
        assert "xla_gpu_autotune_level" not in (launches.options("gpu", graphs=graphs) or {})


def test_many_seeds_or_wide_networks_are_not_bound_by_launches():
    assert launch_bound(TINY, groups=1)
    many = replace(TINY, seeds=int(LAUNCH_BOUND))
    assert not launch_bound(many, groups=1)
    assert launch_bound(many, groups=many.seeds)
    wide = replace(TINY, learner=replace(TINY.learner, hidden=(8192, 8192)))
    assert not launch_bound(wide, groups=1)


def test_only_a_cpu_is_told_how_wide_its_vectors_are():
    assert launches.wide_vectors("gpu") is None
    assert launches.wide_vectors("cpu")
