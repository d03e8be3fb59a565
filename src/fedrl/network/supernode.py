"""An agent's SuperNode, and how its SuperExec reaches it.

The SuperNode hands out messages on a port of the loopback, which every user of the machine can
reach. It gives them to a SuperExec that knows a secret, and shows a certificate, so that no other
user can take messages from it or pretend to be it.

`python -m fedrl.network.supernode FOLDER` is what `fedrl agent` starts: Flower's program, in a
process that ends when its connection is lost for good. When a connection breaks during a TLS
handshake, Flower gives up and its main function returns, but a thread that serves its local
interface keeps the process alive: it looks healthy, and never asks the server for work again.
"""

import json
import os
import secrets
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Self

from fedrl.experiment.toml import read_settings
from fedrl.network import certificates
from fedrl.network.deployment import AGENT, LOOPBACK, AgentSettings
from fedrl.network.processes import free_port

PROGRAM = "flower-supernode"
# In the folder of an agent: what Flower keeps there.
HOME = "flower"
ADDRESS, SECRET = "runtime.address", "runtime.secret"
CERTIFICATE, KEY, AUTHORITY = "runtime.pem", "runtime.key", "runtime-ca.pem"


@dataclass(frozen=True)
class Runtime:
    """How to reach the SuperNode of an agent."""

    address: str
    secret: bytes
    authority: bytes
    """The certificate that has signed the SuperNode's."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """From the agent's folder."""
        home = folder / HOME
        return cls(
            (home / ADDRESS).read_text(),
            (home / SECRET).read_bytes(),
            (home / AUTHORITY).read_bytes(),
        )


def main(folder: Path) -> None:
    """Run Flower's program, and leave when it does, whatever its threads are doing."""
    sys.argv = [PROGRAM, *_options(folder)]
    (entry,) = entry_points(group="console_scripts", name=PROGRAM)
    program, code = entry.load(), 1
    try:
        program()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _options(folder: Path) -> list[str]:
    """With a new port, secret and certificate at every start."""
    home = folder / HOME
    home.mkdir(exist_ok=True)
    signer, key = certificates.new_key(), certificates.new_key()
    by = certificates.authority(signer)
    certificate = certificates.server_certificate(key, LOOPBACK, signer, by)
    port = free_port()
    for name, content in (
        (SECRET, secrets.token_bytes(32)),
        (KEY, certificates.private_pem(key)),
        (CERTIFICATE, certificates.pem(certificate)),
        (AUTHORITY, certificates.pem(by)),
        (ADDRESS, f"{LOOPBACK}:{port}".encode()),
    ):
        (home / name).unlink(missing_ok=True)
        certificates.write_secret(home / name, content)
    return [
        *("--superlink", read_settings(AgentSettings, folder / AGENT).server),
        *("--root-certificates", str(folder / "ca.pem")),
        *("--auth-supernode-private-key", str(folder / "agent.key")),
        *("--node-config", f"agent={json.dumps(str(folder))}"),
        *("--host", LOOPBACK, "--port", str(port)),
        *("--isolation", "process", "--superexec-auth-secret-file", str(home / SECRET)),
        *("--ssl-certfile", str(home / CERTIFICATE)),
        *("--ssl-keyfile", str(home / KEY)),
        *("--ssl-ca-certfile", str(home / AUTHORITY)),
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
