"""What the form of programs with few launches gains on an accelerator (`fedrl.launches`).

Both forms of the same experiment in turn, in one process; then what strategies cost there.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.dqn_scaling import REPLAY, measure
from benchmarks.machine import describe
from fedrl.engine import single_device
from fedrl.engine.layout import launch_bound
from fedrl.experiment.settings import Experiment
from fedrl.families.cartpoles import CartPoles
from fedrl.learners.dqn import DQN
from fedrl.strategies import ControlVariates, Momentum

Bound = Callable[[Experiment, int], bool]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    machine = describe()

    def row(what: str, experiment: Experiment, bound: Bound = launch_bound) -> None:
        setattr(single_device, "launch_bound", bound)  # noqa: B010 (not its own name)
        found = measure(experiment, updates=1000, repeats=5)
        rows.append({"what": what, **found})
        size = f"{found['hidden']} {experiment.agents} x {experiment.seeds}"
        print(f"{what}: {size}: {found['updates_per_second']:,.0f} updates/s", flush=True)
        if given.json:
            given.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")

    for hidden, batch in (((128,), 16), ((64, 64), 64)):
        learner = DQN(hidden=hidden, batch=batch, replay=REPLAY)
        base = Experiment("forms", CartPoles(), learner, seeds=1)
        for experiment in (base, base, replace(base, seeds=64)):
            row("few launches", experiment)
            row("usual form", experiment, lambda *_: False)
    base = Experiment("strategies", CartPoles(), DQN(replay=REPLAY), seeds=1)
    row("momentum", replace(base, server_optimizer=Momentum()))
    for seeds in (1, 4096):
        row("plain", replace(base, seeds=seeds))
        row("control variates", replace(base, seeds=seeds, correction=ControlVariates()))
    row("plain", replace(base, agents=20_000))


if __name__ == "__main__":
    main()
