"""Texts of the files that `fedrl federation init` writes."""

import json
import os
import pwd
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedrl import __version__
from fedrl.network.certificates import header_of
from fedrl.network.deployment import LOOPBACK, Deployment, Folder
from fedrl.network.experiments import AnyExperiment
from fedrl.network.model_size import ModelSize

APP = f"""\
[project]
name = "fedrl-app"
version = "{__version__}"
description = "A federation of fedrl"
dependencies = []

[tool.flwr.app]
publisher = "fedrl"

[tool.flwr.app.components]
serverapp = "fedrl_app.server_app:app"
clientapp = "fedrl_app.client_app:app"

[tool.flwr.app.config]
server = ""
"""

AGENT_HEADER = """\
# This agent's own world. It stays on this machine: the server never sees this file.
# theta        the environment, as the experiment's family describes it
# environment  instead: a Gymnasium environment, by id or as "module:function"
# mdp          instead, for tables: a NumPy file with transition probabilities (S, A, S)
"""


# The user of a service, where `init` is run by root.
SERVICE = "fedrl"
# What a SuperNode logs that is turned away.
UNKNOWN = "no such key in server/keys: put agent.pub there and start the server again"
# Requests that an agent has under way at a time: its SuperNode sends or fetches two parts of a
# message at once, and says in between that it is there.
AT_ONCE = 8
# Seconds that a round takes at least: a SuperNode looks for messages every so many.
ROUND = 3


def nginx(deployment: Deployment, size: ModelSize, keys: Mapping[str, bytes]) -> str:
    """A proxy that lets the agents' path through and nothing else, and no more than they need.

    `keys` are the public ones of the agents. Paths are relative to the server's folder, which may
    be anywhere. Nothing is written to disk on the way: where root starts it, its worker may not
    enter that folder.
    """
    known = "\n".join(f'        "{header_of(key)}" {agent};' for agent, key in keys.items())
    return f"""\
# Written by `fedrl server` from federation.toml.
# Agents reach the server here. Only Flower's fleet API passes: whoever reaches the control API of
# the SuperLink controls its runs, so that one stays on the loopback.
worker_processes 1;
daemon off;
pid nginx.pid;
error_log nginx.log warn;

events {{
    worker_connections 1024;
}}

http {{
    access_log off;
    server_tokens off;
    client_body_temp_path nginx-body;
    proxy_temp_path nginx-proxy;
    fastcgi_temp_path nginx-fastcgi;
    uwsgi_temp_path nginx-uwsgi;
    scgi_temp_path nginx-scgi;

    # The SuperLink reads a request before it looks who sent it. What does not come in the name of
    # an agent therefore ends here, and the longest that passes is a part of the model.
    client_max_body_size {size.longest_request};
    client_header_timeout 10s;
    client_body_timeout 30s;
    reset_timedout_connection on;
    limit_conn_zone $binary_remote_addr/$agent zone=at_once:10m;
    limit_req_zone $binary_remote_addr/$agent zone=rate:10m rate={size.requests // ROUND}r/s;
    map_hash_bucket_size 1024;
    map $http_flwr_public_key $agent {{
        default "";
{known}
    }}

    upstream superlink {{
        server {LOOPBACK}:{deployment.control_port};
        keepalive 16;
    }}

    server {{
        listen {deployment.port} ssl;
        server_name {deployment.host};
        ssl_certificate server.pem;
        ssl_certificate_key server.key;
        ssl_protocols TLSv1.2 TLSv1.3;

        location /v1/fleet/ {{
            # To the letter: a path that could be read in two ways does not pass.
            if ($request_uri !~ "^/v1/fleet/[a-z-]+$") {{
                return 403;
            }}
            default_type application/json;
            if ($agent = "") {{
                return 407 '{json.dumps({"code": 0, "detail": UNKNOWN})}';
            }}
            limit_conn at_once {AT_ONCE};
            limit_req zone=rate burst={size.requests} nodelay;
            proxy_pass https://superlink;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host localhost;
            proxy_ssl_trusted_certificate ca.pem;
            proxy_ssl_verify on;
            proxy_ssl_name localhost;
            proxy_read_timeout 120s;
            proxy_request_buffering off;
            proxy_max_temp_file_size 0;
        }}

        location / {{
            return 403;
        }}
    }}
}}
"""


def _fedrl() -> str:
    """The command, where it is on this machine."""
    beside = Path(sys.executable).with_name("fedrl")
    return str(beside) if beside.exists() else shutil.which("fedrl") or "fedrl"


def _for_systemd(words: Iterable[str]) -> str:
    """A line of words; systemd takes what follows % for something else."""
    return shlex.join(words).replace("%", "%%")


def _owner() -> str:
    """Who runs a service: whoever makes the folder, but not root."""
    uid = os.getuid()
    if uid == 0:
        return SERVICE
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _unit(folder: Path, writable: Path, *arguments: str, capabilities: str = "") -> str:
    """A service of a user, which may write in its own part of the federation's folder only."""
    return f"""\
[Unit]
Description=fedrl {" ".join(arguments)}
Wants=network-online.target
After=network-online.target

[Service]
# Who owns the folder below, but not root: useradd --system fedrl; chown -R fedrl FOLDER.
User={_owner()}
ExecStart={_for_systemd((_fedrl(), arguments[0], str(folder), *arguments[1:]))}
Restart=on-failure
RestartSec=10
KillMode=control-group
UMask=0077
NoNewPrivileges=true
CapabilityBoundingSet={capabilities}
AmbientCapabilities={capabilities}
ProtectSystem=strict
ProtectHome=read-only
ReadWritePaths={_for_systemd((str(writable),))}
PrivateTmp=true
ProtectKernelTunables=true
ProtectKernelModules=true
ProtectKernelLogs=true
ProtectControlGroups=true
ProtectHostname=true
RestrictSUIDSGID=true
RestrictNamespaces=true
RestrictRealtime=true
LockPersonality=true
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
"""


def server_unit(folder: Folder, port: int) -> str:
    """For systemd on the server's machine; paths and user are those of this one."""
    # Others than root may not listen there.
    capabilities = "CAP_NET_BIND_SERVICE" if port < 1024 else ""
    return _unit(folder.path, folder.server, "server", capabilities=capabilities)


def agent_unit(folder: Folder, number: int) -> str:
    """For systemd on an agent's machine."""
    return _unit(folder.path, folder.agent(number), "agent", "--id", str(number))


def inventory(folder: Path, experiment: AnyExperiment, deployment: Deployment) -> str:
    """Who runs what."""
    name = shlex.quote(folder.name)
    agents = "\n".join(
        f"| agent {i} | `agents/{i}/` | `fedrl agent {name} --id {i}` |"
        for i in range(experiment.agents)
    )
    return f"""\
# {experiment.name}

Agents connect to {deployment.address}. On every machine: `pip install 'fedrl[flower]'`, a folder
`{folder.name}/` with the part that is named here, and the command. Copy over a channel you trust:
the folders hold private keys.

| machine | needs | runs |
|---|---|---|
| server | `server/` | `fedrl server {name}` |
{agents}

`ca/` signs the server's certificate. No machine needs it: keep it where nobody gets at it.
All on this machine, to try it: `fedrl federation up {name}`.
"""
