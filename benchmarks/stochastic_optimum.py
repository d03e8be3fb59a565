"""Search for two-state problems whose best single policy is far better than any deterministic one.

    python -m benchmarks.stochastic_optimum

All pairs of environments with two states, two actions and deterministic transitions, all 0/1
rewards, three initial distributions, gamma 0.9, policies on a grid of 41 x 41.
"""

from itertools import product

import numpy as np

from fedrl.tabular.families import Doors
from fedrl.theory import oracle
from fedrl.theory.policies import Floats, values

GAMMA = 0.9
STARTS = ((1.0, 0.0), (0.0, 1.0), (0.5, 0.5))


def search() -> list[tuple[float, float, float, str]]:
    """(difference, best deterministic, best on the grid, description), the largest first."""
    grid = np.linspace(0, 1, 41)
    policies: Floats = np.array([[[p, 1 - p], [q, 1 - q]] for p, q in product(grid, grid)])
    deterministic = ((policies == 0) | (policies == 1)).all(axis=(1, 2))
    environments = [np.eye(2)[np.reshape(to, (2, 2))] for to in product((0, 1), repeat=4)]
    found = []
    for i, first in enumerate(environments):
        for j in range(i, len(environments)):
            P = np.stack([first, environments[j]])
            for rewards in product((0.0, 1.0), repeat=4):
                R = np.reshape(rewards, (2, 2))
                V = values(policies, P, R, GAMMA).mean(axis=1)
                for d0 in STARTS:
                    reached = V @ np.array(d0)
                    best, corner = float(reached.max()), float(reached[deterministic].max())
                    name = f"environments {i}, {j}, rewards {rewards}, d0 {d0}"
                    found.append((best - corner, corner, best, name))
    return sorted(found, reverse=True)


def main() -> None:
    for difference, corner, best, name in search()[:5]:
        print(f"{difference:.4f} = {best:.4f} - {corner:.4f}  {name}")
    print("with more environments and actions:")
    for doors in range(2, 8):
        example = Doors(doors=doors)
        result = oracle(*example.matrices(), example.gamma, example.d0(), nodes=1)
        print(f"{result.objective - result.deterministic:.4f}  {doors} doors")


if __name__ == "__main__":
    main()
