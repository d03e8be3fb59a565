"""The texts of files that a federation needs, from the templates beside this module."""

import os
import pwd
import shlex
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedrl.network.deployment import Deployment, Folder
from fedrl.network.experiments import AnyExperiment
from fedrl.network.processes import where

# The user of a service, where `init` is run by root.
SERVICE = "fedrl"


def filled(template: str, **values: object) -> str:
    """A template with its values."""
    environment = Environment(
        loader=PackageLoader("fedrl.network", "."),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(values)


def server_unit(folder: Folder, port: int) -> str:
    """For systemd on the server's machine; paths and user are those of this one."""
    # Others than root may not listen there.
    capabilities = "CAP_NET_BIND_SERVICE" if port < 1024 else ""
    return _unit(folder, folder.server, "server", capabilities=capabilities)


def agent_unit(folder: Folder, number: int) -> str:
    """For systemd on an agent's machine."""
    return _unit(folder, folder.agent(number), "agent", "--id", str(number))


def _unit(folder: Folder, own: Path, *arguments: str, capabilities: str = "") -> str:
    """A service of a user, which may write in its `own` part of the federation's folder only."""
    command = (where("fedrl") or "fedrl", arguments[0], str(folder.path), *arguments[1:])
    return filled(
        "fedrl.service.j2",
        arguments=arguments,
        owner=_owner(),
        command=_for_systemd(*command),
        writable=_for_systemd(str(own)),
        capabilities=capabilities,
    )


def _for_systemd(*words: str) -> str:
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


def inventory(folder: Path, experiment: AnyExperiment, deployment: Deployment) -> str:
    """Who runs what."""
    return filled(
        "inventory.md.j2",
        experiment=experiment,
        deployment=deployment,
        folder=folder.name,
        quoted=shlex.quote(folder.name),
    )
