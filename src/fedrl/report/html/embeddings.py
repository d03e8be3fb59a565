"""Where agents' private embeddings lie, and whether theta can be read from them."""

from collections.abc import Sequence

import numpy as np

from fedrl.files import Array
from fedrl.report.html.points import Coloured, Point, coloured_chart
from fedrl.report.html.section import Section
from fedrl.report.html.svg import Chart
from fedrl.runs.metrics import AVERAGE, TRAIN
from fedrl.runs.run import Run
from fedrl.runs.run_directory import RunDirectory

LEAF = "view/embedding"
DIRECTLY = 2
"""So many numbers are drawn as they are."""


def embeddings_section(runs: Sequence[Run]) -> Section | None:
    """A map for each network with an embedding, each run and constant; None if there are none."""
    key, title = "embeddings", "Embeddings"
    personal = [run for run in runs if run.experiment.learner.personal.embedding]
    if not personal:
        return None
    charts: list[Chart] = []
    notes: list[str] = []
    projected = False
    for run in personal:
        why = _why_not(run)
        if why:
            notes.append(f"{run.path.name}: {why}")
            continue
        charts += _maps(run, several=len(personal) > 1)
        projected |= run.experiment.learner.personal.embedding > DIRECTLY
    words = ["Each point is the private embedding of one agent at the end, coloured by theta."]
    if projected:
        words.append(
            "The axes are the two directions in which embeddings of a seed differ most (PCA). Each "
            "seed has networks, and so directions, of its own: they are centred, and mirrored "
            "where that makes them rise with the colour, so that a slight rise means nothing."
        )
    return Section(key, title, words if charts else (), charts=charts, notes=notes)


def _why_not(run: Run) -> str | None:
    """Why there is no map of a run."""
    if run.experiment.learner.trains in ("shared", "nothing"):
        return "not shown: the embeddings were not trained."
    if not run.finished:
        return "embeddings are shown once the run is finished."
    if _stored(run)[0][1].shape[1] == 1:
        return (
            "not shown. Embeddings are private and stayed on the agents’ machines; the server has "
            "the shared parameters only."
        )
    if not all(np.isfinite(embeddings).all() for _, embeddings in _stored(run)):
        return "not shown: some embeddings are not finite numbers, since agents have diverged."
    if _thetas(run) is None:
        return "not shown: theta is not among the measurements."
    return None


def _stored(run: Run) -> list[tuple[str, Array]]:
    """(network, embeddings of (seeds, models, numbers)): the average first, then each agent's."""
    models = RunDirectory.open(run.path).models()
    return [
        (name.removesuffix(LEAF).strip("/").replace("/", " "), leaf)
        for name, leaf in models.items()
        if name.endswith(LEAF)
    ]


def _thetas(run: Run) -> Array | None:
    """(seeds, agents, constants): where agents live."""
    frame = run.metrics()
    frame = frame[(frame["split"] == TRAIN) & (frame["agent"] != AVERAGE)]
    homes = frame[frame["agent"] == frame["environment"].astype(str)]
    homes = homes.drop_duplicates(["seed", "environment"]).sort_values(["seed", "environment"])
    experiment = run.experiment
    shape = (experiment.seeds, experiment.agents, len(experiment.family.varied))
    if homes["theta"].isna().any() or len(homes) != shape[0] * shape[1]:
        return None
    return np.array([str(theta).split() for theta in homes["theta"]], float).reshape(shape)


def _maps(run: Run, several: bool) -> list[Chart]:
    thetas = _thetas(run)
    assert thetas is not None
    charts = []
    for network, stored in _stored(run):
        embeddings = stored[:, 1:].astype(float)
        for i, varied in enumerate(run.experiment.family.varied):
            values = thetas[..., i]
            size = embeddings.shape[-1]
            x_label, y_label = ("first direction", "second direction")
            if size > DIRECTLY:
                places = np.stack(
                    [main_directions(*one) for one in zip(embeddings, values, strict=True)]
                )
            elif size == DIRECTLY:
                places, (x_label, y_label) = embeddings, ("first number", "second number")
            else:
                places = np.stack([embeddings[..., 0], values], -1)
                x_label, y_label = "embedding", varied.name
            which = [f"by {varied.name}", *([network] if network else [])]
            title = ", ".join([*which, *([run.path.name] if several else [])])
            charts.append(
                coloured_chart(
                    title,
                    _coloured(places, values, varied.name),
                    x_label=x_label,
                    y_label=y_label,
                    colour_label=varied.name,
                )
            )
    return charts


def _coloured(places: Array, values: Array, name: str) -> list[Coloured]:
    return [
        Coloured(
            Point(
                float(places[seed, agent, 0]),
                float(places[seed, agent, 1]),
                f"seed {seed} · agent {agent}",
                f"{name} {value:.4g}",
            ),
            float(value),
        )
        for (seed, agent), value in np.ndenumerate(values)
    ]


def main_directions(embeddings: Array, values: Array) -> Array:
    """(agents, 2): the embeddings in their two main directions, which rise with the values."""
    centred = embeddings - embeddings.mean(0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    places = np.zeros((len(centred), 2))
    found = centred @ directions[:2].T
    signs = np.where((values - values.mean()) @ found < 0, -1.0, 1.0)
    places[:, : found.shape[1]] = found * signs
    return places
