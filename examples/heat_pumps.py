"""Heat pumps in different houses learn together: an ordinary Gymnasium environment, federated.

A house loses heat to the weather and is warmed by a heat pump, whose efficiency falls with the
cold and whose electricity costs more by day. Houses differ in how well they are insulated and in
how much heat their walls hold; no house tells another what it measured.

    python examples/heat_pumps.py            # 6 houses, 4 repetitions: some minutes
    python examples/heat_pumps.py --quick    # to see what comes out
"""

import sys
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces

QUARTER_HOURS = 96  # of a day
COMFORT = 20.0
POWER = 3.0  # kW of electricity at full power


class House(gymnasium.Env):
    """A day in a house; the action is how hard the heat pump works: off, half, full."""

    observation_space = spaces.Box(-10, 10, (5,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, loss: float, mass: float) -> None:
        """`loss` in kW for each degree of difference, `mass` in kWh for each degree."""
        self.loss, self.mass = loss, mass

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.quarter = 0
        self.inside = self.np_random.uniform(17, 22)
        self.coldest, self.warmest = np.sort(self.np_random.uniform(-8, 12, 2))
        return self._measured(), {}

    def step(self, action):
        outside, price = self._outside(), self._price()
        electricity = POWER * action / 2
        efficiency = 2.5 + 0.06 * outside  # kW of heat for each kW of electricity
        flow = efficiency * electricity - self.loss * (self.inside - outside)
        self.inside += flow / 4 / self.mass
        self.quarter += 1
        discomfort = max(abs(self.inside - COMFORT) - 0.5, 0)
        reward = -0.2 * discomfort - price * electricity / 4
        return self._measured(), reward, False, self.quarter == QUARTER_HOURS, {}

    def _outside(self) -> float:
        """Coldest at 4 in the morning."""
        share = (1 - np.cos(2 * np.pi * (self.quarter / QUARTER_HOURS - 1 / 6))) / 2
        return self.coldest + (self.warmest - self.coldest) * share

    def _price(self) -> float:
        """More expensive from 7 to 22."""
        return 0.3 if 7 <= self.quarter / 4 < 22 else 0.1

    def _measured(self):
        day = 2 * np.pi * self.quarter / QUARTER_HOURS
        inside, outside = (self.inside - COMFORT) / 5, self._outside() / 10
        seen = [inside, outside, np.sin(day), np.cos(day), 5 * self._price() - 1]
        return np.clip(np.array(seen, np.float32), -10, 10)


def make(loss: float, mass: float) -> House:
    """What fedrl makes environments with."""
    return House(loss, mass)


def thermostat(seen) -> int:
    """What most houses have: full power when it is cold, off when it is warm."""
    degrees = 5 * seen[0]
    return 2 if degrees < -0.5 else 1 if degrees < 0 else 0


def played(policy, loss: float, mass: float, days: int = 20) -> float:
    """Mean return of a policy in a house."""
    house, total = House(loss, mass), 0.0
    for day in range(days):
        seen, _ = house.reset(seed=day)
        over = False
        while not over:
            seen, reward, _, over, _ = house.step(policy(seen))
            total += reward
    return total / days


def main(quick: bool) -> None:
    """Houses that learn together, and houses that learn alone."""
    import fedrl
    from fedrl.learners import PPO

    sys.path.insert(0, str(Path(__file__).parent))
    family = fedrl.families.gymnasium(
        "heat_pumps:make", vary={"loss": (0.08, 0.25), "mass": (3.0, 10.0)}, time_limit=96
    )
    together = fedrl.Experiment(
        name="heat-pumps",
        family=family,
        learner=PPO(rollout=960, epochs=8, lr=1e-3, gamma=0.98),  # ten days for each update
        agents=6,
        held_out=10,
        E=2,
        updates=4 if quick else 100,
        evaluation=fedrl.Evaluation(every=2 if quick else 10, episodes=4),
        seeds=1 if quick else 4,
    )
    runs = [fedrl.train(one) for one in (together, together.without_communication())]
    fedrl.compare(*runs, html="heat-pumps.html")
    houses = {
        "a leaky and light house": [(0.25, 3.0)],
        "a tight and heavy house": [(0.08, 10.0)],
        "20 houses that nobody has seen": np.random.default_rng(0).uniform(
            (0.08, 3.0), (0.25, 10.0), (20, 2)
        ),
    }
    for name, some in houses.items():
        learnt, rule = (
            np.mean([played(policy, *house) for house in some])
            for policy in (runs[0].policy(), thermostat)
        )
        print(f"{name}: {learnt:.2f} with the common policy, {rule:.2f} with a thermostat")


if __name__ == "__main__":
    main("--quick" in sys.argv)
