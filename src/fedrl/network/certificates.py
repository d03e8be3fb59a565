"""Who is who: a certificate for the server, signed by the federation's own authority, and a key
pair for every agent.
"""

import ipaddress
import os
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=825)
# Clocks of small devices are wrong.
SLACK = timedelta(days=1)

Key = ec.EllipticCurvePrivateKey


def new_key() -> Key:
    """On the curve that Flower's node authentication wants."""
    return ec.generate_private_key(ec.SECP384R1())


def authority(key: Key) -> x509.Certificate:
    """A certificate that signs others, and nothing else."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedrl federation")])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )


def server_certificate(key: Key, host: str, signer: Key, by: x509.Certificate) -> x509.Certificate:
    """For the host that agents connect to, and for this machine itself."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedrl server")])
    names = dict.fromkeys((host, "localhost", "127.0.0.1"))
    public = signer.public_key()
    return (
        _builder(name, by.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_name(n) for n in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .sign(signer, hashes.SHA384())
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: Key) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SLACK)
        .not_valid_after(now + LIFETIME)
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def pem(certificate: x509.Certificate) -> bytes:
    """As files have it."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def private_pem(key: Key, *, ssh: bool = False) -> bytes:
    """A private key for a file; nodes have theirs in OpenSSH's form."""
    form = serialization.PrivateFormat.OpenSSH if ssh else serialization.PrivateFormat.PKCS8
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, plain)


def public_ssh(key: Key) -> bytes:
    """The public half, as a node is registered with."""
    openssh = serialization.PublicFormat.OpenSSH
    return key.public_key().public_bytes(serialization.Encoding.OpenSSH, openssh)


def header_of(public: bytes) -> str:
    """How a node names its public key in the headers of its requests, from the key's file."""
    key = serialization.load_ssh_public_key(public)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return b64encode(key.public_bytes(serialization.Encoding.PEM, form)).decode()


def write_secret(path: Path, content: bytes) -> None:
    """A new file that only its owner can read, from its first byte on."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
