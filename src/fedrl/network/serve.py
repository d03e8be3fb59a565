"""`fedrl server`: SuperLink, nginx and the training, on the server's machine."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import tomli_w

from fedrl.errors import FedrlError
from fedrl.files import locked, write_atomically
from fedrl.network import nginx
from fedrl.network.deployment import LOOPBACK, Deployment, Folder
from fedrl.network.experiments import refuse_quorum
from fedrl.network.processes import (
    PATIENCE,
    environment,
    name_of,
    program,
    refuse_if_taken,
    runs,
    start,
    started_by,
    stop_at_last,
    until_told,
    wait_for_port,
)
from fedrl.trackers.available import trackers_named

CONNECTION = "federation"
# Programs of Flower's that the SuperLink starts: the second runs our rounds.
EXECUTOR, SERVER_APP = "flower-superexec", "flwr-serverapp"
NODES, CONF = "nodes.json", "nginx.conf"
# In the environment of the training's process: whom it must not outlive.
SERVER = "FEDRL_SERVER"
# And the names of its trackers.
TRACK = "FEDRL_TRACK"


def serve(
    folder: Folder, tell: Callable[[dict[str, Any]], None], track: Sequence[str] = ()
) -> dict[str, Any]:
    """Train until the experiment is finished, or fails; `tell` hears the status as it changes.

    A training that was interrupted goes on from its last round. `track` names trackers.
    """
    trackers_named(track)  # an error, now, if one cannot be used
    deployment, experiment = folder.deployment(), folder.experiment()
    refuse_quorum(experiment, deployment.quorum)
    experiment.aggregator.promise(1)  # an error, now, if that cannot be known here
    server = folder.server.resolve()
    with until_told(), locked(server):
        finished = folder.runs / experiment.directory_name / "models.npz"
        if finished.exists():
            raise FedrlError(
                f"this training is finished: {finished.parent} (`fedrl report` shows it). For "
                "another one, change the experiment or make a new federation"
            )
        for of_before in (folder.status, server / NODES):
            of_before.unlink(missing_ok=True)
        proxy = None if deployment.proxy == "none" else nginx.executable()
        refuse_if_taken(deployment.control_port, LOOPBACK, "control_port")
        if proxy is not None:
            refuse_if_taken(deployment.port, "0.0.0.0", "port")
        home = server / "flower"
        env = {**environment(home), SERVER: str(os.getpid()), TRACK: " ".join(track)}
        running: list[subprocess.Popen[bytes]] = []
        try:
            log = server / "superlink.log"
            running.append(start(_superlink(server, deployment), log, env))
            wait_for_port(deployment.control_port, running[-1], log)
            _configure(home, server, deployment)
            nodes = _registered(server, env)
            # The door opens last: agents that come before they are known are turned away.
            if proxy is not None:
                log = server / "nginx.log"
                keys = {key.stem: key.read_bytes() for key in (server / "keys").glob("*.pub")}
                conf = nginx.configuration(deployment, nginx.model_size(experiment), keys)
                (server / CONF).write_text(conf)
                running.append(start([proxy, "-p", str(server), "-c", CONF], log))
                wait_for_port(deployment.port, running[-1], log)
            write_atomically(server / NODES, json.dumps(nodes).encode())
            run_config = f"server={json.dumps(str(server))}"
            _flwr(["run", str(server / "app"), CONNECTION, "--run-config", run_config], env)
            return _watch(folder, running, tell)
        finally:
            stop_at_last(*running)


def _superlink(server: Path, deployment: Deployment) -> list[str]:
    return [
        *(program("flower-superlink"), "--host", LOOPBACK, "--port", str(deployment.control_port)),
        *("--ssl-certfile", str(server / "server.pem")),
        *("--ssl-keyfile", str(server / "server.key")),
        *("--ssl-ca-certfile", str(server / "ca.pem")),
        *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
    ]


def _configure(home: Path, server: Path, deployment: Deployment) -> None:
    """Tell Flower's command line where our SuperLink is."""
    home.mkdir(exist_ok=True)
    connection = {
        "address": f"{LOOPBACK}:{deployment.control_port}",
        "root-certificates": str(server / "ca.pem"),
    }
    config = {"superlink": {"default": CONNECTION, CONNECTION: connection}}
    write_atomically(home / "config.toml", tomli_w.dumps(config).encode())


def _registered(server: Path, env: dict[str, str]) -> dict[str, int]:
    """Let the agents' keys in; which agent a node is, by node id."""

    def register(key: Path) -> tuple[str, int]:
        told = _flwr(["supernode", "register", str(key), CONNECTION], env)
        return str(told["node-id"]), int(key.stem)

    with ThreadPoolExecutor(4) as pool:
        return dict(pool.map(register, (server / "keys").glob("*.pub")))


def _flwr(arguments: list[str], env: dict[str, str]) -> dict[str, Any]:
    """One of Flower's commands, and what it says."""
    command = [program("flwr"), *arguments, "--format", "json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE)
    told: dict[str, Any] = {}
    with suppress(ValueError):
        told = json.loads(done.stdout)
    if not told.get("success"):
        why = told.get("error-message") or done.stderr.strip() or done.stdout.strip()
        raise FedrlError(f"flwr {' '.join(arguments[:2])} failed: {why}")
    return told


def _watch(
    folder: Folder,
    children: list[subprocess.Popen[bytes]],
    tell: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Until the training has ended."""
    before = None
    # The SuperLink starts these and carries on without them.
    names, below = (EXECUTOR, SERVER_APP), dict[str, psutil.Process]()
    until = time.monotonic() + PATIENCE
    while True:
        if len(below) < len(names):
            below = started_by(children[0], names) | below
        # Before the status is read: a training that ends well says so first.
        ended = next((name for name, one in below.items() if not runs(one)), None)
        late = SERVER_APP not in below and time.monotonic() > until
        status = read_json(folder.status)
        if status is not None and status != before:
            tell(status)
            before = status
        if status is not None and status["state"] in ("finished", "failed"):
            return status
        ended = next((name_of(child) for child in children if child.poll() is not None), ended)
        if ended is not None or late:
            why = f"{ended} has ended" if ended else f"{SERVER_APP} has not begun"
            raise FedrlError(
                f"{why}: see the logs in {folder.server}. Start the server again to go on from "
                "the last round"
            )
        time.sleep(0.2)


def read_json(file: Path) -> dict[str, Any] | None:
    """What a file of ours says, if it is there and whole."""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
