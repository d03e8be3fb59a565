"""How long agents take for their local work, and whether the server waits for all of them."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fedrl.arguments import Check, Positives, check_fields, one_for_each, whole, within
from fedrl.errors import FedrlError

# At 10, ten thousand times as slow as the median agent, with one deviation.
Spread = Annotated[float, within("a number from 0 to 10", lambda x: 0 <= x <= 10)]


@dataclass(frozen=True)
class Timing:
    """A simulated clock: seconds of local work, and who waits for whom.

    Metrics then also tell the simulated time (metric `clock`), so that runs with equal agents and
    other rounds can be compared on it.
    """

    arrivals: Annotated[int, Check(partial(whole, smallest=0))] = 0
    """Step the server after so many arrivals (asynchronous rounds), weighting offers by their
    staleness; 0: wait for all agents that take part in a round."""
    staleness: Annotated[float, within("a number from 0 to 100", lambda x: 0 <= x <= 100)] = 0.5
    """Asynchronous rounds: the change that an agent offers counts (1 + s) ** -staleness if the
    model it began with is s rounds old."""
    seconds: Positives = ()
    """How long each agent takes for one unit of local work; 1 for every agent if empty."""
    spread: Spread = 0.0
    """Draw how slow agents are: their seconds are multiplied by exp(spread * a normal number)."""
    jitter: Spread = 0.0
    """The same, drawn anew for every round of every agent."""

    def __post_init__(self) -> None:
        check_fields(self, "timing")

    def check(self, agents: int, participation: float, communicates: bool) -> None:
        """Refuse what does not fit the rest of an experiment."""
        one_for_each("timing.seconds", self.seconds, agents)
        if not self.arrivals and self.staleness != Timing().staleness:
            raise FedrlError(
                f"timing.staleness = {self.staleness:g} is about rounds that do not wait for all "
                "agents: give timing.arrivals, too"
            )
        if self.arrivals > agents:
            raise FedrlError(
                f"timing.arrivals = {self.arrivals} waits for more than all {agents} agents: "
                "lower it"
            )
        if self.arrivals and participation < 1:
            raise FedrlError(
                f"timing.arrivals = {self.arrivals} lets the agents that arrive take part, and "
                f"participation = {participation:g} would draw them: give one of them"
            )
        if self.arrivals and not communicates:
            raise FedrlError(
                "timing.arrivals is about communications, and with E = inf there are none: leave "
                "it out"
            )
