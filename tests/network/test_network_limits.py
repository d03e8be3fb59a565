"""What nginx lets through: as much as a model takes, however slowly, and no more."""

import re
import socket
import socketserver
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from fedrl.experiment.settings import Evaluation
from fedrl.experiment.toml import to_toml
from fedrl.network.deployment import AGENT, LOOPBACK, AgentSettings
from fedrl.network.nginx import AT_ONCE, model_size
from fedrl.tabular.experiment import TABULAR_PRESETS
from network import (
    PROTOBUF,
    connection,
    in_the_name_of,
    network,
    on_linux,
    status_of,
    until,
    with_nginx,
)
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


TABLES = replace(TABULAR_PRESETS["windycliffs-qavg"], agents=2)


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """A server that waits for its agents."""
    with network(tmp_path_factory.mktemp("limits") / "federation", TABLES) as one:
        one.server()
        until((one.folder.server / "nodes.json").exists, "the server")
        yield one


MB = 2**20


def send(training, length, headers, chunked=False):
    """Send the server so many bytes and stop when it has heard enough: the status of its answer."""
    one = connection(training)
    one.putrequest("POST", "/v1/fleet/push-object")
    about = {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(length)}
    for name, value in (PROTOBUF | about | headers).items():
        one.putheader(name, value)
    one.endheaders()
    # A field that protobuf does not know, as long as there are bytes.
    part = b"\x7a" + b"\xff" * (MB - 1)
    with suppress(OSError):
        for _ in range(length // MB):
            one.send(b"%x\r\n%s\r\n" % (MB, part) if chunked else part)
        if chunked:
            one.send(b"0\r\n\r\n")
    try:
        return one.getresponse().status
    except OSError:
        return None  # it has closed the connection
    finally:
        one.close()


def memory(training):
    """MB that the SuperLink holds."""
    (superlink,) = training.processes("flower-superlink")
    status = Path(f"/proc/{superlink.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024


@pytest.mark.parametrize("chunked", [False, True], ids=["length given", "chunked"])
@pytest.mark.parametrize(
    ("who", "refusals"),
    [("nobody", {407, 413, None}), ("agent 0", {413, None})],
    ids=lambda x: str(x),
)
def test_long_requests_of_strangers_do_not_reach_the_superlink(training, who, refusals, chunked):
    headers = in_the_name_of(training, 0) if who == "agent 0" else {}
    before = memory(training)
    with ThreadPoolExecutor(4) as pool:
        answers = set(pool.map(lambda _: send(training, 100 * MB, headers, chunked), range(4)))
    assert answers <= refusals
    assert memory(training) < before + 30


def test_requests_at_once_are_limited(training):
    headers = PROTOBUF | in_the_name_of(training, 0)

    def ask():
        return status_of(connection(training), "POST", "/v1/fleet/pull-messages", headers)

    with ExitStack() as waiting:
        for _ in range(AT_ONCE):
            one = waiting.enter_context(closing(connection(training)))
            one.putrequest("POST", "/v1/fleet/pull-messages")
            for name, value in (headers | {"Content-Length": "100"}).items():
                one.putheader(name, value)
            one.endheaders()  # and no body
        until(lambda: ask() == 503, "a refusal", seconds=20)
    until(lambda: ask() == 401, "the usual answer")


def test_requests_per_second_are_limited(training):
    headers = PROTOBUF | in_the_name_of(training, 0)
    one = connection(training)

    def ask():
        one.request("POST", "/v1/fleet/pull-messages", b"", headers)
        response = one.getresponse()
        response.read()
        return response.status

    most = model_size(TABLES).requests
    statuses = []
    while 503 not in statuses and len(statuses) < 20 * most:
        statuses.append(ask())
    one.close()
    # The burst that a message takes, and then no more than so many.
    assert len(statuses) > most
    assert set(statuses) == {401, 503}
