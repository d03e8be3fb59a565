"""The folder of a federation: who gets what, who cannot read what, and errors that help."""

import os
import pwd
import re
import shutil
import stat
import subprocess
import tomllib
from configparser import ConfigParser
from dataclasses import replace
from ipaddress import ip_address

import jax
import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from fedrl.cli.main import main
from fedrl.engine.local_engine import LocalEngine
from fedrl.errors import FedrlError
from fedrl.experiment.toml import read_settings, to_toml
from fedrl.learners.personalisation import Personal
from fedrl.network import init as init_module
from fedrl.network import templates
from fedrl.network.deployment import AgentSettings, Deployment, Folder
from fedrl.network.experiments import read_experiment
from fedrl.network.federated_networks import SimulatedClient
from fedrl.network.federated_tables import TableClient
from fedrl.network.flower_records import telling
from fedrl.network.init import experiment_named, for_network, init
from fedrl.network.messages import Answer
from fedrl.network.nginx import ModelSize, configuration, model_size
from fedrl.network.worker import agent_in
from fedrl.strategies.corrections import ControlVariates
from fedrl.tabular.experiment import TABULAR_PRESETS
from tiny import LEARNER, TINY

HOST = "fed.example.org"
EXPERIMENT = replace(TINY, agents=3, seeds=1)
TABLES = TABULAR_PRESETS["windycliffs-qavg"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    before = os.umask(0)  # of a careless person
    try:
        return init(tmp_path_factory.mktemp("init") / "fed", EXPERIMENT, Deployment(host=HOST))
    finally:
        os.umask(before)


def names(path):
    return {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}


def test_everybody_gets_what_they_need_and_no_more(folder):
    assert names(folder.path / "server") == {
        "experiment.toml",
        "federation.toml",
        "fedrl-server.service",
        "ca.pem",
        "server.key",
        "server.pem",
        "keys/0.pub",
        "keys/1.pub",
        "keys/2.pub",
        "app/pyproject.toml",
        "app/fedrl_app/__init__.py",
        "app/fedrl_app/server_app.py",
        "app/fedrl_app/client_app.py",
    }
    for number in range(3):
        assert names(folder.agent(number)) == {
            "experiment.toml",
            "agent.toml",
            "agent.key",
            "agent.pub",
            "ca.pem",
            f"fedrl-agent-{number}.service",
        }
    assert names(folder.path / "ca") == {"ca.key", "ca.pem"}
    assert {file.name for file in folder.path.iterdir()} == {
        *("experiment.toml", "federation.toml", "inventory.md", "ca", "server", "agents")
    }
    assert not list(folder.path.parent.glob(".*"))


def test_private_keys_and_the_folders_they_are_in_are_their_owners(folder):
    keys = list(folder.path.rglob("*.key"))
    assert len(keys) == 5
    for key in keys:
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


def test_what_is_written_is_read_back(folder):
    assert folder.experiment() == EXPERIMENT
    assert folder.deployment() == Deployment(host=HOST)
    assert folder.agents == [0, 1, 2]
    for number in range(3):
        assert read_experiment(folder.agent(number) / "experiment.toml") == EXPERIMENT
        settings = read_settings(AgentSettings, folder.agent(number) / "agent.toml")
        assert (settings.id, settings.server) == (number, f"{HOST}:9443")


def thetas():
    return np.asarray(LocalEngine(EXPERIMENT).thetas(0))


def test_an_agent_gets_the_environment_that_the_local_engine_would_give_it(folder):
    assert len(np.unique(thetas())) == 3
    for number, theta in enumerate(thetas()):
        settings = read_settings(AgentSettings, folder.agent(number) / "agent.toml")
        np.testing.assert_array_equal(np.float32(settings.theta), theta)


def test_the_server_has_no_agents_environment_and_no_key_but_its_own(folder):
    content = {file: file.read_bytes() for file in folder.server.rglob("*") if file.is_file()}
    secrets = {}
    for number, (theta,) in enumerate(thetas()):
        secrets[f"theta of {number} as text"] = f"{theta:.6g}".encode()
        secrets[f"theta of {number}"] = np.float32(theta).tobytes()
        secrets[f"theta of {number} in 64 bits"] = np.float64(theta).tobytes()
        lines = (folder.agent(number) / "agent.key").read_bytes().splitlines()
        secrets |= {f"key of {number}, line {i}": line for i, line in enumerate(lines[2:-2])}
        assert (
            secrets[f"theta of {number} as text"][:6]
            in (folder.agent(number) / "agent.toml").read_bytes()
        )
    lines = (folder.path / "ca" / "ca.key").read_bytes().splitlines()[1:-1]
    secrets |= {f"the authority's key, line {i}": line for i, line in enumerate(lines)}
    assert len(secrets) > 15
    for what, secret in secrets.items():
        for file, text in content.items():
            assert secret not in text, f"{what} is in {file}"


def test_no_agent_has_what_belongs_to_another_or_to_the_server(folder):
    for number in range(3):
        own = b"".join(f.read_bytes() for f in folder.agent(number).rglob("*") if f.is_file())
        others = [folder.agent(i) / "agent.key" for i in range(3) if i != number]
        for file in (*others, folder.server / "server.key", folder.path / "ca" / "ca.key"):
            assert file.read_bytes().splitlines()[2] not in own
        for i, (theta,) in enumerate(thetas()):
            assert (f"{theta:.6g}".encode() in own) == (i == number)


def test_an_agents_keys_belong_together_and_the_server_knows_the_public_one(folder):
    known = set()
    for number in range(3):
        agent = folder.agent(number)
        key = serialization.load_ssh_private_key((agent / "agent.key").read_bytes(), None)
        public = (agent / "agent.pub").read_bytes()
        assert serialization.load_ssh_public_key(public) == key.public_key()
        assert (folder.server / "keys" / f"{number}.pub").read_bytes() == public
        assert key.curve.name == "secp384r1"
        known.add(public)
    assert len(known) == 3


# Certificates, judged by another implementation of the rules.


def verified(folder, name):
    """Whether a client that trusts ca.pem would believe the server that it is this one."""
    (authority,) = x509.load_pem_x509_certificates((folder.server / "ca.pem").read_bytes())
    (certificate,) = x509.load_pem_x509_certificates((folder.server / "server.pem").read_bytes())
    try:
        subject = x509.IPAddress(ip_address(name))
    except ValueError:
        subject = x509.DNSName(name)
    verifier = PolicyBuilder().store(Store([authority])).build_server_verifier(subject)
    try:
        verifier.verify(certificate, [])
    except VerificationError:
        return False
    return True


def test_the_certificate_is_for_the_host_and_for_this_machine_and_nobody_else(folder):
    assert verified(folder, HOST)
    assert verified(folder, "127.0.0.1")
    assert verified(folder, "localhost")
    for other in ("example.org", "other.example.org", "fed.example.com", "127.0.0.2", "10.0.0.1"):
        assert not verified(folder, other)


def test_an_address_is_as_good_as_a_name(tmp_path):
    made = init(tmp_path / "fed", TABLES, Deployment(host="192.0.2.7"))
    assert verified(made, "192.0.2.7")
    assert verified(made, "127.0.0.1")
    assert not verified(made, "192.0.2.8")
    assert "192.0.2.7:9443" in (made.agent(0) / "agent.toml").read_text()


def test_another_federations_authority_is_not_believed(folder, tmp_path):
    other = init(tmp_path / "fed", TABLES, Deployment(host=HOST))
    assert verified(other, HOST)
    shutil.copy(folder.server / "ca.pem", other.server / "ca.pem")
    assert not verified(other, HOST)


def test_everybody_has_the_same_certificate_of_the_authority(folder):
    found = {file.read_bytes() for file in folder.path.rglob("ca.pem")}
    assert len(found) == 1
    (authority,) = x509.load_pem_x509_certificates(found.pop())
    key = serialization.load_pem_private_key((folder.path / "ca" / "ca.key").read_bytes(), None)
    assert authority.public_key() == key.public_key()
    certificate = x509.load_pem_x509_certificate((folder.server / "server.pem").read_bytes())
    own = serialization.load_pem_private_key((folder.server / "server.key").read_bytes(), None)
    assert certificate.public_key() == own.public_key()
    # The server's certificate signs nothing.
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert not constraints.value.ca


# What stands between agents and the SuperLink.


def conf_of(folder):
    keys = {key.stem: key.read_bytes() for key in (folder.server / "keys").glob("*.pub")}
    return configuration(folder.deployment(), model_size(folder.experiment()), keys)


def test_nginx_lets_the_fleet_through_and_nothing_else(folder):
    conf = conf_of(folder)
    code = "\n".join(line.partition("#")[0] for line in conf.splitlines())
    code = re.sub(r"'[^'\n]*'", "''", code)  # what is said has braces, too
    places = re.findall(r"location\s+([^{]+?)\s*\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}", code)
    assert [path for path, _ in places] == ["/v1/fleet/", "/"]
    (_, fleet), (_, rest) = places
    assert rest.strip() == "return 403;"
    assert code.count("proxy_pass") == fleet.count("proxy_pass") == 1
    assert "proxy_ssl_verify on;" in fleet
    assert re.findall(r"listen\s+([^;]+);", code) == ["9443 ssl"]
    # The SuperLink is asked on the loopback, and is not open to others.
    assert re.findall(r"^\s+server ([^{;]+);", code, re.MULTILINE) == ["127.0.0.1:9444"]
    assert "TLSv1.1" not in code


def nginx():
    return shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")


@pytest.mark.skipif(nginx() is None, reason="nginx is missing")
def test_nginx_understands_it_wherever_the_folder_is(folder, tmp_path):
    # On another machine it is somewhere else, and in a folder with another name.
    elsewhere = tmp_path / "an odd; place" / "server"
    shutil.copytree(folder.server, elsewhere)
    conf = conf_of(folder)
    (elsewhere / "nginx.conf").write_text(conf)
    checked = subprocess.run(
        [nginx(), "-t", "-p", elsewhere, "-c", "nginx.conf"], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr
    assert str(folder.path) not in conf


@pytest.mark.parametrize(
    "shapes",
    [[(3,)], [(5, 16, 4)] * 6, [(10, 10)] * 40, [(3,)] * 200, [(4000, 1400)], [(1400, 1400)] * 2],
    ids=lambda shapes: f"{len(shapes)} of {shapes[0]}",
)
def test_what_flower_makes_of_an_answer_passes_and_little_more(shapes):
    leaves = {f"layers[{i}].weight": np.full(x, i, np.float32) for i, x in enumerate(shapes)}
    sizes = [leaf.nbytes for leaf in leaves.values()]
    size = ModelSize(len(leaves), sum(sizes), max(sizes))
    message = telling(Answer(1, {"return": 1.0}, leaves))
    requests = [found.deflate() for found in get_all_nested_objects(message).values()]
    requests.append(get_object_tree(message).SerializeToString())
    longest = max(map(len, requests))
    assert longest + 1000 < size.longest_request < longest + 400_000
    # There and back.
    assert 2 * len(requests) + 20 < size.requests < 4 * len(requests) + 200


def size_of(leaves):
    sizes = [leaf.nbytes for leaf in leaves]
    return len(sizes), sum(sizes), max(sizes)


def first_leaves():
    """The first agent's parameters."""
    return [leaf[0] for leaf in jax.tree.leaves(LocalEngine(EXPERIMENT).first_params(0))]


def test_the_size_of_a_model_is_that_of_its_first_parameters():
    assert model_size(EXPERIMENT) == size_of(first_leaves())
    assert model_size(TABLES) == size_of([np.zeros((16, 4))])


def test_what_a_correction_adds_counts_and_what_is_private_does_not():
    corrected = replace(EXPERIMENT, correction=ControlVariates())
    assert model_size(corrected) == size_of(2 * first_leaves())
    # The correction is one of the values of states, from which such agents get their tables.
    corrected = replace(TABLES, correction=ControlVariates())
    assert model_size(corrected) == size_of([np.zeros((16, 4)), np.zeros(16)])
    private = replace(EXPERIMENT, learner=replace(LEARNER, personal=Personal(head=True)))
    hidden = first_leaves()[:2]
    assert model_size(private) == size_of(hidden)


def unit_of(text):
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read_string(text)
    return parser["Service"]


def test_services_are_of_a_user_who_may_write_in_their_own_folder_only(folder):
    units = {folder.server: folder.server / "fedrl-server.service"}
    units |= {folder.agent(i): folder.agent(i) / f"fedrl-agent-{i}.service" for i in range(3)}
    for own, file in units.items():
        service = unit_of(file.read_text())
        assert service["User"] not in ("", "root")
        assert service["ReadWritePaths"] == str(own)
        assert service["ProtectSystem"] == "strict"
        assert service["ProtectHome"] == "read-only"
        assert service["CapabilityBoundingSet"] == service["AmbientCapabilities"] == ""
        for name in ("NoNewPrivileges", "PrivateTmp", "RestrictSUIDSGID", "ProtectKernelModules"):
            assert service[name] == "true"


def test_a_server_may_listen_on_a_port_that_is_roots(folder):
    service = unit_of(templates.server_unit(folder, 443))
    assert service["AmbientCapabilities"] == "CAP_NET_BIND_SERVICE"
    assert service["CapabilityBoundingSet"] == "CAP_NET_BIND_SERVICE"


def test_who_makes_a_federation_runs_it_unless_that_is_root(folder, monkeypatch):
    known = max(pwd.getpwall(), key=lambda user: user.pw_uid)
    unknown = known.pw_uid + 1
    for uid, runs in ((known.pw_uid, known.pw_name), (unknown, str(unknown)), (0, "fedrl")):
        monkeypatch.setattr(templates.os, "getuid", lambda uid=uid: uid)
        assert unit_of(templates.agent_unit(folder, 0))["User"] == runs


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is missing: scripts/install-systemd"
)
def test_systemd_understands_the_services(tmp_path):
    made = init(tmp_path / "my 100% fed", TABLES, Deployment())
    units = sorted(made.path.rglob("*.service"))
    assert len(units) == 6
    command = ["systemd-analyze", "verify", "--man=no", *units]
    checked = subprocess.run(command, capture_output=True, text=True)
    said = [line for line in checked.stderr.splitlines() if "fedrl-" in line]
    assert not said


def test_commands_can_be_copied_also_where_a_name_has_blanks(tmp_path):
    made = init(tmp_path / "my 100% fed", TABLES, Deployment())
    assert "`fedrl agent 'my 100% fed' --id 3`" in (made.path / "inventory.md").read_text()
    unit = (made.agent(3) / "fedrl-agent-3.service").read_text()
    (command,) = re.findall("^ExecStart=(.*)$", unit, re.MULTILINE)
    assert command.endswith(f" agent '{tmp_path}/my 100%% fed' --id 3")
    assert command.startswith("/")


def test_the_app_that_flower_ships_has_no_code_of_its_own(folder):
    app = folder.server / "app"
    described = tomllib.loads((app / "pyproject.toml").read_text())
    assert described["project"]["dependencies"] == []
    assert described["tool"]["flwr"]["app"]["components"] == {
        "serverapp": "fedrl_app.server_app:app",
        "clientapp": "fedrl_app.client_app:app",
    }
    for side in ("server", "client"):
        lines = (app / "fedrl_app" / f"{side}_app.py").read_text().split("\n")
        assert lines == [
            f"from fedrl.network import {side}_app",
            "",
            f"app = {side}_app.app",
            "",
        ]


# Errors say what to do.


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(FedrlError, match="is not empty: name a new folder"):
        init(tmp_path, TABLES, Deployment())
    with pytest.raises(FedrlError, match="name a new folder"):
        init(tmp_path / "mine", TABLES, Deployment())
    assert {file.name for file in tmp_path.iterdir()} == {"mine"}
    assert (tmp_path / "mine").read_text() == "precious"
    with pytest.raises(FedrlError, match=r"mine/fed cannot be written .*: name another"):
        init(tmp_path / "mine" / "fed", TABLES, Deployment())


def test_an_empty_folder_and_one_that_is_deep_will_do(tmp_path):
    (tmp_path / "empty").mkdir()
    assert init(tmp_path / "empty", TABLES, Deployment()).agents == [0, 1, 2, 3, 4]
    assert init(tmp_path / "a" / "b" / "c", TABLES, Deployment()).agents == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_there_is_a_whole_folder_or_none_and_no_key_is_left(tmp_path, monkeypatch, error):
    def fail(*given):
        raise error

    monkeypatch.setattr(init_module.templates, "inventory", fail)
    wanted = FedrlError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(wanted):
        init(tmp_path / "fed", TABLES, Deployment())
    assert list(tmp_path.iterdir()) == []


GOOD_HOSTS = ["localhost", "fed.example.org", "10.1.2.3", "a", "my-server", "docker_name", "A1.b2"]
BAD_HOSTS = [
    *("", "a b", "http://fed.example.org", "fed.example.org:9443", "::1", "exämple.org", "*.org"),
    *("256.1.1.1", "1.2.3", "0.0.0.0", "-a.org", "a-.org", "a..b", "$host", "a;b", "a{b", "x" * 64),
    *("fed.example.org.", "a#b", "a\nb", ".".join(["x" * 60] * 5)),
]


@pytest.mark.parametrize("host", GOOD_HOSTS)
def test_names_and_addresses_are_hosts(host):
    assert Deployment(host=host).address == f"{host}:9443"


@pytest.mark.parametrize("host", BAD_HOSTS)
def test_what_cannot_be_a_host_is_told(host):
    with pytest.raises(FedrlError, match="host must be the name or the IPv4 address at which"):
        Deployment(host=host)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"port": 0}, "port must be an integer of at least 1 and at most 65535, got 0"),
        ({"port": 65536}, "port must be"),
        ({"control_port": "9444"}, "control_port must be an integer"),
        ({"port": 9444}, "port and control_port are both 9444: they must differ"),
        ({"quorum": -1}, "quorum must be an integer of at least 0"),
        ({"quorum": 1.5}, "quorum must be an integer"),
        ({"deadline": 0}, "deadline must be a positive number, got 0"),
        ({"patience": -5}, "patience must be a positive number"),
        ({"norm_bound": float("nan")}, "norm_bound must be a number, 0 or more"),
        ({"proxy": "apache"}, "unknown proxy 'apache': choose from 'nginx', 'none'"),
        (
            {"proxy": "none", "host": HOST},
            f'proxy = "none" would let anybody at {HOST} control the server: use nginx',
        ),
    ],
    ids=str,
)
def test_other_settings_that_make_no_sense_are_told(settings, said):
    with pytest.raises(FedrlError) as told:
        Deployment(**settings)
    assert said in str(told.value)


def test_without_a_proxy_agents_connect_to_the_superlink():
    assert Deployment(proxy="none").address == "127.0.0.1:9444"
    assert Deployment(proxy="none", host="localhost").address == "localhost:9444"


def test_a_quorum_must_be_possible(tmp_path):
    some = replace(EXPERIMENT, agents=10, participation=0.4)
    for experiment, most in ((EXPERIMENT, 3), (some, 4), (TABLES, 5)):
        with pytest.raises(FedrlError) as told:
            init(tmp_path / "fed", experiment, Deployment(quorum=most + 1))
        assert f"quorum = {most + 1}, but a round has only {most} agents" in str(told.value)
        assert "lower it" in str(told.value)
    assert init(tmp_path / "fed", TABLES, Deployment(quorum=5)).deployment().quorum == 5


def test_what_to_train_is_a_preset_or_a_file(tmp_path):
    assert experiment_named("windycliffs-qavg") == TABLES
    assert experiment_named("cartpoles-dqnavg").name == "cartpoles-dqnavg"
    for experiment in (EXPERIMENT, TABLES):
        file = tmp_path / "mine.toml"
        file.write_text(to_toml(experiment))
        assert experiment_named(str(file)) == experiment
    with pytest.raises(FedrlError) as told:
        experiment_named("cartpole-dqnavg")
    for words in ("unknown preset", "did you mean 'cartpoles-dqnavg'?", "'windycliffs-qavg'"):
        assert words in str(told.value)
    with pytest.raises(FedrlError, match=r"cannot read .*none\.toml: .*No such file"):
        experiment_named(str(tmp_path / "none.toml"))
    file.write_text("agents = = 3")
    with pytest.raises(FedrlError, match=r"mine\.toml is not TOML"):
        experiment_named(str(file))
    file.write_text('name = "x"\nfamily = "cartpoles"')
    with pytest.raises(FedrlError, match=r"family"):
        experiment_named(str(file))


def test_an_experiment_for_a_network_is_one_repetition_that_communicates():
    assert for_network(TINY, None) == replace(TINY, seeds=1)
    assert for_network(TINY, 7).agents == 7
    assert for_network(TABLES, 3) == replace(TABLES, agents=3)
    with pytest.raises(FedrlError, match="nothing to federate"):
        for_network(TINY.without_communication(), None)
    with pytest.raises(FedrlError, match="agents must be an integer of at least 1"):
        for_network(TINY, 0)


def test_the_command_makes_the_folder_and_says_how_to_go_on(tmp_path, capsys):
    arguments = ["--experiment", "windycliffs-qavg", "--agents", "2", "--host", HOST]
    assert main(["federation", "init", str(tmp_path / "fed"), *arguments]) == 0
    said = capsys.readouterr().out
    assert "2 agents" in said
    assert f"{tmp_path}/fed/inventory.md" in said
    assert f"fedrl federation up {tmp_path}/fed" in said
    made = Folder(tmp_path / "fed")
    assert made.agents == [0, 1]
    assert made.experiment() == replace(TABLES, agents=2)
    assert main(["federation", "init", str(tmp_path / "fed"), *arguments]) != 0
    assert "name a new folder" in capsys.readouterr().err


def test_what_is_no_federation_is_told(tmp_path):
    for read in (Folder(tmp_path).deployment, Folder(tmp_path).experiment):
        with pytest.raises(FedrlError, match=r"is not the folder of a federation.* init"):
            read()


# An agent's own world, as its owner describes it.


def owned(path, experiment, **settings):
    path.mkdir(parents=True)
    (path / "experiment.toml").write_text(to_toml(experiment))
    described = AgentSettings(**{"id": 0, "server": "127.0.0.1:9443"} | settings)
    (path / "agent.toml").write_text(to_toml(described))
    return path


@pytest.fixture
def client_in(tmp_path, monkeypatch):
    from fedrl.network import worker

    monkeypatch.setattr(worker, "use_compilation_cache", lambda folder: None)
    return lambda experiment, **settings: (
        agent_in(owned(tmp_path / "agent", experiment, **settings))._client
    )


def test_theta_is_the_agents_environment(client_in):
    client = client_in(EXPERIMENT, theta=(0.75,), id=2)
    assert isinstance(client, SimulatedClient)
    np.testing.assert_array_equal(client.theta, [[0.75]])


def test_without_any_description_it_is_the_one_that_is_drawn(client_in):
    np.testing.assert_array_equal(client_in(EXPERIMENT, id=2).theta, thetas()[2:3])


def test_dynamics_of_ones_own_are_those_of_the_agent(client_in, tmp_path):
    P = np.random.default_rng(0).dirichlet(np.ones(16), (16, 4))
    np.save(tmp_path / "mine.npy", P)
    client = client_in(TABLES, mdp=str(tmp_path / "mine.npy"))
    assert isinstance(client, TableClient)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(np.asarray(client._mdps.P)[..., 0], P)


@pytest.mark.parametrize(
    ("experiment", "settings", "said"),
    [
        (EXPERIMENT, {"theta": (0.5, 0.5)}, "theta of cartpoles must be 1 number"),
        (EXPERIMENT, {"theta": (-1.0,)}, "positive"),
        (EXPERIMENT, {"mdp": "x.npy"}, "mdp in agent.toml does not describe"),
        (EXPERIMENT, {"id": 3}, "the agents of this experiment are 0 to 2"),
        (TABLES, {"theta": (0.5,)}, "give mdp instead"),
        (TABLES, {"environment": "CartPole-v1"}, "give mdp instead"),
        (TABLES, {"id": 5}, "the agents of this experiment are 0 to 4"),
        (TABLES, {"mdp": "none.npy"}, "cannot read the dynamics in"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_description_that_cannot_be_used_is_told_at_once(client_in, experiment, settings, said):
    with pytest.raises(FedrlError) as told:
        client_in(experiment, **settings)
    assert said in str(told.value)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (np.ones((16, 4, 16)), "probabilities of shape (16, 4, 16) that sum to 1"),
        (np.full((4, 16, 16), 1 / 16), "shape (16, 4, 16)"),
        (np.full((16, 4, 16), np.nan), "that sum to 1"),
        (np.array(["x"]), "cannot read"),
        (b"", "cannot read"),
        (b"not an array", "cannot read"),
    ],
    ids=["sums", "shape", "no numbers", "words", "empty", "garbage"],
)
def test_dynamics_that_are_none_are_told_at_once(client_in, tmp_path, what, said):
    file = tmp_path / "mine.npy"
    if isinstance(what, bytes):
        file.write_bytes(what)
    else:
        np.save(file, what)
    with pytest.raises(FedrlError) as told:
        client_in(TABLES, mdp=str(file))
    assert said in str(told.value)
    assert str(file) in str(told.value)


def test_only_one_description_is_allowed():
    with pytest.raises(FedrlError, match="theta and environment exclude each other"):
        AgentSettings(0, "x:1", theta=(0.5,), environment="CartPole-v1")
    with pytest.raises(FedrlError, match="id must be an integer of at least 0"):
        AgentSettings(-1, "x:1")
