"""Our own DQNAvg and DDPGAvg: whole runs, stopped after some seconds.

    python -m benchmarks.training dqn --hidden 128 --batch 16 --seeds 8 --seconds 4

They do the work of `peers` and what a run does besides: metrics, checkpoints, and for DQNAvg the
evaluation in 25 environments every 1000 updates. Those of robots come every 20,000 updates, as in
our presets, and few are short enough to see one: they are 0.2 to 1 % of the time. One JSON line
with the updates per second of all agents and seeds is printed.
"""

import argparse
import json
import signal
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

import fedrl
from benchmarks.machine import versions
from benchmarks.peers.ddpg import common as ddpg
from benchmarks.peers.dqn import common as dqn
from fedrl.engine.plan import plan
from fedrl.experiment.settings import Evaluation, Experiment
from fedrl.families.cartpoles import CartPoles
from fedrl.learners.ddpg import DDPG
from fedrl.learners.dqn import DQN
from fedrl.progress import Silence
from fedrl.runs.driver import carry_out
from fedrl.runs.run_directory import RunDirectory

AGENTS, E = 5, 100
# More than are ever made: the clock ends a run.
UPDATES = 1_000_000
# Legs before the clock starts: an evaluation and two of training. They compile, and the first
# checkpoint comes between them.
BEFORE = 3


class Stopwatch(Silence):
    """Starts when so much is done, and asks the run to stop after some seconds."""

    def __init__(self, before: float, seconds: float) -> None:
        self._before, self._seconds = before, seconds
        self._done = self._done_then = self._then = self._now = 0.0
        self._asked = False

    def advance(self, amount: float) -> None:
        self._done += amount
        self._now = time.perf_counter()
        if not self._then and self._done > self._before - 0.5:
            self._then, self._done_then = self._now, self._done
        elif self._then and not self._asked and self._now - self._then >= self._seconds:
            self._asked = True
            signal.raise_signal(signal.SIGINT)  # the run ends this leg and leaves

    def warn(self, text: str) -> None:
        """That it is about to stop, which we know."""

    def rate(self) -> float:
        """Units of work per second, for each seed and agent."""
        return (self._done - self._done_then) / (self._now - self._then)


def cartpoles(hidden: tuple[int, ...], batch: int) -> Experiment:
    learner = DQN(
        hidden=hidden,
        gamma=dqn.GAMMA,
        batch=batch,
        lr=dqn.LEARNING_RATE,
        replay=dqn.CAPACITY,
        learning_starts=dqn.LEARNING_STARTS,
        target_every=dqn.TARGET_INTERVAL,
        exploration="linear",
        epsilon_end=dqn.EPSILON_FINAL,
        epsilon_updates=dqn.EPSILON_STEPS,
    )
    return Experiment(
        name="bench", family=CartPoles(), learner=learner, evaluation=Evaluation(every=1000)
    )


def robots(hidden: tuple[int, ...], batch: int) -> Experiment:
    learner = DDPG(
        hidden=hidden,
        gamma=ddpg.GAMMA,
        batch=batch,
        replay=ddpg.CAPACITY,
        learning_starts=ddpg.LEARNING_STARTS,
        actor_lr=ddpg.LEARNING_RATE,
        critic_lr=ddpg.LEARNING_RATE,
        tau=ddpg.TAU,
        sigma=ddpg.SIGMA,
    )
    base: Experiment = fedrl.preset("halfcheetahs-ddpgavg")
    return replace(base, name="bench", learner=learner)


EXPERIMENTS = {"dqn": cartpoles, "ddpg": robots}


def measure(base: Experiment, seeds: int, seconds: float) -> float:
    """Updates per second over all agents and seeds."""
    experiment = replace(base, agents=AGENTS, E=E, updates=UPDATES, seeds=seeds)
    before = islice(plan(experiment), BEFORE)
    watch = Stopwatch(sum(leg.rounds * leg.E + leg.evaluates for leg in before), seconds)
    with tempfile.TemporaryDirectory() as folder, suppress(KeyboardInterrupt):
        carry_out(RunDirectory.create(Path(folder), experiment), watch)
    # Of 1001 units in a leg of 1000 updates one is the evaluation.
    every = experiment.evaluation.every
    return AGENTS * seeds * watch.rate() * every / (every + 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("algorithm", choices=EXPERIMENTS)
    parser.add_argument("--hidden", default="64,64", help="units of the hidden layers")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4.0, help="after the warm-up")
    given = parser.parse_args()
    hidden = tuple(int(units) for units in given.hidden.split(","))
    experiment = EXPERIMENTS[given.algorithm](hidden, given.batch)
    value = measure(experiment, given.seeds, given.seconds)
    print(json.dumps({"value": value, "versions": versions()}))


if __name__ == "__main__":
    main()
