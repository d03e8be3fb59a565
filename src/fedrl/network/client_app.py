"""The ClientApp: a fork of the agent's SuperExec for every message, so it does as little as it can.

It hands the message to the agent's worker, which has everything in memory. Where there is none, it
works from the agent's disk itself.
"""

import sys
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedrl.errors import FedrlError
from fedrl.network.flower_records import asked, refused, telling
from fedrl.network.socket import ask_worker

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """One round; `agent` in the node's settings is the agent's folder."""
    folder = Path(str(context.node_config["agent"]))
    answer = ask_worker(folder, message.content)
    if answer is None:
        print("fedrl: no worker is running, working from disk", file=sys.stderr, flush=True)
        # JAX and everything: only where it is needed.
        from fedrl.network.worker import agent_in

        answer = telling(agent_in(folder).answer(asked(message.content)))
    if (reason := refused(answer)) is not None:
        raise FedrlError(reason)
    return Message(answer, reply_to=message)
