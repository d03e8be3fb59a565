"""Where agents' private embeddings lie, and whether theta can be read from them."""

from collections.abc import Sequence

import numpy as np

from fedrl.files import Array
from fedrl.report.arms import in_own_environment, thetas_of
from fedrl.report.html.numbers import extremes
from fedrl.report.html.points import Point, coloured_chart
from fedrl.report.html.section import Section
from fedrl.report.html.svg import Chart
from fedrl.runs.run import Run
from fedrl.runs.run_directory import RunDirectory

LEAF = "view/embedding"
DIRECTLY = 2
"""So many numbers are drawn as they are."""


def embeddings_section(runs: Sequence[Run]) -> Section | None:
    """A map for each network with an embedding, each run and constant; None if there are none."""
    personal = [run for run in runs if run.experiment.learner.personal.embedding]
    if not personal:
        return None
    charts: list[Chart] = []
    notes: list[str] = []
    projected = False
    for run in personal:
        found = _maps(run, f", {run.path.name}" if len(personal) > 1 else "")
        if isinstance(found, str):
            notes.append(f"{run.path.name}: {found}")
        else:
            charts += found
            projected |= run.experiment.learner.personal.embedding > DIRECTLY
    words = ["Each point is the private embedding of one agent at the end, coloured by theta."]
    if projected:
        words.append(
            "The axes are the two directions in which embeddings of a seed differ most (PCA). Each "
            "seed has networks, and so directions, of its own: they are centred, and mirrored "
            "where that makes them rise with the colour, so that a slight rise means nothing."
        )
    return Section("embeddings", "Embeddings", words if charts else (), charts=charts, notes=notes)


def _maps(run: Run, which: str) -> list[Chart] | str:
    """The maps of a run, or why there are none."""
    if run.experiment.learner.trains in ("shared", "nothing"):
        return "not shown: the embeddings were not trained."
    if not run.finished:
        return "embeddings are shown once the run is finished."
    # (seeds, models, numbers) by network: the average first, then each agent's.
    stored = {
        name.removesuffix(LEAF).strip("/").replace("/", " "): leaf
        for name, leaf in RunDirectory.open(run.path).models().items()
        if name.endswith(LEAF)
    }
    if any(leaf.shape[1] == 1 for leaf in stored.values()):
        return (
            "not shown. Embeddings are private and stayed on the agents’ machines; the server has "
            "the shared parameters only."
        )
    if not all(np.isfinite(leaf).all() for leaf in stored.values()):
        return "not shown: some embeddings are not finite numbers, since agents have diverged."
    thetas = _thetas(run)
    if thetas is None:
        return "not shown: theta is not among the measurements."
    return [
        _map(
            leaf[:, 1:].astype(float),
            thetas[..., i],
            varied.name,
            f"{network and ', '}{network}{which}",
        )
        for network, leaf in stored.items()
        for i, varied in enumerate(run.experiment.family.varied)
    ]


def _thetas(run: Run) -> Array | None:
    """(seeds, agents, constants): where agents live."""
    thetas = thetas_of(in_own_environment(run.metrics()))
    experiment = run.experiment
    shape = (experiment.seeds, experiment.agents, len(experiment.family.varied))
    if thetas.isna().any() or len(thetas) != shape[0] * shape[1]:
        return None
    return np.array([str(theta).split() for theta in thetas], float).reshape(shape)


def _map(embeddings: Array, values: Array, name: str, which: str) -> Chart:
    """Embeddings of (seeds, agents, numbers), coloured by a constant of (seeds, agents)."""
    size = embeddings.shape[-1]
    if size > DIRECTLY:
        places = np.stack([main_directions(*one) for one in zip(embeddings, values, strict=True)])
        labels = ("first direction", "second direction")
    elif size == DIRECTLY:
        places, labels = embeddings, ("first number", "second number")
    else:
        places, labels = np.stack([embeddings[..., 0], values], -1), ("embedding", name)
    points = [
        Point(x, y, f"seed {seed} · agent {agent}", f"{name} {value:.4g}", value)
        for (seed, agent), value in np.ndenumerate(values)
        for x, y in [places[seed, agent].tolist()]
    ]
    return coloured_chart(f"by {name}{which}", points, labels, name, extremes(values))


def main_directions(embeddings: Array, values: Array) -> Array:
    """(agents, 2): the embeddings in their two main directions, which rise with the values."""
    centred = embeddings - embeddings.mean(0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    places = np.zeros((len(centred), 2))
    found = centred @ directions[:2].T
    signs = np.where((values - values.mean()) @ found < 0, -1.0, 1.0)
    places[:, : found.shape[1]] = found * signs
    return places
