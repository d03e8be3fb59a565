"""Robots on MJX against the same robots in MuJoCo's C, which test_robots.py holds to Gymnasium."""

import io
from contextlib import redirect_stdout
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import jax
import numpy as np
import pytest

from fedrl.families import HalfCheetahs, Hoppers
from fedrl.families.robots import host, models

# MJX prints that it did not find another simulator, which nobody asked for.
with redirect_stdout(io.StringIO()):
    from fedrl.families.robots import on_device

FAMILIES = [HalfCheetahs(simulator="mjx"), Hoppers(simulator="mjx")]
ROBOTS, STEPS = 64, 48
each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def corners(family):
    """The ends of the family's range, where robots are least like the one in the middle."""
    ends = product(*((varied.low, varied.high) for varied in family.varied))
    return np.float32(list(ends))


class Compared(NamedTuple):
    """Steps from the same states; after them (steps, robots, numbers) in both simulators."""

    family: object
    step: object
    before: np.ndarray
    actions: np.ndarray
    fields: dict
    expected: tuple
    found: tuple

    def after(self, fields):
        """What MJX makes of the same states and actions with these constants."""
        steps = [self.step(*row, fields) for row in zip(self.before, self.actions, strict=True)]
        return tuple(np.asarray(column) for column in map(np.stack, zip(*steps, strict=True)))


def error(found, expected):
    """The largest error of a position or a velocity, for each step of each robot."""
    return np.abs(found[0] - expected[0]).max(axis=-1)


# MJX takes 20 seconds to compile HalfCheetah, and a minute for Hopper's four forces a step.
@pytest.fixture(
    scope="module",
    params=[FAMILIES[0], pytest.param(FAMILIES[1], marks=pytest.mark.slow)],
    ids=lambda family: family.name,
)
def compared(request):
    family = request.param
    on_host = replace(family, simulator="mujoco")
    thetas = np.resize(corners(family), (ROBOTS, len(family.varied)))
    rng = np.random.default_rng(0)
    actions = np.float32(rng.uniform(-1, 1, (STEPS, ROBOTS, family.actions)))
    first = jax.vmap(on_host.reset)(jax.random.split(jax.random.key(1), ROBOTS))

    @jax.jit
    def episodes(first, actions):
        def step(state, action):
            after, reward, terminated = jax.vmap(on_host.step)(state, action, thetas)
            return after, (state, after, jax.vmap(on_host.observe)(after), reward, terminated)

        return jax.lax.scan(step, first, actions)[1]

    @jax.jit
    def step(state, action, fields):
        after, reward, terminated = jax.vmap(family.step)(state, action, fields)
        return after[:, 0, : 2 * family.joints], jax.vmap(family.observe)(after), reward, terminated

    # Every third one: from the air to all ways of touching the ground.
    before, after, *rest = (np.asarray(array)[::3] for array in episodes(first, actions))
    expected = (host.join(after)[..., : 2 * family.joints], *rest)
    fields = jax.tree.map(np.asarray, jax.vmap(family.constants)(thetas))
    without = Compared(family, step, before[:, :, :1], actions[::3], fields, expected, ())
    return without._replace(found=without.after(fields))


# The median, what 1 in 100 exceeds, and the largest. Numbers have a size of up to 20 and 24 bits,
# so that each is off by up to 1e-6. A half-cheetah's joints and its 5 steps of 0.01 make that a few
# times more, and where a foot comes to the ground or a joint to its end a hundred times; a hopper's
# 4 steps are of 0.002.
BOUNDS = {"halfcheetahs": (2e-5, 1e-3, 1e-2), "hoppers": (5e-6, 5e-5, 1e-3)}


def assert_within_bounds(errors, family):
    median, rare, largest = BOUNDS[family.name]
    assert np.median(errors) < median
    assert np.quantile(errors, 0.99) < rare
    assert errors.max() < largest


def test_a_step_differs_from_the_hosts_by_what_32_bits_explain(compared):
    assert np.abs(compared.expected[0]).max() > 5
    errors = error(compared.found, compared.expected)
    assert errors.shape == (STEPS / 3, ROBOTS)
    assert_within_bounds(errors, compared.family)


def test_observations_rewards_and_ends_agree_too(compared):
    _, seen, rewards, terminated = compared.found
    _, *expected = compared.expected
    assert_within_bounds(np.abs(seen - expected[0]).max(axis=-1), compared.family)
    # A speed is the difference of two positions of 32 bits, none beyond 2, over 0.05 or 0.008.
    assert np.abs(rewards - expected[1]).max() < 2 * 2**-23 / 0.008 * 2
    np.testing.assert_array_equal(terminated, expected[2])
    assert terminated.any() == (compared.family.name == "hoppers")
    assert not terminated.all()


@pytest.mark.parametrize(
    "kept", [(), ("geom_size",), ("body_mass", "body_inertia")], ids=["none", "size", "masses"]
)
def test_a_body_that_is_not_or_only_half_replaced_is_noticed(compared, kept):
    nominal = models.nominal(compared.family)
    fields = {
        name: array
        if name in kept
        else np.float32(np.broadcast_to(getattr(nominal, name), array.shape))
        for name, array in compared.fields.items()
    }
    errors = error(compared.after(fields), compared.expected)
    assert np.median(errors) > 1e-3


@each_family
def test_what_theta_changes_is_found(family):
    changed = on_device.changed(family)
    assert {"body_mass", "body_inertia", "body_invweight0", "geom_size", "geom_rbound"} <= {
        *changed
    }
    assert not {"qpos0", "jnt_range", "actuator_gear", "body_pos"} & {*changed}


# MJX copies `stat`, which are means over the whole model, and reads none of it.
@each_family
def test_the_model_of_a_theta_is_the_one_that_mjx_makes_of_the_compiled_one(family):
    constants = jax.jit(jax.vmap(family.constants))
    thetas = corners(family)
    found = constants(thetas)
    for i, theta in enumerate(thetas):
        ours = on_device._on_device(family).replace(**{k: v[i] for k, v in found.items()})
        compiled = models.model(family, tuple(theta.tolist()))
        theirs = on_device.mjx.put_model(compiled)
        leaves = zip(*map(jax.tree_util.tree_leaves_with_path, (ours, theirs)), strict=True)
        for (path, leaf), (other_path, other) in leaves:
            name = jax.tree_util.keystr(path)
            assert path == other_path
            if not name.startswith(".stat.") and "iterations" not in name:
                np.testing.assert_array_equal(leaf, other, err_msg=name)
        np.testing.assert_array_equal(found["body_mass"][i], np.float32(compiled.body_mass))


@each_family
def test_the_solver_gets_the_steps_that_the_settings_say(family):
    options = on_device._on_device(replace(family, mjx_iterations=3, mjx_line_search=7)).opt
    assert (int(options.iterations), int(options.ls_iterations)) == (3, 7)
    options = on_device._on_device(family).opt
    assert (int(options.iterations), int(options.ls_iterations)) == (6, 4)


@each_family
def test_first_states_are_the_hosts_with_one_part(family):
    key = jax.random.key(0)
    first = np.asarray(family.reset(key))
    assert first.shape == (1, 3 * family.joints) == family.state_shape
    np.testing.assert_array_equal(first[0], replace(family, simulator="mujoco").reset(key)[0])
