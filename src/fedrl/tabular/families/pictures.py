"""Pictures of tabular environments and of policies in them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrl.errors import FedrlError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedrl.tabular.families.tabular_family import Floats
    from fedrl.tabular.families.windy_cliffs import WindyCliffs

START, CLIFF, GOAL, FREE = "#cfe3f5", "#d9a5a0", "#b9dcb4", "#ffffff"
INK, FAINT = "#1f2933", "#9aa5b1"


def _axes(ax: "Axes | None", size: tuple[float, float], **limits: tuple[float, float]) -> "Axes":
    if ax is None:
        from matplotlib.figure import Figure

        # A figure of its own, without pyplot: nothing to close, no display needed.
        ax = Figure(figsize=size, layout="constrained").add_subplot()
    ax.set(aspect="equal", **limits)
    ax.set_axis_off()
    return ax


def _check_policy(policy: "Floats | None", states: int, actions: int) -> None:
    if policy is not None and np.shape(policy) != (states, actions):
        raise FedrlError(f"policy must have shape ({states}, {actions}), got {np.shape(policy)}")


def _arrow(ax: "Axes", start: "Floats", end: "Floats", **style: Any) -> None:
    look = {"arrowstyle": "-|>", "color": INK, "shrinkA": 0, "shrinkB": 0} | style
    ax.annotate("", xytext=tuple(start), xy=tuple(end), arrowprops=look)


def draw_grid(
    family: "WindyCliffs",
    moves: Sequence[tuple[int, int]],
    policy: "Floats | None",
    ax: "Axes | None",
) -> "Axes":
    """A grid world; from each cell an arrow per action, as long as it is probable."""
    from matplotlib.patches import Rectangle

    _check_policy(policy, family.states, family.actions)
    width, height = family.width, family.height
    ax = _axes(ax, (width, height), xlim=(-0.05, width + 0.05), ylim=(-0.05, height + 0.05))
    kinds = dict.fromkeys(family.cliff, (CLIFF, "cliff"))
    kinds |= {0: (START, "start"), family.goal: (GOAL, "goal")}
    for s in range(family.states):
        y, x = divmod(s, width)
        colour, label = kinds.get(s, (FREE, ""))
        ax.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor=FAINT))
        ax.text(x + 0.5, y + 0.05, label, ha="center", va="bottom", fontsize=7, color=INK)
        if policy is None or s == family.goal or s in family.cliff:
            continue  # all actions are the same there
        for (dx, dy), probability in zip(moves, policy[s], strict=True):
            if probability > 0.01:
                middle, length = np.array([x + 0.5, y + 0.5]), 0.4 * probability
                _arrow(ax, middle, middle + length * np.array([dx, dy]))
    return ax


def draw_graph(P: "Floats", policy: "Floats | None", ax: "Axes | None") -> "Axes":
    """States on a circle and the transitions between them, as wide as they are probable.

    Without a policy, of an agent that picks its actions at random. A state's label gives the most
    probable action.
    """
    states, actions, _ = np.shape(P)
    _check_policy(policy, states, actions)
    chosen = np.full((states, actions), 1 / actions) if policy is None else np.asarray(policy)
    flow = np.einsum("sa,sat->st", chosen, P)
    ax = _axes(ax, (5, 5), xlim=(-1.45, 1.45), ylim=(-1.45, 1.45))
    angle = np.pi / 2 - 2 * np.pi * np.arange(states) / states
    places = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    for s, t in np.argwhere(flow >= 0.01):
        start, end, bend, gap = places[s], places[t], 0.18, 15
        if s == t:  # a small loop outside the circle
            side = np.array([-start[1], start[0]]) * 0.09
            start, end, bend, gap = 1.1 * start - side, 1.1 * start + side, 1.6, 0
        _arrow(
            *(ax, start, end),
            connectionstyle=f"arc3,rad={bend}",
            linewidth=0.3 + 2.7 * flow[s, t],
            alpha=0.25 + 0.75 * flow[s, t],
            shrinkA=gap,
            shrinkB=gap,
        )
    for s, (x, y) in enumerate(places):
        label = f"$s_{{{s}}}$" if policy is None else f"$s_{{{s}}}$\n$a_{{{chosen[s].argmax()}}}$"
        box = {"boxstyle": "circle,pad=0.35", "facecolor": START, "edgecolor": INK}
        ax.text(x, y, label, ha="center", va="center", fontsize=9, bbox=box)
    return ax
