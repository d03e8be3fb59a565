"""Texts of the files that `fedrl federation init` writes."""

import shlex
import shutil
import sys
from pathlib import Path

from fedrl import __version__
from fedrl.flower.experiments import AnyExperiment
from fedrl.flower.settings import Deployment

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


def nginx(deployment: Deployment) -> str:
    """A proxy that lets the agents' path through and nothing else.

    Paths are relative to the server's folder, which may be anywhere.
    """
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
    client_max_body_size 1g;
    client_body_temp_path nginx-body;
    proxy_temp_path nginx-proxy;
    fastcgi_temp_path nginx-fastcgi;
    uwsgi_temp_path nginx-uwsgi;
    scgi_temp_path nginx-scgi;

    upstream superlink {{
        server 127.0.0.1:{deployment.control_port};
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
            proxy_pass https://superlink;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host localhost;
            proxy_ssl_trusted_certificate ca.pem;
            proxy_ssl_verify on;
            proxy_ssl_name localhost;
            proxy_read_timeout 120s;
            proxy_request_buffering off;
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


def _command(*arguments: str) -> str:
    """For systemd, which takes what follows % for something else."""
    return shlex.join((_fedrl(), *arguments)).replace("%", "%%")


def _unit(what: str, command: str) -> str:
    return f"""\
[Unit]
Description={what}
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=10
KillMode=control-group
NoNewPrivileges=true
PrivateTmp=true

[Install]
WantedBy=multi-user.target
"""


def server_unit(folder: Path) -> str:
    """For systemd on the server's machine; paths are those of this one."""
    return _unit("fedrl server", _command("server", str(folder)))


def agent_unit(folder: Path, number: int) -> str:
    """For systemd on an agent's machine."""
    command = _command("agent", str(folder), "--id", str(number))
    return _unit(f"fedrl agent {number}", command)


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
