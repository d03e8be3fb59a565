"""Which seeds and which agents work side by side on one device.

On a CPU every seed is a call of its own, spread over the cores, and so is every wave of agents: a
wave that fits the cache learns faster than all agents at once, and with fewer seeds than cores the
waves keep the others busy. On an accelerator the seeds are one vectorised call, and agents come in
waves when they do not fit its memory; those whose turn it is not are kept by the host.

None of this changes a result: what an agent computes does not depend on who is beside it, as long
as somebody is. Alone, an agent's arithmetic is compiled in another order.
"""

from dataclasses import dataclass
from itertools import pairwise

from fedrl.arguments import whole
from fedrl.errors import FedrlError
from fedrl.experiment.settings import Experiment

# Agents in a wave on a CPU, at most: from 5 to 64 the time of an update is flat, at 512 it is a
# third to twice as long.
LARGEST_WAVE = 32
# Agents in a wave, at least.
SMALLEST_WAVE = 2
# Weights of a network times batch times agents times units in a round, from which on it is worth
# the calls to split it over cores: some milliseconds.
WORTH_SPLITTING = 4e6
# The same of a single unit, where each calls the host: several calls wait for Python's lock. Five
# robots at 64-64 (2e6) were a fifth slower on two cores, at 400-300 (4e7) 1.6 times as fast.
WORTH_SPLITTING_CALLS = 1e7
# Multiplications in a unit of all seeds of an accelerator up to which its kernels wait for their
# launches.
LAUNCH_BOUND = 5e7


@dataclass(frozen=True)
class Layout:
    """How the work of an experiment is divided."""

    groups: int
    """Seeds are divided into so many groups, each vectorised or one after the other."""
    waves: int
    """Agents are divided into so many."""
    resident: bool = True
    """Whether all waves stay on the device."""


def layout(
    experiment: Experiment,
    *,
    vectorised: bool,
    workers: int,
    wave: int | None = None,
    most_agents: int | None = None,
) -> Layout:
    """How to divide an experiment among `workers` cores or devices.

    `wave` is the user's wish, `most_agents` what an accelerator can hold of each seed.
    """
    seeds, agents = experiment.seeds, experiment.agents
    groups = min(workers, seeds) if vectorised else seeds
    refuse_unless_everybody_takes_part(experiment, wave)
    if not experiment.divisible:
        return Layout(groups, 1)
    largest = (most_agents if vectorised else None) if wave is None else wave
    if vectorised or wave is not None:
        count = 1 if largest is None else _count(agents, largest)
        return Layout(groups, count, resident=count == 1 or not vectorised)
    count = _count(agents, LARGEST_WAVE)
    idle = workers // seeds
    if idle > count and worth_splitting(experiment):
        count = min(idle, agents // SMALLEST_WAVE)
    return Layout(groups, max(count, 1))


def refuse_unless_everybody_takes_part(experiment: Experiment, wave: int | None) -> None:
    """Waves are of all agents: who is drawn for a round may be in any of them."""
    if wave is None:
        return
    whole("wave", wave)
    if wave < min(SMALLEST_WAVE, experiment.agents):
        raise FedrlError(
            f"wave = {wave}: at least {SMALLEST_WAVE} agents must work side by side, because one "
            "alone is computed in another order and would end up elsewhere"
        )
    if not experiment.divisible:
        why = f"participation is {experiment.participation:g}"
        if experiment.timing.arrivals:
            why = f"timing.arrivals is {experiment.timing.arrivals}"
        raise FedrlError(
            f"wave = {wave} needs all agents in every round, and {why}: leave wave out, then those "
            "that take part work at once"
        )


def weights(experiment: Experiment) -> int:
    """Weights of an agent's network, roughly."""
    family, learner = experiment.family, experiment.learner
    widths = (family.observation_size, *learner.hidden, family.actions)
    return sum(inputs * outputs for inputs, outputs in pairwise(widths))


def worth_splitting(experiment: Experiment) -> bool:
    """Whether a round is long enough to be worth several calls."""
    unit = weights(experiment) * experiment.learner.samples * experiment.agents
    if experiment.family.steps_on_host and unit < WORTH_SPLITTING_CALLS:
        return False
    return unit * min(experiment.E, experiment.evaluation.every) >= WORTH_SPLITTING


def launch_bound(experiment: Experiment, groups: int) -> bool:
    """Whether the kernels of so many groups of seeds have so little to do that launches count."""
    agents = experiment.agents * -(-experiment.seeds // groups)
    return agents * experiment.learner.samples * weights(experiment) <= LAUNCH_BOUND


def _count(agents: int, largest: int) -> int:
    """Waves of at most `largest` agents; equal ones if that takes not many more: one program."""
    fewest = -(-agents // largest)
    most = max(agents // SMALLEST_WAVE, 1)
    equal = (n for n in range(fewest, min(2 * fewest, most) + 1) if agents % n == 0)
    return min(next(equal, fewest), most)
