"""Who is not invited stays outside: tried for real, against a server that trains."""

import http.client
import json
import socket
import ssl
import subprocess
from dataclasses import replace
from uuid import uuid4

import httpx
import numpy as np
import pytest
import tomli_w
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import DeactivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedrl.network import certificates
from fedrl.network.processes import environment, program
from fedrl.network.supernode import HOME, KEY, SECRET, Runtime
from fedrl.tabular.experiment import TABULAR_PRESETS
from network import (
    MARK,
    PROTOBUF,
    connection,
    free_port,
    in_the_name_of,
    network,
    on_linux,
    status_of,
    until,
    with_nginx,
)

pytestmark = [with_nginx, on_linux, pytest.mark.network]

EXPERIMENT = replace(TABULAR_PRESETS["windycliffs-qavg"], agents=2, E=4, updates=14)


# What a server may ship to its agents: a ClientApp that does more than train.
HOSTILE = """\
import os
from pathlib import Path

from fedrl.network import client_app

Path({marker!r}).mkdir(exist_ok=True)
(Path({marker!r}) / str(os.getpid())).write_bytes(Path("/proc/self/cmdline").read_bytes())
app = client_app.app
"""


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """Exact QAvg that has to wait: the power of agent 1 has failed. Agent 0 is a cold one.

    The server ships a hostile app.
    """
    path = tmp_path_factory.mktemp("security") / "federation"
    with network(path, EXPERIMENT, quorum=2) as one:
        shipped = one.folder.server / "app" / "fedrl_app" / "client_app.py"
        shipped.write_text(HOSTILE.format(marker=str(path.parent / "ran")))
        one.server()
        one.agent(0, "--cold")
        one.agent(1)
        one.wait_for_round(2)
        one.kill("agent 1")
        one.agent(1)
        yield one


@pytest.fixture(scope="module")
def stranger(training):
    """A folder with what somebody has who was not invited: a key, a certificate, the address."""
    folder = training.path.parent / "stranger"
    folder.mkdir()
    key = certificates.new_key()
    certificates.write_secret(folder / "key", certificates.private_pem(key, ssh=True))
    (folder / "key.pub").write_bytes(certificates.public_ssh(key))
    (folder / "ca.pem").write_bytes(certificates.pem(certificates.authority(key)))
    connection = {
        "address": training.deployment.address,
        "root-certificates": str(training.folder.agent(0) / "ca.pem"),
    }
    config = {"superlink": {"default": "theirs", "theirs": connection}}
    (folder / "config.toml").write_text(tomli_w.dumps(config))
    return folder


def attempt(stranger, training, name, *command):
    """A program of Flower's in a stranger's hands."""
    words = [program(name), *map(str, command)]
    env = environment(stranger) | {MARK: str(training.path)}
    log = stranger / f"{uuid4().hex}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            words, env=env, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    return process, log


NODES = {
    "no key": ("no such key in server/keys", "--root-certificates", "{ca}"),
    "a key that nobody registered": (
        "no such key in server/keys",
        *("--root-certificates", "{ca}", "--auth-supernode-private-key", "{stranger}/key"),
    ),
    "no certificate of ours": (
        "CERTIFICATE_VERIFY_FAILED",
        *("--auth-supernode-private-key", "{agent}/agent.key"),
    ),
    "somebody else's certificate": (
        "CERTIFICATE_VERIFY_FAILED",
        *("--root-certificates", "{stranger}/ca.pem"),
        *("--auth-supernode-private-key", "{agent}/agent.key"),
    ),
    "no encryption": ("400 Bad Request", "--insecure"),
}


@pytest.fixture(scope="module")
def uninvited(training, stranger):
    """SuperNodes of strangers, all at once: (exit status, output) of each."""
    agent = training.folder.agent(0)
    where = {"ca": agent / "ca.pem", "agent": agent, "stranger": stranger}
    server = ("--superlink", training.deployment.address, "--max-retries", "1")
    begun = {}
    for name, (_, *options) in NODES.items():
        given = [option.format(**where) for option in options]
        node = ("flower-supernode", *server, "--port", free_port(), *given)
        begun[name] = attempt(stranger, training, *node)
    ended = {}
    for name, (process, log) in begun.items():
        ended[name] = (process.wait(120), log.read_text())
    return ended


@pytest.mark.parametrize("node", NODES)
def test_a_supernode_is_not_let_in_with(uninvited, node):
    code, output = uninvited[node]
    assert code == 1
    assert "Failed to initialize the connection to the SuperLink" in output
    assert NODES[node][0] in output
    assert "SuperNode ID" not in output


@pytest.mark.parametrize(
    "command",
    [("ls",), ("run", "{app}"), ("supernode", "register", "{stranger}/key.pub"), ("stop", "1")],
    ids=lambda command: command[0],
)
def test_flowers_command_line_is_refused_at_the_agents_door(training, stranger, command):
    words = [word.format(app=training.folder.server / "app", stranger=stranger) for word in command]
    process, log = attempt(stranger, training, "flwr", *words, "theirs", "--format", "json")
    process.wait(120)
    said = json.loads(log.read_text())
    assert said["success"] is False
    assert "403 Forbidden" in said["error-message"]


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/docs", "/openapi.json", "/health", "/v1/control/", "/V1/Control/list-runs"),
        *(f"/v1/control/{what}" for what in ("list-runs", "start-run", "register-node")),
        *(f"/v1/runtime/{what}" for what in ("acquire-task", "push-object", "get-nodes")),
        # Paths that mean one thing to a proxy and another to what is behind it.
        "/v1/fleet/../control/list-runs",
        "/v1/fleet/%2e%2e/control/list-runs",
        "/v1/fleet/..%2fcontrol/list-runs",
        "//v1/control/list-runs",
        "/v1/control/list-runs%3f/../../fleet/pull-messages",
        "/v1/control/list-runs%23/../../fleet/pull-messages",
        "/v1/control/list-runs/../../fleet/pull-messages",
        "/v1//fleet/pull-messages",
        "/v1/fleet/pull-messages?x=/v1/control/list-runs",
        "/v1/fleet/pull-messages/../../control/list-runs",
    ],
)
def test_only_the_paths_of_agents_lead_anywhere(training, path):
    for method in ("GET", "POST", "PUT"):
        assert status_of(connection(training), method, path) == 403


def test_the_paths_of_agents_want_a_known_key_and_a_signature(training):
    calls = ("register-node", "activate-node", "pull-messages", "push-messages", "pull-object")
    for what in calls:
        for headers, refusal in ((PROTOBUF, 407), (PROTOBUF | in_the_name_of(training, 0), 401)):
            assert status_of(connection(training), "POST", f"/v1/fleet/{what}", headers) == refusal
            elsewhere = headers | {"Host": "a?b"}
            assert (
                status_of(connection(training), "POST", f"/v1/fleet/{what}", elsewhere) == refusal
            )


def test_an_agent_cannot_speak_or_listen_for_another(training):
    nodes = json.loads((training.folder.server / "nodes.json").read_text())
    node = {agent: Node(node_id=int(number)) for number, agent in nodes.items()}
    own = training.folder.agent(0)
    key = load_ssh_private_key((own / "agent.key").read_bytes(), None)
    signed = [NodeAuthHttpInterceptor(key, key.public_key())]
    address = training.deployment.address
    ca = (own / "ca.pem").read_bytes()
    with FleetHttpClient.from_server_address(address, False, ca, signed) as client:
        assert client.SendNodeHeartbeat(heartbeat(node[0])).success
        for call, request in (
            (client.SendNodeHeartbeat, heartbeat(node[1])),
            (client.PullMessages, PullMessagesRequest(node=node[1])),
            (client.PushMessages, PushMessagesRequest(node=node[1])),
            (client.DeactivateNode, DeactivateNodeRequest(node_id=node[1].node_id)),
        ):
            with pytest.raises(httpx.HTTPStatusError, match="401 Unauthorized"):
                call(request)


def heartbeat(node):
    return SendNodeHeartbeatRequest(node=node, heartbeat_interval=30)


def test_the_door_speaks_nothing_but_tls(training):
    plain = http.client.HTTPConnection("127.0.0.1", training.ports[0])
    assert status_of(plain, "POST", "/v1/fleet/activate-node") == 400
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.load_verify_locations(training.folder.agent(0) / "ca.pem")
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", training.ports[0])) as one,
        pytest.raises(ssl.SSLError, match=r"VERSION|PROTOCOL"),
    ):
        old.wrap_socket(one, server_hostname="127.0.0.1")


def own_address():
    """An address of this machine that others could use."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            return None
        address = one.getsockname()[0]
        return None if address.startswith("127.") else address


@pytest.mark.skipif(own_address() is None, reason="this machine has no address but the loopback")
def test_whoever_controls_runs_is_on_this_machine(training):
    door, control = training.ports
    with socket.socket() as one:
        assert one.connect_ex((own_address(), door)) == 0
    with socket.socket() as one, pytest.raises(ConnectionRefusedError):
        one.connect((own_address(), control))
    # On the loopback it is what the attempts above were after.
    assert status_of(connection(training, control), "POST", "/v1/control/list-runs") == 200


def test_secrets_are_the_owners_alone(training):
    folder = training.path
    secret = [folder / "ca" / "ca.key", folder / "server" / "server.key"]
    secret += [training.folder.agent(i) / "agent.key" for i in range(2)]
    secret += [training.folder.agent(1) / "worker.sock"]
    secret += [training.folder.agent(1) / HOME / name for name in (SECRET, KEY)]
    until(lambda: all(path.exists() for path in secret), "the agent's socket")
    assert {path.stat().st_mode & 0o777 for path in secret} == {0o600}
    private = [folder, folder / "ca", folder / "server", *map(training.folder.agent, range(2))]
    private += [training.folder.agent(0) / "state"]
    assert {path.stat().st_mode & 0o777 for path in private} == {0o700}


def test_other_users_of_an_agents_machine_cannot_take_its_messages(training):
    runtime = until_runs(training, 0)
    ask = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    with (
        RuntimeHttpClient.from_server_address(runtime.address, False, runtime.authority, []) as one,
        pytest.raises(httpx.HTTPStatusError, match="401 Unauthorized"),
    ):
        one.AcquireTask(ask)
    guessed = SuperExecAuthHttpInterceptor(
        master_secret=b"guessed", protected_methods=["/flwr.proto.Runtime/AcquireTask"]
    )
    with (
        RuntimeHttpClient.from_server_address(
            runtime.address, False, runtime.authority, [guessed]
        ) as one,
        pytest.raises(httpx.HTTPStatusError, match="401 Unauthorized"),
    ):
        one.AcquireTask(ask)
    # Nor pretend to be the SuperNode: an agent's processes ask for a certificate of its own.
    with (
        RuntimeHttpClient.from_server_address(
            runtime.address, False, (training.folder.agent(0) / "ca.pem").read_bytes(), []
        ) as one,
        pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        one.AcquireTask(ask)


def until_runs(training, agent):
    """Where an agent's SuperNode listens."""

    def listening():
        runtime = Runtime.read(training.folder.agent(agent))
        host, port = runtime.address.split(":")
        with socket.socket() as one:
            return runtime if one.connect_ex((host, int(port))) == 0 else None

    return until(listening, "the SuperNode")


def test_a_cold_agent_works_from_disk(training):
    assert not training.processes("fedrl.network.worker", "agents/0")
    assert "no worker is running, working from disk" in training.log("agent 0", "superexec.log")
    assert training.status()["agents"]["0"]["round"] >= 1


def test_an_agent_whose_power_failed_comes_back_by_itself_and_nobody_else_does(training):
    text = "agents [1] are back; asking again"
    until(lambda: text in training.log("server", "server.log"), "the return of agent 1")
    # Flower thinks for a minute that it is still there, and does not let it in twice.
    assert "the SuperNode has ended (1); starting it again" in training.log("agent 1")
    assert set(training.status()["alive"]) <= {0, 1}


def test_the_table_is_that_of_all_agents_in_one_program(training):
    assert training.wait("server") == 0
    assert training.status()["lost"] == []
    expected = EXPERIMENT.run()
    table = training.model()["table"]
    np.testing.assert_allclose(table, expected.shared[0], rtol=1e-12)


def test_an_agent_runs_no_code_that_a_server_ships(training):
    assert training.status()["state"] == "finished"
    for agent in range(2):
        assert not (training.folder.agent(agent) / HOME / "apps").exists()
    assert not (training.path.parent / "ran").exists()
