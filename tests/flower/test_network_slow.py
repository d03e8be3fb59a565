"""A large model and an agent with a slow connection."""

import socket
import socketserver
import threading
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from fedrl.experiment.settings import Evaluation
from fedrl.experiment.toml import to_toml
from fedrl.flower.experiments import model_size
from fedrl.flower.settings import AGENT, LOOPBACK, AgentSettings
from network import network, on_linux, with_nginx
from tiny import LEARNER, TINY

pytestmark = [with_nginx, on_linux, pytest.mark.network, pytest.mark.usefixtures("kept")]

EXPERIMENT = replace(
    TINY,
    name="slow",
    learner=replace(LEARNER, hidden=(1400, 1400)),
    agents=1,
    held_out=1,
    E=10,
    updates=20,
    seeds=1,
    evaluation=Evaluation(every=20, episodes=1),
)
# Bytes a second that arrive at the agent.
SPEED = 2 * 2**20
PART = 2**16


def pour(source, sink, speed):
    with suppress(OSError):
        while part := source.recv(PART):
            sink.sendall(part)
            time.sleep(len(part) / speed)
    for one in (source, sink):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


class SlowDoor(socketserver.ThreadingTCPServer):
    """A port that leads to another one, slowly."""

    daemon_threads = False  # which are waited for
    leads_to = 0

    class RequestHandlerClass(socketserver.BaseRequestHandler):
        def handle(self):
            with socket.socket() as far:
                far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PART)
                if far.connect_ex((LOOPBACK, self.server.leads_to)):
                    return
                there = threading.Thread(target=pour, args=(self.request, far, 1e9))
                there.start()
                pour(far, self.request, SPEED)
                there.join()


@pytest.fixture
def slow_door():
    with SlowDoor((LOOPBACK, 0), SlowDoor.RequestHandlerClass) as door:
        serving = threading.Thread(target=door.serve_forever)
        serving.start()
        yield door
        door.shutdown()
        serving.join()


def test_a_large_model_gets_to_an_agent_with_a_slow_connection(tmp_path, slow_door):
    assert model_size(EXPERIMENT).bytes > 7.5e6
    # Where this runs as root, nginx's worker is somebody else, who may not enter the folder.
    with network(tmp_path / "federation", EXPERIMENT) as one:
        slow_door.leads_to = one.ports[0]
        settings = AgentSettings(0, f"{LOOPBACK}:{slow_door.server_address[1]}")
        (one.folder.agent(0) / AGENT).write_text(to_toml(settings))
        one.server()
        one.agent(0)
        assert one.wait("server") == 0, one.log("server") + one.log("server", "nginx.log")
        assert one.status()["lost"] == []
        assert "Permission denied" not in one.log("server", "nginx.log")
