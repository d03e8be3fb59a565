"""An agent that answers the server and keeps its private state on its own disk.

The state is written before the answer leaves. Asked for the same round again, after a kill on
either side, the agent gives the same answer and does not learn twice.
"""

import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedrl.errors import FedrlError
from fedrl.files import locked
from fedrl.network.agent_client import AgentClient, like, named, shapes
from fedrl.network.deployment import FINISHED
from fedrl.network.messages import Answer, Instruction
from fedrl.network.validation import not_finite, why_not
from fedrl.runs import checkpoint

# Trainings whose state is kept, the newest: one may want to look back, disks are small.
KEPT = 3


class Agent:
    """One agent of a federation, in one folder."""

    def __init__(self, folder: Path, client: AgentClient, experiment: str) -> None:
        """`experiment` is the digest of the settings that the client follows."""
        self._folder, self._client, self._experiment = folder, client, experiment
        self._known: object = None
        """The training whose state is in memory, and the mark of its file."""
        self._answer: Answer | None = None
        self._state: Any = None
        self._offered = 0

    def answer(self, instruction: Instruction) -> Answer:
        """Do what the server asks, and keep what came of it."""
        with ExitStack() as stack:
            try:
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                stack.enter_context(locked(self._folder))
            except OSError as error:
                raise FedrlError(
                    f"{self._folder} cannot be used ({error.strerror}): the agent keeps its state "
                    "there"
                ) from None
            return self._answered(instruction)

    def _answered(self, asked: Instruction) -> Answer:
        client = self._client
        if asked.experiment != self._experiment:
            raise FedrlError(
                f"the server trains another experiment ({asked.experiment}) than this agent "
                f"({self._experiment}): give it the server's experiment.toml"
            )
        if asked.model and (wrong := why_not(asked.model, shapes(client.sent))):
            raise FedrlError(f"the server's model cannot be used: {wrong}")
        # Also if another process has worked from this disk since.
        if self._known != (asked.training, self._mark(asked.training)):
            self._load(asked.training)
        if self._answer is not None and asked.round <= self._answer.round:
            if asked.round == self._answer.round:
                return self._answer
            raise FedrlError(
                f"the server asks for round {asked.round}, this agent is at {self._answer.round}: "
                "the server has lost its checkpoints; begin a new training"
            )
        start, state, offered = time.monotonic(), self._state, self._offered
        # Until the new state is on disk there is none: after an error it is read again.
        self._known = None
        received = like(client.sent, asked.model) if asked.model else None
        if state is None:
            state = client.begin(received)
        elif received is not None:
            state = client.receive(state, received, asked.counted == offered)
        metrics: dict[str, float] = {}
        if asked.evaluate:
            state, metrics = client.evaluate(state, asked.trained)
            if wrong := not_finite(metrics):
                raise FedrlError(f"this agent has diverged before round {asked.round}: {wrong}")
        shared = {}
        if asked.E:
            state = client.work(state, asked.E, asked.trained, asked.scale)
            shared, offered = named(client.offer(state)), asked.round
            if wrong := why_not(shared, shapes(client.offered)):
                raise FedrlError(
                    f"this agent's training has diverged in round {asked.round}: {wrong}"
                )
        metrics["seconds"] = time.monotonic() - start
        self._state, self._offered = state, offered
        self._answer = Answer(asked.round, metrics, shared)
        self._save(asked.training, self._answer)
        self._known = asked.training, self._mark(asked.training)
        self._note(finished=asked.trained >= client.experiment.updates)
        return self._answer

    def _note(self, *, finished: bool) -> None:
        """Leave a mark for `fedrl agent`, which tells its owner."""
        mark = self._folder / FINISHED
        with suppress(OSError):  # the answer is worth more
            if finished:
                mark.touch()
            else:
                mark.unlink(missing_ok=True)

    def _mark(self, training: str) -> object:
        """Changes when the file does."""
        try:
            stat = self._file(training).stat()
        except FileNotFoundError:
            return None
        return stat.st_mtime_ns, stat.st_ino

    def _file(self, training: str) -> Path:
        if not training.isalnum():
            raise FedrlError(f"not a name of a training: {training!r}")
        return self._folder / f"{training}.npz"

    def _load(self, training: str) -> None:
        """What the disk says; nothing if this training is new to the agent."""
        self._known = None
        mark, self._answer, self._state, self._offered = self._mark(training), None, None, 0
        file = self._file(training)
        if file.exists():
            try:
                about, leaves = checkpoint.read(file, self._experiment)
                self._state = self._client.restore(leaves)
                if self._state is None:
                    raise FedrlError(f"{file} has arrays of other shapes than this experiment")
            except FedrlError as error:
                raise FedrlError(
                    f"{error}. It is the state of this agent: move it away, and the agent begins "
                    "anew with the server's model"
                ) from None
            number, self._offered = about["round"], about["offered"]
            shared = named(self._client.offer(self._state)) if self._offered == number else {}
            self._answer = Answer(number, about["metrics"], shared)
        self._known = training, mark

    def _save(self, training: str, answer: Answer) -> None:
        leaves = [np.asarray(leaf) for leaf in jax.device_get(jax.tree.leaves(self._state))]
        about = {"round": answer.round, "metrics": answer.metrics, "offered": self._offered}
        file = self._file(training)
        try:
            checkpoint.write(file, self._experiment, leaves, **about)
        except OSError as error:
            raise FedrlError(
                f"the state of this agent cannot be written to {file} ({error.strerror}); the "
                "state before this round is still there"
            ) from None
        others = sorted(
            (path for path in self._folder.glob("*.npz") if path != file),
            key=lambda path: path.stat().st_mtime,
        )
        # And what a kill in the middle of writing has left.
        for old in (*others[: 1 - KEPT], *self._folder.glob(".*.npz.*")):
            old.unlink()
