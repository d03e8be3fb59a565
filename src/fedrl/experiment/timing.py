"""How long agents take for their local work, and whether the server waits for all of them."""

from dataclasses import dataclass

from fedrl import arguments
from fedrl.counting import count
from fedrl.errors import FedrlError

# Ten thousand times as slow as the median agent, with one deviation.
LARGEST_SPREAD = 10.0


@dataclass(frozen=True)
class Timing:
    """A simulated clock: seconds of local work, and who waits for whom.

    Metrics then also tell the simulated time (metric `clock`), so that runs with equal agents and
    other rounds can be compared on it.
    """

    arrivals: int = 0
    """Step the server after so many arrivals (asynchronous rounds), weighting offers by their
    staleness; 0: wait for all agents that take part in a round."""
    staleness: float = 0.5
    """Asynchronous rounds: the change that an agent offers counts (1 + s) ** -staleness if the
    model it began with is s rounds old."""
    seconds: tuple[float, ...] = ()
    """How long each agent takes for one unit of local work; 1 for every agent if empty."""
    spread: float = 0.0
    """Draw how slow agents are: their seconds are multiplied by exp(spread * a normal number)."""
    jitter: float = 0.0
    """The same, drawn anew for every round of every agent."""

    def __post_init__(self) -> None:
        if not isinstance(self.seconds, (tuple, list)):
            raise FedrlError(f"timing.seconds must be a list of numbers, got {self.seconds!r}")
        number = arguments.number
        arguments.settle(
            self,
            arrivals=arguments.whole("timing.arrivals", self.arrivals, smallest=0),
            seconds=tuple(
                number("timing.seconds", x, "a positive number", lambda x: 0 < x < 1e30)
                for x in self.seconds
            ),
            staleness=number(
                "timing.staleness",
                self.staleness,
                "a number from 0 to 100",
                lambda x: 0 <= x <= 100,
            ),
            **{
                name: number(
                    f"timing.{name}",
                    getattr(self, name),
                    f"a number from 0 to {LARGEST_SPREAD:g}",
                    lambda x: 0 <= x <= LARGEST_SPREAD,
                )
                for name in ("spread", "jitter")
            },
        )

    def check(self, agents: int, participation: float, communicates: bool) -> None:
        """Refuse what does not fit the rest of an experiment."""
        if self.seconds and len(self.seconds) != agents:
            raise FedrlError(
                f"timing.seconds has {count(len(self.seconds), 'numbers')} for "
                f"{count(agents, 'agents')}: give one for each"
            )
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
