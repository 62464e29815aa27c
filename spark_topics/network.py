# SPDX-License-Identifier: Apache-2.0
"""Words in which network errors describe a messaging system and its options.

What cannot be told in general is a sentence of the system's own.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from spark_topics.options.secrets import Secret
    from spark_topics.system import System


@dataclass(frozen=True)
class TlsNames:
    """The names of the options of TLS, for errors.

    Attributes:
        trust_certificates: File with the certificates to trust.
        certificate: File with the client's certificate.
        key: File with its private key.
        insecure: Whether any certificate is accepted.
        verify_hostname: Whether a certificate must be for the host.
        use_key_stores: Whether stores are used instead of files in PEM.
        trust_store: Store with the certificates to trust.
        trust_store_password: Its password.
        key_store: Store with the client's certificate and key.
        key_store_password: Its password.
        ciphers: Suites that may be used.
        protocols: Versions that may be used.
    """

    trust_certificates: str
    certificate: str
    key: str
    insecure: str
    verify_hostname: str
    use_key_stores: str
    trust_store: str
    trust_store_password: str
    key_store: str
    key_store_password: str
    ciphers: str
    protocols: str


@dataclass(frozen=True)
class Network:
    """What errors of connections say of a messaging system.

    Attributes:
        system: Which one.
        server: The system's word for its servers, such as ``broker``.
        connect_timeout: The option for the longest wait for a connection.
        unreachable: What to check where one cannot be reached, as sentences.
        tls_port: A question whether this is the port for TLS.
        without_tls: How to do without TLS, as a sentence.
        other_name: What to do where a certificate is for another name, as a sentence.
        trusts: Where a server has the authorities that it trusts.
        tls: The options of TLS.
    """

    system: System
    server: str
    connect_timeout: str
    unreachable: str
    tls_port: str
    without_tls: str
    other_name: str
    trusts: str
    tls: TlsNames


class TlsSettings(Hashable, Protocol):
    """Whom to trust, and what to show. Paths are those of the node that connects.

    A frozen dataclass with these attributes will do; ``network`` is one of its class.
    Paths, passwords and ciphers are None where the user named none.
    """

    @property
    def network(self) -> Network:
        """Return how errors name servers and options."""

    @property
    def trust_certificates_path(self) -> str | None:
        """Return the PEM file with the certificates to trust; None for the system's."""

    @property
    def certificate_path(self) -> str | None:
        """Return the file with the client's certificate, in PEM."""

    @property
    def key_path(self) -> str | None:
        """Return the PEM file with the private key."""

    @property
    def allow_insecure(self) -> bool:
        """Return whether any server is trusted."""

    @property
    def verify_hostname(self) -> bool:
        """Return whether a certificate must be for the host that was asked for."""

    @property
    def use_key_stores(self) -> bool:
        """Return whether stores are used instead of files in PEM."""

    @property
    def trust_store_path(self) -> str | None:
        """Return the PKCS12 store with the certificates to trust."""

    @property
    def trust_store_password(self) -> Secret | None:
        """Return the password of the trust store."""

    @property
    def key_store_path(self) -> str | None:
        """Return the PKCS12 store with the client's certificate and key."""

    @property
    def key_store_password(self) -> Secret | None:
        """Return the password of the key store."""

    @property
    def ciphers(self) -> tuple[str, ...] | None:
        """Return the suites that may be used, in upper case."""

    @property
    def protocols(self) -> tuple[str, ...]:
        """Return the versions to use, of ``TLSv1.2`` and ``TLSv1.3``, oldest first."""
