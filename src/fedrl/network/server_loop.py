"""The server's loop: send the model, wait for offers, step, save; again."""

from fedrl.network.asynchronous import AsynchronousRounds
from fedrl.network.server import Server
from fedrl.network.synchronous import rounds_left


def train(server: Server) -> None:
    """All rounds that are left, and the final model."""
    if server.side.experiment.timing.arrivals:
        AsynchronousRounds(server).run()
    # The last one, which only evaluates, waits for everybody.
    rounds_left(server)
    server.record.finish(server.side.models(server.progress.server))
