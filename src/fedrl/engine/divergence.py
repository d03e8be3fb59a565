"""What is no finite number in a run: which agent met it, when, and what is said about it."""

from typing import Literal, NamedTuple

import numpy as np

from fedrl.engine.agent import NEVER, Seen
from fedrl.engine.plan import Leg
from fedrl.engine.programs import Record
from fedrl.experiment.settings import Experiment
from fedrl.files import Array

OnDivergence = Literal["stop", "continue"]
"""What becomes of a run once something in it is not finite."""

# Squares of larger numbers, as in a loss, come near the largest of 32 bits, 3.4e38.
LARGE = 1e18


class Diverged(NamedTuple):
    """When each agent first met what is not finite, (seeds, agents): NEVER, or updates by then."""

    reward: Array
    update: Array

    @classmethod
    def of(cls, seen: Seen) -> "Diverged":
        return cls(np.asarray(seen.bad_reward), np.asarray(seen.bad_update))

    @classmethod
    def nobody(cls, like: "Diverged") -> "Diverged":
        """As many agents, none of which has."""
        return cls(*(np.full_like(one, NEVER) for one in like))

    @property
    def first(self) -> Array:
        """The earlier of the two."""
        # As a number without sign, NEVER is the largest.
        return np.minimum(*(one.astype(np.uint32) for one in self)).astype(np.int32)

    @property
    def agents(self) -> list[tuple[int, int]]:
        """(seed, agent) of those that have, the earliest first."""
        first = self.first
        found = [(int(seed), int(agent)) for seed, agent in np.argwhere(first != NEVER)]
        return sorted(found, key=lambda one: (first[one], one))

    def since(self, before: "Diverged") -> list[tuple[int, int, int]]:
        """(seed, agent, update) of those that had not done so before."""
        news = (before.first == NEVER) & (self.first != NEVER)
        return [(int(s), int(a), int(self.first[s, a])) for s, a in np.argwhere(news)]

    def told(self, seed: int, agent: int, who: str) -> str:
        """What the agent, called `who`, first met."""
        update = int(self.first[seed, agent])
        if self.reward[seed, agent] == update:
            return f"{who} got a reward that is not a finite number after {update:,} updates"
        return f"the loss or a parameter of {who} is not a finite number from update {update:,} on"

    def sentence(self, experiment: Experiment, thetas: Array) -> str | None:
        """Who was first, and how many there are; None if nobody has."""
        if not self.agents:
            return None
        seed, agent = self.agents[0]
        place = theta_in_words(experiment, thetas[seed, agent])
        what = self.told(seed, agent, f"agent {agent} of seed {seed} ({place})")
        seeds = len({seed for seed, _ in self.agents})
        return (
            f"{what} (by now {len(self.agents)} of {self.first.size} agents, in {seeds} of "
            f"{len(thetas)} seeds)"
        )


def theta_in_words(experiment: Experiment, theta: Array) -> str:
    """The constants of an environment by name."""
    pairs = zip(experiment.family.varied, theta, strict=True)
    return ", ".join(f"{varied.name} = {value:.6g}" for varied, value in pairs) or "no theta"


def in_evaluation(
    record: Record | None, leg: Leg, experiment: Experiment, thetas: Array
) -> str | None:
    """Which return is not finite, the first one; None if all are."""
    for returns in (record.returns, record.own) if record else ():
        if returns is None:
            continue
        bad = np.argwhere(~np.isfinite(returns.undiscounted))
        if len(bad):
            seed, environment = int(bad[0][0]), int(bad[0][-1])
            theta = theta_in_words(experiment, thetas[seed, environment])
            held_out = environment - experiment.agents
            kind, number = ("held-out", held_out) if held_out >= 0 else ("training", environment)
            return (
                f"after {leg.trained:,} {experiment.unit}, a return in {kind} environment {number} "
                f"of seed {seed} ({theta}) is not a finite number"
            )
    return None


def too_large(record: Record | None) -> str | None:
    """A warning about numbers that 32 bits can hardly hold."""
    if record is None:
        return None
    both = [*(record.returns or ()), *(record.own or ()), record.seen.collected, record.seen.loss]
    largest = max(float(np.max(np.abs(x), initial=0, where=np.isfinite(x))) for x in both)
    if largest < LARGE:
        return None
    return (
        f"there are returns or losses as large as {largest:.1e}, and squares of such numbers do "
        "not fit into 32 bits: scale the rewards"
    )
