"""Agents in environments nobody has trained in, that begin with what others have learnt.

An adaptation is a run of its own: its agents never communicate, and one lives in each new
environment. The methods differ in what they train.
"""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict, get_args

import jax
import jax.numpy as jnp
import numpy as np

from fedrl import arguments
from fedrl.engine.agent import stacked
from fedrl.engine.local_engine import LocalEngine
from fedrl.engine.programs import Start, drawn_thetas
from fedrl.errors import FedrlError, unknown_name
from fedrl.experiment.settings import Evaluation, Experiment
from fedrl.files import Array
from fedrl.keys import Purpose, numbered, replicate_key
from fedrl.learners.personalisation import Part

Method = Literal["e-update", "en-update", "phi-update", "n-update", "scratch"]
Embedding = Literal["average", "random"]
METHODS: dict[Method, Part] = {
    "e-update": "private",
    "en-update": "everything",
    "phi-update": "nothing",
    "n-update": "shared",
    "scratch": "everything",
}
"""What each trains; `scratch` begins with a random network."""
EVALUATIONS = 20
"""How often an adaptation is evaluated, unless said."""


class AdaptationSettings(TypedDict, total=False):
    """What can be said about an adaptation."""

    method: Method
    """What is trained; `e-update`, the private parts, unless given."""
    embedding: Embedding
    """Begin with the average of the trained embeddings (unless given), or with a random one."""
    updates: int | None
    """Length of the training, in the run's unit; half of the run's unless given."""
    every: int | None
    """Training between two evaluations; a twentieth of it unless given."""
    episodes: int | None
    """Greedy episodes of an evaluation; as in the run unless given."""
    embedding_lr: float | None
    """Step size of the embedding's Adam; as in the run unless given."""
    seed: int
    """In a Gymnasium environment: which of the run's seeds; 0 unless given."""
    out: str | Path | None
    """Folder for the new run; `adapted` in the run unless given."""
    progress: bool
    """Whether to show how it goes; True unless given."""


class Adaptation(NamedTuple):
    """How to adapt: the settings that change the result."""

    method: Method = "e-update"
    embedding: Embedding = "average"
    updates: int | None = None
    every: int | None = None
    episodes: int | None = None
    embedding_lr: float | None = None

    @classmethod
    def from_settings(cls, settings: AdaptationSettings) -> "Adaptation":
        known = set(AdaptationSettings.__annotations__)
        for name in settings:
            if name not in known:
                raise unknown_name("setting of an adaptation", name, known)
        return cls(**{name: x for name, x in settings.items() if name in cls._fields})  # type: ignore[arg-type]


def refuse_impossible(how: Adaptation, experiment: Experiment) -> None:
    """Say what does not fit the run, before anything is done."""
    arguments.choice("method", how.method, get_args(Method))
    arguments.choice("embedding", how.embedding, get_args(Embedding))
    personal = experiment.learner.personal
    if how.method == "e-update" and not personal:
        raise FedrlError(
            "e-update trains what is private, and the agents of this run share everything: use "
            "n-update, or a personalised run (learner.personal, presets *-per*)"
        )
    for name, given in (("embedding_lr", how.embedding_lr), ("embedding", how.embedding)):
        if given not in (None, "average") and not personal.embedding:
            raise FedrlError(f"{name} = {given}: the agents of this run have no embedding")


def experiment_of(how: Adaptation, experiment: Experiment, environments: int) -> Experiment:
    """The run that an adaptation is."""
    refuse_impossible(how, experiment)
    half = max(experiment.updates // 2, 1)
    updates = arguments.whole("updates", half if how.updates is None else how.updates)
    often = max(updates // EVALUATIONS, 1)
    as_before = experiment.evaluation.episodes
    learner = experiment.learner if how.method == "scratch" else experiment.learner.experienced()
    personal = learner.personal
    if how.embedding_lr is not None:
        personal = replace(personal, embedding_lr=how.embedding_lr)
    learner = replace(learner, personal=personal, trains=METHODS[how.method])
    if experiment.unit == "updates":
        # No more than there will be to remember.
        seen = updates * learner.update_every + learner.learning_starts
        learner = replace(learner, replay=min(learner.replay, seen))
    # The root of the random numbers of a run's adaptations: the same for all, not the run's.
    root = sha256(f"adaptation of a run with seed {experiment.seed}".encode()).digest()[:4]
    return replace(
        experiment.without_communication(),
        name=f"{experiment.name}-{how.method}",
        learner=learner,
        agents=environments,
        held_out=0,
        updates=updates,
        initialisation="per-agent",
        evaluation=Evaluation(
            every=often if how.every is None else how.every,
            episodes=as_before if how.episodes is None else how.episodes,
            where="own",
        ),
        seed=int.from_bytes(root, "big"),
    )


def start_of(how: Adaptation, experiment: Experiment, models: Any, thetas: Array) -> Start:
    """Where its agents begin. `models`: the run's averaged ones, seeds first."""
    seeds, environments = thetas.shape[:2]
    adapting = experiment_of(how, experiment, environments)

    def params(replicate: jax.Array, model: Any) -> Any:
        if how.method == "scratch":
            return LocalEngine(adapting).first_params(replicate)
        personal = adapting.learner.personal
        if adapting.learner.trains in ("private", "everything"):
            model = personal.taken_over(model)
        copies = stacked(model, environments)
        if how.embedding == "average":
            return copies
        key = replicate_key(adapting.seed, replicate, Purpose.EMBEDDING)
        return jax.vmap(personal.with_new_embeddings)(copies, numbered(key, environments))

    begins = jax.jit(jax.vmap(params))(jnp.arange(seeds, dtype=jnp.int32), models)
    return Start(thetas, jax.tree.map(np.asarray, begins))


def held_out_thetas(experiment: Experiment) -> Array:
    """(seeds, M, varied constants): the environments a run was never trained in."""
    if not experiment.held_out:
        raise FedrlError("this run has no held-out environments: say where with theta")
    return drawn_thetas(experiment)[:, experiment.agents :]
