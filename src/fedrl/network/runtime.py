"""Between an agent's SuperNode and its SuperExec: where they meet, and how they know each other.

The SuperNode hands out messages on a port of the loopback, which every user of the machine can
reach. It gives them to a SuperExec that knows a secret, and shows a certificate, so that no other
user can take messages from it or pretend to be it.
"""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fedrl.network import certificates
from fedrl.network.deployment import LOOPBACK
from fedrl.network.processes import free_port

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


def renew(folder: Path) -> list[str]:
    """Make a new port, secret and certificate: the options of a SuperNode that is starting."""
    home = folder / HOME
    signer, key = certificates.new_key(), certificates.new_key()
    by = certificates.authority(signer)
    certificate = certificates.server_certificate(key, LOOPBACK, signer, by)
    address = f"{LOOPBACK}:{free_port()}"
    for name, content in (
        (SECRET, secrets.token_bytes(32)),
        (KEY, certificates.private_pem(key)),
        (CERTIFICATE, certificates.pem(certificate)),
        (AUTHORITY, certificates.pem(by)),
        (ADDRESS, address.encode()),
    ):
        (home / name).unlink(missing_ok=True)
        certificates.write_secret(home / name, content)
    return [
        *("--host", LOOPBACK, "--port", address.rpartition(":")[2]),
        *("--isolation", "process", "--superexec-auth-secret-file", str(home / SECRET)),
        *("--ssl-certfile", str(home / CERTIFICATE)),
        *("--ssl-keyfile", str(home / KEY)),
        *("--ssl-ca-certfile", str(home / AUTHORITY)),
    ]
