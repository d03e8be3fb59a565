"""The server: trains the agents in worker processes and averages at the end of every round."""

import importlib
import multiprocessing as mp
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np

from benchmarks.dqn_peers.common import Episode, Group, Work, need, pieces


@dataclass
class Measured:
    """What a run gives."""

    seconds: float
    updates: int
    """Updates of each agent while the clock ran."""
    mean_return_last: float


def worker(connection: Connection, peer: str, work: Work, agents: list[int]) -> None:
    """Train some of the agents, in step with the server."""
    need("torch").set_num_threads(work.threads)
    build = importlib.import_module(f"benchmarks.dqn_peers.{peer}").build
    group: Group = build(work, agents)
    for piece in pieces(work):
        group.advance(piece.steps)
        connection.send((group.updates, group.parameters() if piece.averages else None))
        means = connection.recv()
        if piece.averages:
            group.load(means)
    connection.send(group.episodes())


def measure(peer: str, work: Work) -> Measured:
    """Run a peer and take the time from the end of the warm-up to the end of the last step."""
    # Not fork: a forked child would inherit whatever threads PyTorch had started here.
    context = mp.get_context("spawn")
    connections: list[Connection] = []
    for agents in np.array_split(np.arange(work.agents), min(work.processes, work.agents)):
        ours, theirs = context.Pipe()
        arguments = (theirs, peer, work, agents.tolist())
        context.Process(target=worker, args=arguments, daemon=True).start()
        theirs.close()  # so that a worker that dies is an error here, not a wait without end
        connections.append(ours)
    begun, begun_updates, updates = 0.0, 0, 0
    for piece in pieces(work):
        received = [connection.recv() for connection in connections]
        updates = received[0][0]
        means = None
        if piece.averages:
            uploads = zip(*(parameters for _, parameters in received), strict=True)
            means = [np.concatenate(arrays).mean(axis=0) for arrays in uploads]
        if piece.starts_clock:
            begun, begun_updates = time.perf_counter(), updates
        for connection in connections:
            connection.send(means)
    seconds = time.perf_counter() - begun
    episodes: list[Episode] = []
    for connection in connections:
        episodes += connection.recv()
    last = [value for _, value in sorted(episodes, key=lambda episode: episode[0])[-20:]]
    return Measured(seconds, updates - begun_updates, float(np.mean(last)))
