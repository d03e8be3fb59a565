"""`fedrl federation init`: everything that the machines of a federation need, in one folder."""

import shutil
from dataclasses import replace
from pathlib import Path

from fedrl import __version__, registry
from fedrl.errors import FedrlError, unknown_name
from fedrl.experiment.presets import preset
from fedrl.experiment.toml import to_toml
from fedrl.network import certificates, templates
from fedrl.network.certificates import write_secret
from fedrl.network.deployment import (
    AGENT,
    EXPERIMENT,
    FEDERATION,
    AgentSettings,
    Deployment,
    Folder,
)
from fedrl.network.experiments import AnyExperiment, read_experiment, refuse_quorum
from fedrl.network.kinds import drawn_theta, once
from fedrl.tabular.experiment import TABULAR_PRESETS

PRIVATE = 0o700


def experiment_named(name: str, *, allow_code: bool = False) -> AnyExperiment:
    """A preset of either kind, or what a TOML file says."""
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        return read_experiment(path, allow_code=allow_code)
    if name in TABULAR_PRESETS:
        return TABULAR_PRESETS[name]
    known = [entry.name for entry in registry.entries("presets")]
    if name not in known and ":" not in name:
        raise unknown_name("preset", name, [*known, *TABULAR_PRESETS])
    return preset(name)


def for_network(experiment: AnyExperiment, agents: int | None) -> AnyExperiment:
    """The same for a network, which is one repetition; refused where there is nothing to send."""
    if agents is not None:
        experiment = replace(experiment, agents=agents)
    if not experiment.communicates:
        raise FedrlError("E = inf means that agents never communicate: nothing to federate")
    return once(experiment)


def init(path: Path, experiment: AnyExperiment, deployment: Deployment) -> Folder:
    """Make the folder; it is there whole or not at all."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FedrlError(f"{path} exists and is not empty: name a new folder")
    refuse_quorum(experiment, deployment.quorum)
    temporary = path.parent / f".{path.name}.new"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(mode=PRIVATE)
        _fill(Folder(temporary), path.resolve(), experiment, deployment)
        if path.exists():
            path.rmdir()
        temporary.rename(path)
    except OSError as error:
        raise FedrlError(f"{path} cannot be written ({error.strerror}): name another") from None
    finally:
        # There are private keys in it.
        shutil.rmtree(temporary, ignore_errors=True)
    return Folder(path)


def _fill(folder: Folder, final: Path, experiment: AnyExperiment, deployment: Deployment) -> None:
    """`final` is where the folder will be."""
    settings, how, server = to_toml(experiment), to_toml(deployment), folder.server
    signer, key = certificates.new_key(), certificates.new_key()
    by = certificates.authority(signer)
    ca, authority = folder.path / "ca", certificates.pem(by)
    for own in (ca, server):
        own.mkdir(mode=PRIVATE)
    write_secret(ca / "ca.key", certificates.private_pem(signer))
    for public in (ca, server):
        (public / "ca.pem").write_bytes(authority)
    for described in (folder.path, server):
        (described / EXPERIMENT).write_text(settings)
        (described / FEDERATION).write_text(how)
    certificate = certificates.server_certificate(key, deployment.host, signer, by)
    write_secret(server / "server.key", certificates.private_pem(key))
    (server / "server.pem").write_bytes(certificates.pem(certificate))
    unit = templates.server_unit(Folder(final), deployment.port)
    (server / "fedrl-server.service").write_text(unit)
    _write_app(server / "app")
    (server / "keys").mkdir()
    for number in range(experiment.agents):
        theta = drawn_theta(experiment, number)
        toml = to_toml(AgentSettings(number, deployment.address, theta))
        agent, key = folder.agent(number), certificates.new_key()
        agent.mkdir(mode=PRIVATE, parents=True)
        (agent / AGENT).write_text(templates.filled("agent.toml.j2", settings=toml))
        (agent / EXPERIMENT).write_text(settings)
        (agent / "ca.pem").write_bytes(authority)
        write_secret(agent / "agent.key", certificates.private_pem(key, ssh=True))
        for public in (agent / "agent.pub", server / "keys" / f"{number}.pub"):
            public.write_bytes(certificates.public_ssh(key))
        unit = templates.agent_unit(Folder(final), number)
        (agent / f"fedrl-agent-{number}.service").write_text(unit)
    (folder.path / "inventory.md").write_text(templates.inventory(final, experiment, deployment))


def _write_app(app: Path) -> None:
    """What Flower ships: names of ours, no code of its own. Agents do not run it."""
    package = app / "fedrl_app"
    package.mkdir(parents=True)
    (app / "pyproject.toml").write_text(templates.filled("app.toml.j2", version=__version__))
    (package / "__init__.py").write_text("")
    for side in ("server", "client"):
        # An assignment, because Flower looks for one before it runs anything.
        (package / f"{side}_app.py").write_text(
            f"from fedrl.network import {side}_app\n\napp = {side}_app.app\n"
        )
