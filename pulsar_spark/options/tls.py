# SPDX-License-Identifier: Apache-2.0
"""The options of TLS: whom to trust, and what to show.

They have a meaning where ``service.url`` begins with ``pulsar+ssl://``. What they name
is looked for on each node, when it connects.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from pulsar_spark.errors import OptionError, foreign_text
from pulsar_spark.options.secret import Secret, secret
from pulsar_spark.options.service_url import parse_service_url
from pulsar_spark.system import PULSAR
from spark_topics.network import Network, TlsNames
from spark_topics.options.given import Given
from spark_topics.options.spec import Scope, option
from spark_topics.options.tls import ciphers, protocols, store_type
from spark_topics.options.values import boolean, plain_text

_CLIENT = "pulsar.client."

#: By these names, options that matter in errors elsewhere.
TRUST_CERTIFICATES = f"{_CLIENT}tlsTrustCertsFilePath"
CERTIFICATE = f"{_CLIENT}tlsCertificateFilePath"
KEY = f"{_CLIENT}tlsKeyFilePath"
INSECURE = f"{_CLIENT}tlsAllowInsecureConnection"
VERIFY_HOSTNAME = f"{_CLIENT}tlsHostnameVerificationEnable"
USE_TLS = f"{_CLIENT}useTls"
USE_KEY_STORES = f"{_CLIENT}useKeyStoreTls"
TRUST_STORE = f"{_CLIENT}tlsTrustStorePath"
TRUST_STORE_PASSWORD = f"{_CLIENT}tlsTrustStorePassword"
KEY_STORE = f"{_CLIENT}tlsKeyStorePath"
KEY_STORE_PASSWORD = f"{_CLIENT}tlsKeyStorePassword"
CIPHERS = f"{_CLIENT}tlsCiphers"
PROTOCOLS = f"{_CLIENT}tlsProtocols"
PROXY = f"{_CLIENT}proxyServiceUrl"
PROXY_PROTOCOL = f"{_CLIENT}proxyProtocol"

NETWORK = Network(
    connect_timeout="`pulsar.client.connectionTimeoutMs`",
    system=PULSAR,
    server="broker",
    unreachable=(
        "Check `service.url` and the address that the broker advertises, and that it is"
        " up and can be reached from where Spark's tasks run."
    ),
    tls_port="Is this its port for TLS (usually 6651)?",
    without_tls="Without TLS, `service.url` begins with pulsar://.",
    other_name=(
        "Name it as its certificate does in `service.url` and in what brokers"
        " advertise, or give it a certificate for that name."
    ),
    trusts="`tlsTrustCertsFilePath` of the broker",
    tls=TlsNames(
        trust_certificates=TRUST_CERTIFICATES,
        certificate=CERTIFICATE,
        key=KEY,
        insecure=INSECURE,
        verify_hostname=VERIFY_HOSTNAME,
        use_key_stores=USE_KEY_STORES,
        trust_store=TRUST_STORE,
        trust_store_password=TRUST_STORE_PASSWORD,
        key_store=KEY_STORE,
        key_store_password=KEY_STORE_PASSWORD,
        ciphers=CIPHERS,
        protocols=PROTOCOLS,
    ),
)


def _proxy_protocol(text: str, option: str) -> str:
    if text.strip().upper() != "SNI":
        raise OptionError(f"{option} must be SNI, not {foreign_text(text)!r}.")
    return "SNI"


def _proxy(text: str, option: str) -> str:
    """Read the address of a proxy, as ``host:port``."""
    url = parse_service_url(text, option)
    if not url.uses_tls or len(url.hosts) > 1:
        raise OptionError(
            f"{option} must be one proxy, such as pulsar+ssl://proxy:4443."
        )
    return url.hosts[0]


@dataclass(frozen=True)
class TlsOptions:
    """Whom to trust, and what to show. Paths are those of the node that connects."""

    network: ClassVar[Network] = NETWORK

    use_tls: bool = option(
        USE_TLS,
        "false",
        boolean,
        Scope.CLIENT,
        "Only repeats what the scheme of `service.url` says: `true` with `pulsar://` is"
        " an error.",
    )
    trust_certificates_path: str | None = option(
        TRUST_CERTIFICATES,
        None,
        plain_text,
        Scope.CLIENT,
        "File with the certificates to trust, in PEM; by default those of the system."
        " See [TLS](security.md#tls).",
    )
    certificate_path: str | None = option(
        CERTIFICATE,
        None,
        plain_text,
        Scope.CLIENT,
        "File with the client's certificate, and those between it and its authority, in"
        " PEM.",
    )
    key_path: str | None = option(
        KEY,
        None,
        plain_text,
        Scope.CLIENT,
        "File with its private key, in PEM, without a password.",
    )
    allow_insecure: bool = option(
        INSECURE,
        "false",
        boolean,
        Scope.CLIENT,
        "Whether any broker is trusted, whatever certificate it shows. For tests only:"
        " anybody in between can read and change all.",
    )
    verify_hostname: bool = option(
        VERIFY_HOSTNAME,
        "true",
        boolean,
        Scope.CLIENT,
        "Whether a broker's certificate must be for the host that was asked for.",
    )
    use_key_stores: bool = option(
        USE_KEY_STORES,
        "false",
        boolean,
        Scope.CLIENT,
        "Whether `tlsKeyStorePath` and `tlsTrustStorePath` are used instead of files in"
        " PEM. Needs `pip install cryptography`.",
    )
    trust_store_type: str = option(
        f"{_CLIENT}tlsTrustStoreType",
        "PKCS12",
        store_type,
        Scope.CLIENT,
        "`PKCS12`. One of type `JKS` has to be converted.",
    )
    trust_store_path: str | None = option(
        TRUST_STORE,
        None,
        plain_text,
        Scope.CLIENT,
        "Store with the certificates to trust; by default those of the system.",
    )
    trust_store_password: Secret | None = option(
        TRUST_STORE_PASSWORD,
        None,
        secret,
        Scope.CLIENT,
        "Its password: itself, `file:/path` or `env:NAME`.",
    )
    key_store_type: str = option(
        f"{_CLIENT}tlsKeyStoreType",
        "PKCS12",
        store_type,
        Scope.CLIENT,
        "As `tlsTrustStoreType`.",
    )
    key_store_path: str | None = option(
        KEY_STORE,
        None,
        plain_text,
        Scope.CLIENT,
        "Store with the client's certificate and its private key.",
    )
    key_store_password: Secret | None = option(
        KEY_STORE_PASSWORD,
        None,
        secret,
        Scope.CLIENT,
        "Its password: itself, `file:/path` or `env:NAME`.",
    )
    ciphers: tuple[str, ...] | None = option(
        CIPHERS,
        None,
        ciphers,
        Scope.CLIENT,
        "Cipher suites that may be used, by comma, in the spelling of Java or OpenSSL;"
        " by default those that the system's OpenSSL holds safe.",
    )
    protocols: tuple[str, ...] = option(
        PROTOCOLS,
        "TLSv1.2,TLSv1.3",
        protocols,
        Scope.CLIENT,
        "Versions of TLS that may be used, by comma. None before 1.2 ever is.",
    )

    proxy: str | None = option(
        PROXY,
        None,
        _proxy,
        Scope.CLIENT,
        "`pulsar+ssl://host:port` of a proxy that all connections go through, to"
        " brokers that it knows by the name in TLS (SNI).",
    )
    proxy_protocol: str = option(
        PROXY_PROTOCOL,
        "SNI",
        _proxy_protocol,
        Scope.CLIENT,
        "`SNI`: how the proxy knows the broker.",
    )


#: Options that ask for TLS: without it they would be dropped in silence.
_NEED_TLS = (
    TRUST_CERTIFICATES,
    CERTIFICATE,
    KEY,
    TRUST_STORE,
    TRUST_STORE_PASSWORD,
    KEY_STORE,
    KEY_STORE_PASSWORD,
    CIPHERS,
    PROTOCOLS,
    PROXY,
    PROXY_PROTOCOL,
)
_OF_PEM = (TRUST_CERTIFICATES, CERTIFICATE, KEY)
_OF_STORES = (TRUST_STORE, TRUST_STORE_PASSWORD, KEY_STORE, KEY_STORE_PASSWORD)


def tls_options(given: Given, *, uses_tls: bool) -> TlsOptions:
    """Parse the TLS options; problems are added to ``given``.

    Args:
        given: The options given.
        uses_tls: Whether the service URL asks for TLS.
    """
    tls = given.fill(TlsOptions)
    if not uses_tls:
        asked = [name for name in _NEED_TLS if name in given]
        asked += [
            name
            for name, is_on in (
                (USE_TLS, tls.use_tls),
                (USE_KEY_STORES, tls.use_key_stores),
            )
            if is_on
        ]
        if asked:
            given.problems.append(
                f"{_list(asked)} would have no effect, because service.url begins with"
                " pulsar://, which is without TLS. Begin it with pulsar+ssl://; the"
                " port is usually 6651."
            )
        return tls
    surplus = [n for n in (_OF_PEM if tls.use_key_stores else _OF_STORES) if n in given]
    if surplus and tls.use_key_stores:
        given.problems.append(
            f"{_list(surplus)} cannot be set beside {USE_KEY_STORES}=true: name"
            f" {TRUST_STORE} and {KEY_STORE} instead."
        )
    elif surplus:
        given.problems.append(f"{_list(surplus)} needs {USE_KEY_STORES}=true.")
    elif KEY in given and CERTIFICATE not in given:
        given.problems.append(f"{KEY} needs {CERTIFICATE}, whose private key it is.")
    # What the scheme says counts, so that connections are shared whether or not an
    # option repeats it.
    return replace(tls, use_tls=True)


def _list(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
