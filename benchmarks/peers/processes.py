"""The server: trains the agents in worker processes and averages at the end of every round."""

import importlib
import multiprocessing as mp
import os
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.peers.group import Array, Episode, Group, Work


@dataclass
class Measured:
    """What a run gives."""

    seconds: float
    updates: int
    """Updates of each agent while the clock ran."""
    mean_return_last: float | None


def worker(connection: Connection, peer: str, work: Work, agents: list[int], folder: str) -> None:
    """Train some of the agents, in step with the server, until it sends no more averages."""
    os.chdir(folder)  # MuJoCo writes its warnings where it is
    group: Group = importlib.import_module(f"benchmarks.peers.{peer}").build(work, agents)
    # The first round is that of the warm-up: whatever compiles does so in it.
    group.advance(work.learning_starts + work.E)
    while True:
        connection.send((group.updates, group.parameters()))
        means = connection.recv()
        if means is None:
            break
        group.load(means)
        group.advance(work.E)
    connection.send(group.episodes())


def average(received: list[Any]) -> list[Array]:
    uploads = zip(*(parameters for _, parameters in received), strict=True)
    return [np.concatenate(arrays).mean(axis=0) for arrays in uploads]


def measure(peer: str, work: Work) -> Measured:
    """Run a peer, as in `dqn.sb3`, and take the time of all rounds after the warm-up."""
    # Not fork: a forked child would inherit whatever threads PyTorch had started here.
    context = mp.get_context("spawn")
    connections: list[Connection] = []
    with tempfile.TemporaryDirectory() as folder:
        for agents in np.array_split(np.arange(work.agents), min(work.processes, work.agents)):
            ours, theirs = context.Pipe()
            arguments = (theirs, peer, work, agents.tolist(), folder)
            context.Process(target=worker, args=arguments, daemon=True).start()
            theirs.close()  # so that a worker that dies is an error here, not a wait without end
            connections.append(ours)
        received = [connection.recv() for connection in connections]
        begun, begun_updates = time.perf_counter(), received[0][0]
        while (seconds := time.perf_counter() - begun) < work.seconds:
            means = average(received)
            for connection in connections:
                connection.send(means)
            received = [connection.recv() for connection in connections]
        episodes: list[Episode] = []
        for connection in connections:
            connection.send(None)
            episodes += connection.recv()
    last = [value for _, value in sorted(episodes, key=lambda episode: episode[0])[-20:]]
    mean = float(np.mean(last)) if last else None
    return Measured(seconds, received[0][0] - begun_updates, mean)
