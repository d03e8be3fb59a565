"""Tiny runs of all kinds, for the tests of pages."""

import shutil
from dataclasses import replace
from math import inf

import numpy as np

import fedrl
from fedrl.experiment.presets import preset
from fedrl.families.gymnasium_family import GymnasiumFamily
from fedrl.learners.personalisation import Personal
from fedrl.report.showing import page, report_of
from fedrl.runs.run_directory import RunDirectory
from tiny import TINY

HOSTILE = "<script>alert('&')</script>"
ALONE = replace(TINY, E=inf)
PERSONAL = replace(
    TINY, name="personal", agents=3, learner=replace(TINY.learner, personal=Personal(embedding=3))
)
ROLLOUTS = replace(preset("cartpoles-ppoavg"), seeds=2, held_out=0)
ROBOTS = replace(preset("halfcheetahs-perddpgavg"), seeds=2, held_out=0)
GYMNASIUM = replace(
    TINY,
    name="gym",
    family=GymnasiumFamily(
        environment="gymnasium_worlds:anything", vary=((HOSTILE, 1.0, 2.0),), time_limit=5
    ),
    updates=20,
    seeds=1,
    held_out=0,
)


def trained(experiment, folder):
    return fedrl.train(experiment, out=folder, progress=False)


def made_up(experiment, folder):
    """An unfinished run of any experiment, with returns drawn at random."""
    rng = np.random.default_rng(3)
    directory = RunDirectory.create(folder, experiment)
    own = experiment.evaluation.where == "own"
    thetas = [(v.low, v.high) for v in experiment.family.varied]
    lines = []
    for seed, j in np.ndindex(experiment.seeds, experiment.agents):
        theta = " ".join(f"{rng.uniform(*one):.9g}" for one in thetas)
        for agent in [j] if own else ["average", j]:
            lines.append(f"{seed},0,0,{agent},{j},{theta},train,return,{rng.uniform(-9, 9):.9g}")
    directory.save_metrics(0, "\n".join(lines) + "\n")
    return fedrl.Run(directory.path)


def unfinished(run, folder, until=20):
    """The same run as it was after so much training."""
    path = folder / run.path.name
    path.mkdir()
    for name in ("experiment.toml", "about.json"):
        shutil.copy(run.path / name, path)
    (path / "metrics").mkdir()
    lines = (run.path / "metrics.csv").read_text().splitlines(keepends=True)[1:]
    for when in range(0, until + 1, 20):
        rows = [line for line in lines if line.split(",")[2] == str(when)]
        (path / "metrics" / f"{when:010d}.csv").write_text("".join(rows))
    return fedrl.Run(path)


def page_of(runs):
    return page(report_of(runs))
