# SPDX-License-Identifier: Apache-2.0
"""The options of TLS: whom to trust, and what to show.

What they name is looked for on each node, when it connects. Names are those of the Java
client, with dots; where that has stores of type JKS, these are files in PEM, or stores
of type PKCS12.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spark_topics.network import Network
from spark_topics.options.given import Given
from spark_topics.options.spec import Scope, option
from spark_topics.options.tls import ciphers, protocols, store_type
from spark_topics.options.values import boolean, plain_text
from tubemq_spark.options.secret import Secret
from tubemq_spark.system import NETWORK

_PEM = "PEM"

ENABLE = "tls.enable"
TRUST_STORE = "tls.truststore.path"
TRUST_STORE_PASSWORD = "tls.truststore.password"  # noqa: S105 - a name
KEY_STORE = "tls.keystore.path"
KEY_STORE_PASSWORD = "tls.keystore.password"  # noqa: S105 - a name
STORE_TYPE = "tls.store.type"
CIPHERS = "tls.ciphers"
PROTOCOLS = "tls.protocols"


def _store_type(text: str, name: str) -> str:
    if text.strip().upper() == _PEM:
        return _PEM
    return store_type(text, name)


@dataclass(frozen=True)
class TlsOptions:
    """Whom to trust, and what to show. Paths are those of the node that connects.

    Attributes:
        enable: Whether connections are by TLS, all of them.
        trust_path: File with the certificates to trust; None for the system's.
        trust_store_password: Its password, if it is a store.
        identity_path: File with the client's certificate and its private key.
        key_store_password: Its password, if it is a store.
        store_type: What both files are, ``PEM`` or ``PKCS12``.
        allow_insecure: Whether any server is trusted.
        verify_hostname: Whether a certificate must be for the host that was asked for.
        ciphers: Suites that may be used; None for OpenSSL's choice.
        protocols: Versions that may be used, oldest first.
    """

    network: ClassVar[Network] = NETWORK

    enable: bool = option(
        ENABLE,
        "false",
        boolean,
        Scope.CLIENT,
        "Whether all connections are by TLS. The port of a master is then 8716 by "
        "default, and brokers are reached at the ports for TLS that it tells.",
    )
    trust_path: str | None = option(
        TRUST_STORE,
        None,
        plain_text,
        Scope.CLIENT,
        "File with the certificates to trust; by default those of the system.",
    )
    trust_store_password: Secret | None = option(
        TRUST_STORE_PASSWORD,
        None,
        Secret.parse,
        Scope.CLIENT,
        "Its password, where it is a store: itself, `file:/path` or `env:NAME`.",
    )
    identity_path: str | None = option(
        KEY_STORE,
        None,
        plain_text,
        Scope.CLIENT,
        "File with the client's certificate and its private key, where servers ask for "
        "one.",
    )
    key_store_password: Secret | None = option(
        KEY_STORE_PASSWORD,
        None,
        Secret.parse,
        Scope.CLIENT,
        "Its password, where it is a store: itself, `file:/path` or `env:NAME`.",
    )
    store_type: str = option(
        STORE_TYPE,
        _PEM,
        _store_type,
        Scope.CLIENT,
        "What these two files are: `PEM`, or `PKCS12`, which needs "
        "`pip install cryptography`.",
    )
    verify_hostname: bool = option(
        "tls.verify.hostname",
        "true",
        boolean,
        Scope.CLIENT,
        "Whether a server's certificate must be for the host that was asked for.",
    )
    allow_insecure: bool = option(
        "tls.allow.insecure",
        "false",
        boolean,
        Scope.CLIENT,
        "Whether any server is trusted, whatever certificate it shows. For tests only: "
        "anybody in between can read and change all.",
    )
    ciphers: tuple[str, ...] | None = option(
        CIPHERS,
        None,
        ciphers,
        Scope.CLIENT,
        "Cipher suites that may be used, by comma, as Java or OpenSSL spell them.",
    )
    protocols: tuple[str, ...] = option(
        PROTOCOLS,
        "TLSv1.2,TLSv1.3",
        protocols,
        Scope.CLIENT,
        "Versions of TLS that may be used, by comma. None before 1.2 ever is.",
    )

    @property
    def use_key_stores(self) -> bool:
        """Return whether the files are stores instead of PEM."""
        return self.store_type != _PEM

    @property
    def trust_certificates_path(self) -> str | None:
        """Return the PEM file of trusted certificates, if in PEM."""
        return None if self.use_key_stores else self.trust_path

    @property
    def trust_store_path(self) -> str | None:
        """Return the store of trusted certificates, if a store."""
        return self.trust_path if self.use_key_stores else None

    @property
    def certificate_path(self) -> str | None:
        """Return the PEM file of the client's certificate, if in PEM."""
        return None if self.use_key_stores else self.identity_path

    @property
    def key_path(self) -> str | None:
        """Return the PEM file of the private key: the certificate's file."""
        return self.certificate_path

    @property
    def key_store_path(self) -> str | None:
        """Return the store with both."""
        return self.identity_path if self.use_key_stores else None


#: Options that ask for TLS: without it they would be dropped in silence.
_NEED_TLS = (
    TRUST_STORE,
    TRUST_STORE_PASSWORD,
    KEY_STORE,
    KEY_STORE_PASSWORD,
    CIPHERS,
    PROTOCOLS,
)


def tls_options(given: Given) -> TlsOptions:
    """Parse the TLS options; problems are added to ``given``."""
    tls = given.fill(TlsOptions)
    if not tls.enable:
        asked = [name for name in _NEED_TLS if name in given]
        if asked:
            given.problems.append(
                f"{', '.join(asked)} would have no effect without TLS: set "
                f"{ENABLE}=true, and name the masters' ports for it, usually 8716."
            )
        return tls
    for password, path in (
        (TRUST_STORE_PASSWORD, TRUST_STORE),
        (KEY_STORE_PASSWORD, KEY_STORE),
    ):
        if password not in given:
            continue
        if path not in given:
            given.problems.append(f"{password} needs {path}.")
        elif not tls.use_key_stores:
            given.problems.append(
                f"{password} is for stores, and {path} names a file in PEM: set "
                f"{STORE_TYPE}=PKCS12, or leave the password out."
            )
    return tls
