# SPDX-License-Identifier: Apache-2.0
"""How the system of ``numbers.py`` describes its servers, and its options of TLS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spark_topics.network import Network, TlsNames
from spark_topics.options.secrets import Secret
from tests.spark_topics.numbers import NUMBERS

NETWORK = Network(
    system=NUMBERS,
    server="broker",
    connect_timeout="`connect.timeout`",
    unreachable="Check `url`.",
    tls_port="Is this the port for TLS?",
    without_tls="Leave out `tls` to do without TLS.",
    other_name="Name the broker as its certificate does.",
    trusts="the trust store of the broker",
    tls=TlsNames(
        trust_certificates="tls.ca",
        certificate="tls.certificate",
        key="tls.key",
        insecure="tls.insecure",
        verify_hostname="tls.verifyHostname",
        use_key_stores="tls.useStores",
        trust_store="tls.trustStore",
        trust_store_password="tls.trustStorePassword",
        key_store="tls.keyStore",
        key_store_password="tls.keyStorePassword",
        ciphers="tls.ciphers",
        protocols="tls.protocols",
    ),
)


@dataclass(frozen=True)
class TlsOptions:
    """Options of TLS with the defaults that all systems have."""

    network: ClassVar[Network] = NETWORK

    trust_certificates_path: str | None = None
    certificate_path: str | None = None
    key_path: str | None = None
    allow_insecure: bool = False
    verify_hostname: bool = True
    use_key_stores: bool = False
    trust_store_path: str | None = None
    trust_store_password: Secret | None = None
    key_store_path: str | None = None
    key_store_password: Secret | None = None
    ciphers: tuple[str, ...] | None = None
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
