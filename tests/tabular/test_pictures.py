"""Pictures show what they should: an arrow for each probable action, nothing global left behind."""

import io
import sys

import matplotlib.text
import numpy as np
import pytest

import fedrl


def arrows(ax):
    return [child for child in ax.get_children() if isinstance(child, matplotlib.text.Annotation)]


def rendered(ax):
    buffer = io.BytesIO()
    ax.figure.savefig(buffer, format="png")
    return buffer.getvalue()


def test_the_grid_has_an_arrow_for_every_probable_action_outside_cliff_and_goal():
    up = np.zeros((16, 4))
    up[:, 0] = 1.0
    ax = fedrl.tabular.WindyCliffs().draw(up)
    assert len(arrows(ax)) == 13  # all but two cliff cells and the goal
    for arrow in arrows(ax):
        (x, y), (to_x, to_y) = arrow.xyann, arrow.xy
        assert to_x == x
        assert to_y == pytest.approx(y + 0.4)
    assert len(rendered(ax)) > 1000
    assert len(arrows(fedrl.tabular.WindyCliffs().draw(np.full((16, 4), 0.25)))) == 4 * 13
    assert not arrows(fedrl.tabular.WindyCliffs().draw())


def test_a_random_mdp_has_an_arrow_for_every_probable_transition():
    family = fedrl.tabular.RandomMDPs()
    P = family.task(agents=1).P[0, 0]
    policy = np.eye(5)
    ax = family.draw(policy, P=P)
    assert len(arrows(ax)) == (np.einsum("sa,sat->st", policy, P) >= 0.01).sum()
    assert len(rendered(ax)) > 1000


def test_a_policy_of_another_shape_is_refused():
    with pytest.raises(fedrl.FedrlError, match=r"policy must have shape \(16, 4\)"):
        fedrl.tabular.WindyCliffs().draw(np.ones((4, 4)))


def test_drawing_leaves_pyplot_alone():
    fedrl.tabular.WindyCliffs().draw()
    assert "matplotlib.pyplot" not in sys.modules
