# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests, made when they are needed: nothing that expires is stored.

::

    authority = Authority(folder)
    server = authority.issue("server")              # for 127.0.0.1, ::1 and localhost
    client = authority.issue("orders", hosts=())    # CN=orders is its role
    late = authority.issue("late", ends=days(-1))   # expired yesterday
    EmbeddedBroker(settings=tls_settings(authority, server))

Files are PEM; keys are RSA in PKCS8 without a password, which every version of Pulsar
takes.
"""

from __future__ import annotations

import ipaddress
import os
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The names by which a broker on loopback is reached.
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")

_USAGES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
_KEY_BITS = 2048


def days(count: float) -> timedelta:
    """That many days from now; a negative count is in the past."""
    return timedelta(days=count)


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, as files.

    Attributes:
        certificate: PEM.
        key: PEM, PKCS8, without a password.
    """

    certificate: Path
    key: Path

    def encrypted_key(self, password: str) -> Path:
        """The key once more, under a password."""
        data = self._private_key().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password.encode()),
        )
        return _write(self.key.with_name(f"{self.key.stem}-encrypted.pem"), data)

    def combined(self) -> Path:
        """Certificate and key in one file."""
        path = self.key.with_name(f"{self.key.stem}-both.pem")
        return _write(path, self.certificate.read_bytes() + self.key.read_bytes())

    def key_store(self, password: str, *, authority: Authority | None = None) -> Path:
        """Both as a PKCS12 key store, with the certificate of who signed it, if given.

        Returns:
            Its path, which ends in ``.p12``.
        """
        data = pkcs12.serialize_key_and_certificates(
            b"client",
            self._private_key(),
            _load(self.certificate),
            [_load(authority.certificate)] if authority else None,
            serialization.BestAvailableEncryption(password.encode()),
        )
        return _write(self.key.with_suffix(".p12"), data)

    def bare_key_store(self, password: str) -> Path:
        """The key as a PKCS12 store that has no certificate."""
        under = serialization.BestAvailableEncryption(password.encode())
        data = pkcs12.serialize_key_and_certificates(
            b"client", self._private_key(), None, None, under
        )
        return _write(self.key.with_name(f"{self.key.stem}-bare.p12"), data)

    def _private_key(self) -> rsa.RSAPrivateKey:
        key = serialization.load_pem_private_key(self.key.read_bytes(), None)
        assert isinstance(key, rsa.RSAPrivateKey)
        return key


class Authority:
    """Signs certificates.

    Args:
        folder: Where its files and those of what it issues go; made if need be.
        name: Its common name, and the beginning of its files' names.

    Attributes:
        certificate: Its own certificate, PEM: what others trust.
        folder: The same.
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = _new_key(name)
        self._name = _common_name(f"{name}.test")
        now = datetime.now(timezone.utc)
        self._certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + days(-365))
            .not_valid_after(now + days(365))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
            .add_extension(_key_usage(signs=True), True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), False
            )
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = _write(
            folder / f"{name}.pem",
            self._certificate.public_bytes(serialization.Encoding.PEM),
        )

    def issue(
        self,
        name: str,
        *,
        hosts: Sequence[str] = LOOPBACK_HOSTS,
        begins: timedelta = timedelta(days=-30),
        ends: timedelta = timedelta(days=30),
        usages: Sequence[x509.ObjectIdentifier] = _USAGES,
        key_bits: int = _KEY_BITS,
        file: str = "",
    ) -> Pair:
        """Make a certificate, for a server and for a client.

        Args:
            name: Its common name: the role of a client.
            hosts: Names and addresses that it is for; none for a client.
            begins: From when it is valid, as `days` gives it.
            ends: Until when.
            usages: What else it is for, if not for servers and clients.
            key_bits: Length of its key.
            file: The beginning of the files' names, ``name`` by default. Files that are
                there are replaced, each at once: as a renewal does.
        """
        now = datetime.now(timezone.utc)
        key = _new_key(f"{name} of {self._name.rfc4514_string()}", key_bits)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_common_name(name))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + min(begins, ends - days(1)))
            .not_valid_after(now + ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
            .add_extension(_key_usage(signs=False), True)
            .add_extension(x509.ExtendedKeyUsage(usages), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(
                    self._key.public_key()
                ),
                False,
            )
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, False)
        certificate = builder.sign(self._key, hashes.SHA256())
        stem = file or name
        return Pair(
            _write(
                self.folder / f"{stem}.pem",
                certificate.public_bytes(serialization.Encoding.PEM),
            ),
            _write(
                self.folder / f"{stem}-key.pem",
                key.private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.PKCS8,
                    serialization.NoEncryption(),
                ),
            ),
        )

    def trust_store(self, password: str) -> Path:
        """Its certificate as a PKCS12 trust store, as Java's keytool makes them."""
        data = pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(self._certificate, b"authority")],
            serialization.BestAvailableEncryption(password.encode()),
        )
        return _write(self.certificate.with_suffix(".p12"), data)


def tls_settings(authority: Authority, server: Pair) -> dict[str, str]:
    """Settings of an `EmbeddedBroker` that speaks TLS, too, on a port that it chooses.

    It asks clients for a certificate, and takes those that have none.

    Args:
        authority: Whom it trusts.
        server: What it shows.
    """
    return {
        "tlsTrustCertsFilePath": str(authority.certificate),
        "tlsCertificateFilePath": str(server.certificate),
        "tlsKeyFilePath": str(server.key),
    }


@lru_cache(maxsize=64)
def _new_key(owner: str, bits: int = _KEY_BITS) -> rsa.RSAPrivateKey:
    """The key of an owner: making one takes a tenth of a second."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def _write(path: Path, data: bytes) -> Path:
    """Write a file at once: who opens it meanwhile has the old or the new one whole."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as new:
        new.write(data)
    os.chmod(new.name, 0o600)
    os.replace(new.name, path)
    return path
